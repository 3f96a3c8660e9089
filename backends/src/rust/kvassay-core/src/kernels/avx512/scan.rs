//! Integer dot products over tiles.
//!
//! With VNNI, bytes as centroid + 64 go unsigned into `vpdpbusd`, those of 15 bits as two planes of multipliers whose
//! sums stay apart until the end; sums start from minus 64 times the multipliers.
//!
//! Without it, queries of 7 bits go into `vpmaddubsw`: the sums of 16 bits of two tiles start from the offset and wrap,
//! since what they end at fits (4 * 127 * 63 = 32004). For queries and weights of 15 bits even and odd bytes go as words
//! into `vpmaddwd`.

use super::super::sums::each_block;
use super::super::{Queries, TOGETHER, for_rows, sums};
use super::simd::*;
use super::tiles::{OFFSET, Tables, decode, dot, tables};
use crate::codec::{Codec, Span};

/// Two sums a row: what two tiles, two planes or even and odd bytes give.
#[derive(Clone, Copy)]
pub struct Sums<const VNNI: bool>([__m512i; 2]);

impl<const VNNI: bool> Sums<VNNI> {
    /// The sums of a row.
    #[inline]
    #[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
    fn joined(self) -> __m512i {
        _mm512_add_epi32(self.0[0], if VNNI { _mm512_slli_epi32::<7>(self.0[1]) } else { self.0[1] })
    }
}

#[allow(unused_unsafe)] // those of `emulated` need no instructions
impl<const VNNI: bool> sums::Sums for Sums<VNNI> {
    const ROWS: usize = TOGETHER;

    #[inline(always)]
    fn new(start: i32, half: bool) -> Self {
        // SAFETY: kernels with these sums run where the CPU has the instructions.
        unsafe {
            let all = _mm512_set1_epi32(start);
            Self([if half { _mm512_mask_set1_epi32(all, 0xff00, 0) } else { all }, _mm512_setzero_si512()])
        }
    }
    /// Minus 64 times the sum of the words, as they were before they were put in order.
    #[inline(always)]
    fn start(_: &Span, w: &[i16]) -> i32 {
        let bytes = |w: &[i16]| -> i32 { w.iter().flat_map(|w| w.to_le_bytes()).map(|b| i32::from(b as i8)).sum() };
        let total: i32 = if VNNI {
            w.as_chunks::<4>().0.iter().map(|w| bytes(&w[..2]) + 128 * bytes(&w[2..])).sum()
        } else {
            w.iter().map(|w| i32::from(*w)).sum()
        };
        -OFFSET * total
    }
    #[inline(always)]
    fn add<const R: usize, const BITS: usize, const STEP: usize>(
        span: &Span,
        tiles: &[u8],
        w: [&[i16]; R],
        sums: &mut [Self; R],
    ) {
        // SAFETY: likewise.
        unsafe { add_bits::<VNNI, R, BITS, STEP>(tables(span), tiles, w, sums) }
    }
    #[inline(always)]
    fn store(self, out: &mut [i32; 16]) {
        // SAFETY: likewise; sixteen numbers are written.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), self.joined()) };
    }
    #[inline(always)]
    fn store_half(self, out: &mut [i32; 8]) {
        // SAFETY: likewise; eight numbers are written.
        unsafe {
            let all = self.joined();
            let eight = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
            _mm256_storeu_si256(out.as_mut_ptr().cast::<__m256i>(), eight);
        }
    }
}

/// What sums start from. Those of two tiles: minus 64 times the sums of pairs of queries, as two words; with VNNI those of
/// the row, in the first number.
pub fn prepare<const VNNI: bool>(_: &Codec, q: &[i8], prepared: &mut [i32]) {
    if VNNI {
        prepared[0] = -OFFSET * q.iter().map(|q| i32::from(*q)).sum::<i32>();
        return;
    }
    for (q, start) in q.as_chunks::<8>().0.iter().zip(prepared) {
        let q = q.map(i32::from);
        let (low, high) = (q[0] + q[1] + q[4] + q[5], q[2] + q[3] + q[6] + q[7]);
        *start = ((-OFFSET * low) & 0xffff) | (-OFFSET * high) << 16;
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn keyscan<const VNNI: bool>(codec: &Codec, d: usize, tiles: &[u8], n: usize, q: Queries<'_>, out: &mut [i32]) {
    let rows = q.qi.chunks(TOGETHER * d).zip(q.prepared.chunks(TOGETHER * d / 8));
    for ((q, prepared), out) in rows.zip(out.chunks_mut(TOGETHER * n)) {
        for_rows!(q.len() / d, keyscan_rows::<VNNI>(codec, tiles, (q, prepared), out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan_rows<const VNNI: bool, const R: usize>(codec: &Codec, tiles: &[u8], q: (&[i8], &[i32]), out: &mut [i32]) {
    let (q, prepared): ([&[i8]; R], [&[i32]; R]) = (sums::rows(q.0), sums::rows(q.1));
    let starts = prepared.map(|prepared| if VNNI { prepared[0] } else { 0 });
    each_block::<Sums<false>, R>(codec, tiles, starts, out, |span, tiles, sums| {
        let starts = prepared.map(|prepared| &prepared[span.first / 8..(span.first + span.channels) / 8]);
        let q = sums::of_span(span, q);
        match span.bits {
            1 => keyscan_span::<VNNI, R, 1>(span, tiles, starts, q, sums),
            2 => keyscan_span::<VNNI, R, 2>(span, tiles, starts, q, sums),
            3 => keyscan_span::<VNNI, R, 3>(span, tiles, starts, q, sums),
            _ => keyscan_span::<VNNI, R, 4>(span, tiles, starts, q, sums),
        }
    });
}

/// Spans are multiples of 8 channels, two tiles.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan_span<const VNNI: bool, const R: usize, const BITS: usize>(
    span: &Span,
    tiles: &[u8],
    starts: [&[i32]; R],
    q: [&[i8]; R],
    sums: &mut [Sums<false>; R],
) {
    let (tables, ones) = (tables(span), _mm512_set1_epi16(1));
    let count = span.channels / 8;
    assert!(tiles.len() == 16 * BITS * count);
    assert!(q.iter().all(|q| q.len() == 8 * count) && starts.iter().all(|starts| starts.len() == count));
    let mut local = *sums;
    for (n, pair) in tiles.chunks_exact(16 * BITS).enumerate() {
        let (a, b) = (decode::<BITS>(pair, tables), decode::<BITS>(&pair[8 * BITS..], tables));
        for r in 0..R {
            // SAFETY: n < count: there are a start and two quads of queries.
            let (start, [qa, qb]) =
                unsafe { (*starts[r].get_unchecked(n), q[r].as_ptr().add(8 * n).cast::<[i32; 2]>().read_unaligned()) };
            let (qa, qb) = (_mm512_set1_epi32(qa), _mm512_set1_epi32(qb));
            if VNNI {
                local[r].0 = [dot(local[r].0[0], a, qa), dot(local[r].0[1], b, qb)];
                continue;
            }
            let words = _mm512_add_epi16(_mm512_set1_epi32(start), _mm512_maddubs_epi16(a, qa));
            let words = _mm512_add_epi16(words, _mm512_maddubs_epi16(b, qb));
            local[r].0[0] = _mm512_add_epi32(local[r].0[0], _mm512_madd_epi16(words, ones));
        }
    }
    *sums = local;
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn keyscan15<const VNNI: bool>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    sums::keyscan15::<Sums<VNNI>>(codec, d, tiles, tokens, q, out);
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn valuesum<const VNNI: bool>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    sums::valuesum::<Sums<VNNI>>(span, tiles, tokens, w, out);
}

/// A tile takes the next `STEP` quads of words, as AVX2 or, with VNNI, `planes` orders them: with two, one for each half of the lanes.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn add_bits<const VNNI: bool, const R: usize, const BITS: usize, const STEP: usize>(
    tables: Tables,
    tiles: &[u8],
    w: [&[i16]; R],
    sums: &mut [Sums<VNNI>; R],
) {
    let low = _mm512_set1_epi16(255);
    let mut local = *sums;
    let count = tiles.len() / (8 * BITS);
    assert!(w.iter().all(|w| w.len() >= 4 * STEP * count));
    for (n, tile) in tiles.chunks_exact(8 * BITS).enumerate() {
        let u = decode::<BITS>(tile, tables);
        let bytes = if VNNI { [u; 2] } else { [_mm512_and_si512(u, low), _mm512_srli_epi16::<8>(u)] };
        for (w, Sums(sums)) in w.iter().zip(&mut local) {
            let w = w.as_ptr().cast::<[i32; 2]>();
            // SAFETY: n < count, so that all four words of each quad are there.
            let (first, last) =
                unsafe { (w.add(STEP * n).read_unaligned(), w.add(STEP * n + STEP - 1).read_unaligned()) };
            for i in 0..2 {
                let mut words = _mm512_set1_epi32(first[i]);
                if STEP == 2 {
                    words = _mm512_mask_set1_epi32(words, 0xff00, last[i]);
                }
                sums[i] = if VNNI {
                    dot(sums[i], bytes[i], words)
                } else {
                    _mm512_add_epi32(sums[i], _mm512_madd_epi16(bytes[i], words))
                };
            }
        }
    }
    *sums = local;
}
