//! KIVI: steps and minima of groups of 32 tokens or channels (numeric contract, section 6).

use std::ops::Range;

use super::Stored;
use crate::attend::job::{Active, Job, MOST_ROWS, WEIGHT};
use crate::codec::{Codec, Span};
use crate::encode::head::Head;
use crate::half;
use crate::kernels::Fp16Rows;
use crate::layout::{HeadBytes, Parts};
use crate::plan::GROUP;
use crate::spec::LayerSpec;
use crate::transform::Stream;

pub struct Kivi;

impl Stored for Kivi {
    fn codec(&self, twice_bits: usize, d: usize) -> Codec {
        let (bits, mut span) = (twice_bits / 2, Span::new(0, d, twice_bits / 2));
        (0..1 << bits).for_each(|code| span.table[code] = code as i8);
        Codec::of(&[span])
    }

    /// Keys have a step for each channel of a group of tokens, values for each token of a group of channels.
    fn streams(&self, spec: &LayerSpec, codec: &Codec, parts: &Parts, bytes: &mut HeadBytes) {
        let (p, d) = (usize::from(spec.page_tokens), usize::from(spec.head_dim));
        let groups = if parts.stream == Stream::Keys { p.div_ceil(GROUP) * d } else { d.div_ceil(GROUP) * p };
        bytes[parts.codes as usize] = codec.bytes(p);
        bytes[parts.steps as usize] = 2 * groups;
        bytes[parts.minima as usize] = 2 * groups;
    }

    fn encode(&self, head: &mut Head<'_, '_>, stream: Stream, rows: Fp16Rows<'_>, mean: &[u8]) {
        let (plan, kernels, d) = (head.plan, head.kernels, head.plan.d());
        for (j, y) in head.work.y.chunks_exact_mut(d).enumerate() {
            kernels.widen(rows.row(j, d), mean, y);
        }
        let (parts, codec, work) = (Parts::of(stream), plan.codec(stream), &mut *head.work);
        let (bits, minima) = (codec.spans()[0].bits, plan.layout.range(parts.minima, head.head));
        let (front, back) = head.page.split_at_mut(minima.start);
        let (steps, minima) = (&mut front[plan.layout.range(parts.steps, head.head)], &mut back[..minima.len()]);
        let codes = plan.layout.range(parts.codes, head.head);
        if stream == Stream::Keys {
            let groups = steps.chunks_exact_mut(2 * d).zip(minima.chunks_exact_mut(2 * d));
            let tokens = work.y.chunks(GROUP * d).zip(work.codes.chunks_mut(GROUP * d));
            for ((steps, minima), (y, codes)) in groups.zip(tokens) {
                kernels.affine_keys(bits, y, d, codes, steps, minima);
            }
            kernels.pack_keys(codec, d, work.codes, &mut head.page[codes]);
            return;
        }
        for (j, (y, codes)) in work.y.chunks_exact(d).zip(work.codes.chunks_exact_mut(d)).enumerate() {
            for (group, (y, codes)) in y.chunks(GROUP).zip(codes.chunks_mut(GROUP)).enumerate() {
                let (step, minimum) = kernels.affine_values(bits, y, codes);
                half::put(steps, group * plan.page_tokens() + j, step);
                half::put(minima, group * plan.page_tokens() + j, minimum);
            }
        }
        kernels.pack_values(codec, d, work.codes, &mut head.page[codes]);
    }

    fn logits(&self, job: &mut Job<'_, '_, '_>, page: &[u8], rows: Range<usize>) {
        for first in (0..job.call.plan.page_tokens()).step_by(GROUP) {
            group_logits(job, page, first, rows.clone());
        }
    }

    fn add_values(&self, job: &mut Job<'_, '_, '_>, page: &[u8], active: &[Active]) {
        for first in (0..job.call.plan.d()).step_by(GROUP) {
            add_group(job, page, active, first);
        }
    }
}

/// Steps and minima of the group that begins at `first`, of n each.
fn affine<'p>(job: &Job<'_, '_, '_>, page: &'p [u8], parts: &Parts, first: usize, n: usize) -> [&'p [u8]; 2] {
    [parts.steps, parts.minima].map(|part| &job.part(page, part)[2 * n * (first / GROUP)..][..2 * n])
}

/// Steps lie along channels, so each group of tokens has a query of its own.
fn group_logits(job: &mut Job<'_, '_, '_>, page: &[u8], first: usize, rows: Range<usize>) {
    let (plan, parts) = (job.call.plan, Parts::of(Stream::Keys));
    let (d, stride) = (plan.d(), job.worker.t_stride());
    let tokens = (plan.page_tokens() - first).min(GROUP);
    let [steps, minima] = affine(job, page, &parts, first, d);
    let codes = &job.part(page, parts.codes)[plan.key.bytes(first)..plan.key.bytes(first + tokens)];
    let worker = &mut *job.worker;
    let (ql, step) = (&worker.ql[rows.start * d..rows.end * d], &mut worker.scale[..d]);
    job.kernels.widen(steps, &[], step);
    let (mut qs, mut bias) = ([0.0; MOST_ROWS], [0.0; MOST_ROWS]);
    let queries = ql.chunks_exact(d).zip(worker.w.chunks_exact_mut(d));
    for (qs, (ql, w)) in qs.iter_mut().zip(queries) {
        *qs = job.kernels.query15(ql, step, w);
    }
    job.kernels.dots(ql, d, Fp16Rows { data: minima, stride: 0, count: 1 }, &mut bias, 1);
    let sums = &mut worker.sums[..rows.len() * tokens];
    job.kernels.keyscan15(&plan.key, d, codes, tokens, &worker.w[..rows.len() * d], sums);
    for (i, sums) in sums.chunks_exact(tokens).enumerate() {
        let t = &mut worker.t[(rows.start + i) * stride + first..][..tokens];
        job.kernels.affine_logits(sums, qs[i], bias[i], t);
    }
}

/// One group of channels: steps lie along tokens, so each has weights of its own.
fn add_group(job: &mut Job<'_, '_, '_>, page: &[u8], active: &[Active], first: usize) {
    let (plan, parts) = (job.call.plan, Parts::of(Stream::Values));
    let (d, tokens, stride) = (plan.d(), plan.page_tokens(), job.worker.t_stride());
    let [steps, minima] = affine(job, page, &parts, first, tokens);
    let mut span = plan.value.spans()[0];
    let before = tokens * first * span.bits / 8;
    span.channels = (d - first).min(GROUP);
    let codes = &job.part(page, parts.codes)[before..before + span.bytes(tokens)];
    job.kernels.widen(steps, &[], &mut job.worker.scale[..tokens]);
    let largest = job.weigh(active.len());
    let worker = &mut *job.worker;
    let sums = &mut worker.sums[..active.len() * span.channels];
    job.kernels.valuesum(&span, codes, tokens, &worker.w[..active.len() * tokens], sums);
    let mut offsets = [0.0; MOST_ROWS];
    job.kernels.dot_each(worker.t, stride, minima, &mut offsets[..active.len()]);
    for (i, (row, sums)) in active.iter().zip(sums.chunks_exact(span.channels)).enumerate() {
        let acc = &mut worker.acc[row.row * d + first..][..span.channels];
        job.kernels.blend_affine(acc, sums, row.al, largest[i] * WEIGHT, offsets[i], row.be);
    }
}
