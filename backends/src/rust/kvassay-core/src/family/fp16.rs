//! fp16: rows as they were given.

use std::ops::Range;

use super::Stored;
use crate::attend::job::{Active, Job};
use crate::codec::Codec;
use crate::encode::head::Head;
use crate::kernels::Fp16Rows;
use crate::layout::{HeadBytes, Parts};
use crate::spec::LayerSpec;
use crate::transform::Stream;

pub struct Fp16;

impl Stored for Fp16 {
    fn codec(&self, _: usize, _: usize) -> Codec {
        Codec::of(&[])
    }

    fn streams(&self, spec: &LayerSpec, _: &Codec, parts: &Parts, bytes: &mut HeadBytes) {
        bytes[parts.codes as usize] = 2 * usize::from(spec.page_tokens) * usize::from(spec.head_dim);
    }

    fn encode(&self, head: &mut Head<'_, '_>, stream: Stream, rows: Fp16Rows<'_>, _: &[u8]) {
        let d = head.plan.d();
        for (j, out) in head.part(Parts::of(stream).codes).chunks_exact_mut(2 * d).enumerate() {
            out.copy_from_slice(rows.row(j, d));
        }
    }

    fn logits(&self, job: &mut Job<'_, '_, '_>, page: &[u8], rows: Range<usize>) {
        let (d, stride) = (job.call.plan.d(), job.worker.t_stride());
        let q = &job.worker.ql[rows.start * d..rows.end * d];
        job.kernels.dots(q, d, tokens(job, page, Stream::Keys), &mut job.worker.t[rows.start * stride..], stride);
    }

    fn add_values(&self, job: &mut Job<'_, '_, '_>, page: &[u8], active: &[Active]) {
        let (d, stride) = (job.call.plan.d(), job.worker.t_stride());
        let values = tokens(job, page, Stream::Values);
        let worker = &mut *job.worker;
        let x = &mut worker.x[..active.len() * d];
        x.fill(0.0);
        job.kernels.weighted(worker.t, stride, d, values, x);
        for (row, x) in active.iter().zip(x.chunks_exact(d)) {
            job.kernels.blend_rows(&mut worker.acc[row.row * d..][..d], x, row.al, row.be);
        }
    }
}

fn tokens<'p>(job: &Job<'_, '_, '_>, page: &'p [u8], stream: Stream) -> Fp16Rows<'p> {
    let plan = job.call.plan;
    Fp16Rows { data: job.part(page, Parts::of(stream).codes), stride: 2 * plan.d(), count: plan.page_tokens() }
}
