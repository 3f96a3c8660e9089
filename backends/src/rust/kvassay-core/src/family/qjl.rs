//! Turbo and the signs of a projection of its error (numeric contract, section 7); keys only.

use std::ops::Range;

use super::Stored;
use super::turbo::{Turbo, add_logits, load, make_integers, of_scales, quantize, store};
use crate::attend::job::{Active, Job};
use crate::codec::Codec;
use crate::encode::head::Head;
use crate::kernels::{Fp16Rows, Role};
use crate::layout::{HeadBytes, Parts};
use crate::spec::LayerSpec;
use crate::transform::Stream;

pub struct Qjl;

impl Stored for Qjl {
    fn codec(&self, twice_bits: usize, d: usize) -> Codec {
        Turbo.codec(twice_bits, d)
    }

    fn streams(&self, spec: &LayerSpec, codec: &Codec, parts: &Parts, bytes: &mut HeadBytes) {
        Turbo.streams(spec, codec, parts, bytes);
        let signs = Parts::of(Stream::Signs);
        bytes[signs.codes as usize] = usize::from(spec.page_tokens) * usize::from(spec.head_dim) / 8;
        of_scales(spec, &signs, bytes);
    }

    fn encode(&self, head: &mut Head<'_, '_>, stream: Stream, rows: Fp16Rows<'_>, mean: &[u8]) {
        quantize(head, Role::SignedKeys, rows, mean);
        let (plan, at, signs) = (head.plan, head.head, Parts::of(Stream::Signs));
        let unit = load(plan, at, head.page, &Parts::of(stream), head.work.scales);
        head.work.scales.iter_mut().for_each(|su| *su = *su * unit * plan.unstore);
        let tiles = &mut head.page[plan.layout.range(signs.codes, at)];
        head.kernels.signs(&plan.key, plan.transform(Stream::Signs), head.work, tiles);
        head.work.norms.iter_mut().for_each(|n2| *n2 = n2.sqrt() * plan.store);
        store(plan, at, head.page, &signs, head.work.norms);
    }

    fn make_queries(&self, job: &mut Job<'_, '_, '_>) {
        Turbo.make_queries(job);
        make_integers(job, Stream::Signs);
    }

    fn logits(&self, job: &mut Job<'_, '_, '_>, page: &[u8], rows: Range<usize>) {
        add_logits(job, page, Stream::Keys, rows.clone());
        add_logits(job, page, Stream::Signs, rows);
    }

    fn add_values(&self, _: &mut Job<'_, '_, '_>, _: &[u8], _: &[Active]) {
        unreachable!("a checked spec has no values with signs");
    }
}
