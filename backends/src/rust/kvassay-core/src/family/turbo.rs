//! Turbo: rotated, with an integer codebook (numeric contract, sections 4, 5, 8 and 10).

use std::ops::Range;

use super::Stored;
use crate::arith::hex;
use crate::attend::job::{Active, Job, WEIGHT};
use crate::codec::{Codec, Span};
use crate::encode::head::Head;
use crate::kernels::{Fp16Rows, Queries, Role, TOGETHER, Turbo as Kernel};
use crate::layout::{HeadBytes, Parts};
use crate::plan::Plan;
use crate::scale;
use crate::spec::{LayerSpec, SCALE_FP16};
use crate::transform::Stream;

pub struct Turbo;

impl Stored for Turbo {
    fn codec(&self, twice_bits: usize, d: usize) -> Codec {
        match twice_bits {
            4 => Codec::of(&[span(0, d, &TWO)]),
            5 => Codec::of(&[span(0, d / 2, &TWO_HALF_LOW), span(d / 2, d / 2, &TWO_HALF_HIGH)]),
            6 => Codec::of(&[span(0, d, &THREE)]),
            7 => Codec::of(&[span(0, d / 2, &THREE_HALF_LOW), span(d / 2, d / 2, &THREE_HALF_HIGH)]),
            _ => Codec::of(&[span(0, d, &FOUR)]),
        }
    }

    fn streams(&self, spec: &LayerSpec, codec: &Codec, parts: &Parts, bytes: &mut HeadBytes) {
        bytes[parts.codes as usize] = codec.bytes(usize::from(spec.page_tokens));
        of_scales(spec, parts, bytes);
    }

    fn encode(&self, head: &mut Head<'_, '_>, stream: Stream, rows: Fp16Rows<'_>, mean: &[u8]) {
        quantize(head, if stream == Stream::Values { Role::Values } else { Role::Keys }, rows, mean);
    }

    fn make_queries(&self, job: &mut Job<'_, '_, '_>) {
        let used = job.count * job.call.plan.d();
        job.worker.x[..used].copy_from_slice(&job.worker.ql[..used]);
        make_integers(job, Stream::Keys);
    }

    fn logits(&self, job: &mut Job<'_, '_, '_>, page: &[u8], rows: Range<usize>) {
        add_logits(job, page, Stream::Keys, rows);
    }

    fn add_values(&self, job: &mut Job<'_, '_, '_>, page: &[u8], active: &[Active]) {
        let plan = job.call.plan;
        let (d, tokens, parts) = (plan.d(), plan.page_tokens(), Parts::of(Stream::Values));
        let mut codes = job.part(page, parts.codes);
        let unit = load(plan, job.head, page, &parts, &mut job.worker.scale[..tokens]);
        let largest = job.weigh(active.len());
        let worker = &mut *job.worker;
        for span in plan.value.spans() {
            let (tiles, rest) = codes.split_at(span.bytes(tokens));
            codes = rest;
            let sums = &mut worker.sums[..active.len() * span.channels];
            job.kernels.valuesum(span, tiles, tokens, &worker.w[..active.len() * tokens], sums);
            for ((row, largest), sums) in active.iter().zip(&largest).zip(sums.chunks_exact(span.channels)) {
                let acc = &mut worker.acc[row.row * d + span.first..][..span.channels];
                job.kernels.blend(acc, sums, row.al, largest * WEIGHT * unit * row.be);
            }
        }
    }
}

/// Bytes of scales and of their largest.
pub fn of_scales(spec: &LayerSpec, parts: &Parts, bytes: &mut HeadBytes) {
    let fp16 = spec.scale_kind == SCALE_FP16;
    bytes[parts.scales as usize] = usize::from(spec.page_tokens) * if fp16 { 2 } else { 1 };
    bytes[parts.maxima as usize] = if fp16 { 0 } else { 4 };
}

/// Codes and scales of a head.
pub fn quantize(head: &mut Head<'_, '_>, role: Role, rows: Fp16Rows<'_>, mean: &[u8]) {
    let (plan, at) = (head.plan, head.head);
    let stream = if role == Role::Values { Stream::Values } else { Stream::Keys };
    let parts = Parts::of(stream);
    let kernel = Kernel { codec: plan.codec(stream), transform: plan.transform(stream), role };
    head.kernels.encode(&kernel, rows, mean, head.work, &mut head.page[plan.layout.range(parts.codes, at)]);
    head.work.scales.iter_mut().for_each(|s| *s *= plan.store);
    store(plan, at, head.page, &parts, head.work.scales);
}

/// Stores scales of a head.
pub fn store(plan: &Plan, head: usize, page: &mut [u8], parts: &Parts, scales: &[f32]) {
    let maximum = plan.layout.range(parts.maxima, head);
    let (front, back) = page.split_at_mut(maximum.start);
    let stored = &mut front[plan.layout.range(parts.scales, head)];
    scale::store(plan.spec.scale_kind, scales, stored, &mut back[..maximum.len()]);
}

/// Reads them back; the result is their unit.
pub fn load(plan: &Plan, head: usize, page: &[u8], parts: &Parts, scales: &mut [f32]) -> f32 {
    let part = |part| &page[plan.layout.range(part, head)];
    scale::load(plan.spec.scale_kind, part(parts.scales), part(parts.maxima), scales)
}

/// The integer queries of the keys; of the signs from those, which x still holds transformed.
pub fn make_integers(job: &mut Job<'_, '_, '_>, stream: Stream) {
    let plan = job.call.plan;
    let (d, codec, of) = (plan.d(), plan.codec(stream), usize::from(stream == Stream::Signs));
    let used = job.count * d;
    job.kernels.forward(plan.transform(stream), &mut job.worker.x[..used]);
    let worker = &mut *job.worker;
    let prepared = worker.prepared[of].chunks_exact_mut(d / 8);
    let rows = worker.x.chunks_exact(d).zip(worker.qi[of].chunks_exact_mut(d)).zip(prepared);
    for (row, ((z, qi), prepared)) in job.rows[..job.count].iter_mut().zip(rows) {
        let qs = job.kernels.query8(z, qi);
        job.kernels.prepare(codec, qi, prepared);
        row.qs[of] = if of == 0 { qs * plan.read } else { qs };
    }
    job.kernels.arrange(codec, d, &worker.qi[of][..used], worker.arranged[of]);
}

/// Logits of the keys, or what the signs add to them.
pub fn add_logits(job: &mut Job<'_, '_, '_>, page: &[u8], stream: Stream, rows: Range<usize>) {
    let plan = job.call.plan;
    let (d, tokens, stride) = (plan.d(), plan.page_tokens(), job.worker.t_stride());
    let (parts, of) = (Parts::of(stream), usize::from(stream == Stream::Signs));
    let codes = job.part(page, parts.codes);
    let worker = &mut *job.worker;
    let unit = load(plan, job.head, page, &parts, &mut worker.scale[..tokens]);
    let sums = &mut worker.sums[..rows.len() * tokens];
    let whole = rows.start.is_multiple_of(TOGETHER);
    let arranged = rows.start / TOGETHER * job.kernels.arranged(d);
    let queries = Queries {
        qi: &worker.qi[of][rows.start * d..rows.end * d],
        prepared: &worker.prepared[of][rows.start * d / 8..rows.end * d / 8],
        arranged: if whole { &worker.arranged[of][arranged..] } else { &[] },
    };
    job.kernels.keyscan(plan.codec(stream), d, codes, tokens, queries, sums);
    for (r, sums) in rows.zip(sums.chunks_exact(tokens)) {
        let (t, scale, factor) =
            (&mut worker.t[r * stride..][..tokens], &worker.scale[..tokens], job.rows[r].qs[of] * unit);
        match stream {
            Stream::Signs => job.kernels.add_logits(sums, scale, factor * plan.sign_gain, t),
            _ => job.kernels.logits(sums, scale, factor, t),
        }
    }
}

/// Positive centroids, and the bits of the thresholds.
struct Book(&'static [i8], &'static [u32]);

const TWO: Book = Book(&[3, 10], &[hex(0xf6a4f8, -1)]);
const THREE: Book = Book(&[7, 22, 39, 62], &[hex(0x012430, -1), hex(0x0e7118, 0), hex(0xbfc7d8, 0)]);
const FOUR: Book = Book(
    &[3, 9, 15, 21, 28, 36, 46, 61],
    &[
        hex(0x134566, -2),
        hex(0x134566, -1),
        hex(0x9ce818, -1),
        hex(0x190182, 0),
        hex(0x6f0732, 0),
        hex(0xd64138, 0),
        hex(0x32d004, 1),
    ],
);
const TWO_HALF_LOW: Book = Book(&[9, 30], &[hex(0xf5a7a6, -1)]);
const TWO_HALF_HIGH: Book = Book(&[5, 15, 27, 43], &[hex(0x014248, -1), hex(0x0e1f32, 0), hex(0xc233fe, 0)]);
const THREE_HALF_LOW: Book = Book(&[4, 12, 21, 34], &[hex(0x03518e, -1), hex(0x0b6c1a, 0), hex(0xbdb42a, 0)]);
const THREE_HALF_HIGH: Book = Book(
    &[2, 6, 10, 15, 20, 26, 33, 43],
    &[
        hex(0x03518e, -2),
        hex(0x03518e, -1),
        hex(0x952f6c, -1),
        hex(0x1ba132, 0),
        hex(0x74c53a, 0),
        hex(0xde1e5c, 0),
        hex(0x33f0d8, 1),
    ],
);

fn span(first: usize, channels: usize, book: &Book) -> Span {
    let half = book.0.len();
    let mut span = Span::new(first, channels, half.ilog2() as usize + 1);
    for (m, centroid) in book.0.iter().enumerate() {
        span.table[half + m] = *centroid;
        span.table[half - 1 - m] = -centroid;
    }
    for (threshold, bits) in span.thresholds.iter_mut().zip(book.1) {
        *threshold = f32::from_bits(*bits);
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Family;

    #[test]
    fn codebooks_mirror_and_thresholds_are_midpoints() {
        for mode in 0x14..=0x18 {
            for span in Codec::new(Family::Turbo, mode, 64).spans() {
                let n = 1 << span.bits;
                assert!((0..n).all(|code| span.table[code] == -span.table[n - 1 - code]));
                let half = &span.table[n / 2..n];
                // A threshold lies midway between its centroids, in one unit for all.
                let unit = |m: usize| span.thresholds[m] / (f32::from(half[m]) + f32::from(half[m + 1]));
                assert!((1..half.len() - 1).all(|m| (unit(m) / unit(0) - 1.0).abs() < 2e-6));
            }
        }
    }
}
