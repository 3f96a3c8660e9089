//! Integer dot products over tiles.
//!
//! Queries of 7 bits: bytes as centroid + 64 go unsigned into `vpmaddubsw`; the offset, 64 times the queries, is what
//! the sums of 16 bits of two tiles start from, which wrap, since what they end at fits (4 * 127 * 63 = 32004). Queries
//! and weights of 15 bits: even and odd bytes as words into `vpmaddwd`.

use super::super::{Queries, body};
use super::simd::*;
use super::tiles::{OFFSET, Tables, decode, tables};
use crate::codec::{Codec, Span};

/// Rows that share what is decoded.
const ROWS: usize = 4;

/// `f` with the number of rows as a constant.
macro_rules! for_rows {
    ($rows:expr, $f:ident($($arg:expr),*)) => {
        match $rows {
            1 => $f::<1>($($arg),*),
            2 => $f::<2>($($arg),*),
            3 => $f::<3>($($arg),*),
            _ => $f::<4>($($arg),*),
        }
    };
}

#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
fn store(sum: __m512i, out: &mut [i32]) {
    let out: &mut [i32; 16] = out.first_chunk_mut().expect("sixteen lanes");
    // SAFETY: sixteen numbers are written.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), sum) };
}

/// What the sums of two tiles start from: minus 64 times the sums of pairs of queries, as two words.
pub fn prepare(_: &Codec, q: &[i8], prepared: &mut [i32]) {
    for (q, start) in q.as_chunks::<8>().0.iter().zip(prepared) {
        let q = q.map(i32::from);
        let (low, high) = (q[0] + q[1] + q[4] + q[5], q[2] + q[3] + q[6] + q[7]);
        *start = ((-OFFSET * low) & 0xffff) | (-OFFSET * high) << 16;
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
    let prepared = q.prepared.chunks(ROWS * d / 8);
    for ((q, prepared), out) in q.qi.chunks(ROWS * d).zip(prepared).zip(out.chunks_mut(ROWS * tokens)) {
        for_rows!(q.len() / d, keyscan_rows(codec, d, tiles, tokens, q, prepared, out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan_rows<const R: usize>(
    codec: &Codec,
    d: usize,
    tiles: &[u8],
    tokens: usize,
    q: &[i8],
    prepared: &[i32],
    out: &mut [i32],
) {
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums = [_mm512_setzero_si512(); R];
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            let channels = span.first..span.first + span.channels;
            let of_rows: [&[i8]; R] = std::array::from_fn(|r| &q[r * d..][channels.clone()]);
            let starts: [&[i32]; R] =
                std::array::from_fn(|r| &prepared[r * d / 8..][channels.start / 8..channels.end / 8]);
            match span.bits {
                1 => keyscan_span::<R, 1>(span, tiles, starts, of_rows, &mut sums),
                2 => keyscan_span::<R, 2>(span, tiles, starts, of_rows, &mut sums),
                3 => keyscan_span::<R, 3>(span, tiles, starts, of_rows, &mut sums),
                _ => keyscan_span::<R, 4>(span, tiles, starts, of_rows, &mut sums),
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            store(sum, &mut out[r * tokens + 16 * block..]);
        }
    }
}

/// Spans are multiples of 8 channels, two tiles.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan_span<const R: usize, const BITS: usize>(
    span: &Span,
    tiles: &[u8],
    starts: [&[i32]; R],
    q: [&[i8]; R],
    sums: &mut [__m512i; R],
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
            let words = _mm512_add_epi16(_mm512_set1_epi32(start), _mm512_maddubs_epi16(a, _mm512_set1_epi32(qa)));
            let words = _mm512_add_epi16(words, _mm512_maddubs_epi16(b, _mm512_set1_epi32(qb)));
            local[r] = _mm512_add_epi32(local[r], _mm512_madd_epi16(words, ones));
        }
    }
    *sums = local;
}

/// Puts each four words in the order first, third, second, fourth: the words of two broadcasts.
fn pair(w: &mut [i16]) {
    w.as_chunks_mut::<4>().0.iter_mut().for_each(|w| w.swap(1, 2));
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2"))]
pub fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32 {
    let largest = body::weigh(p, scale, iw);
    pair(iw);
    largest
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2"))]
pub fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let scale = body::query15(q, step, qi);
    pair(qi);
    scale
}

/// Even and odd bytes of tiles times words, added up apart.
type Sums<const R: usize> = [[__m512i; 2]; R];

/// Sums that start from minus 64 times the sum of each row's words.
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
fn start<const R: usize>(w: [&[i16]; R]) -> Sums<R> {
    let mut sums = [[_mm512_setzero_si512(); 2]; R];
    for (sums, w) in sums.iter_mut().zip(w) {
        sums[0] = _mm512_set1_epi32(-OFFSET * w.iter().map(|w| i32::from(*w)).sum::<i32>());
    }
    sums
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn keyscan15(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    for (q, out) in q.chunks(ROWS * d).zip(out.chunks_mut(ROWS * tokens)) {
        for_rows!(q.len() / d, keyscan15_rows(codec, d, tiles, tokens, q, out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan15_rows<const R: usize>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    let rows: [&[i16]; R] = std::array::from_fn(|r| &q[r * d..(r + 1) * d]);
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums = start(rows);
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            let w: [&[i16]; R] = std::array::from_fn(|r| &rows[r][span.first..span.first + span.channels]);
            add_tiles(span, tiles, false, w, &mut sums);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            store(_mm512_add_epi32(sums[0], sums[1]), &mut out[r * tokens + 16 * block..]);
        }
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(ROWS * tokens).zip(out.chunks_mut(ROWS * span.channels)) {
        for_rows!(w.len() / tokens, valuesum_rows(span, tiles, tokens, w, out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn valuesum_rows<const R: usize>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    let w: [&[i16]; R] = std::array::from_fn(|r| &w[r * tokens..(r + 1) * tokens]);
    let start = start(w);
    let mut rest = tiles;
    for channel in (0..span.channels).step_by(16) {
        let width = (span.channels - channel).min(16);
        let (group, after) = rest.split_at(tokens * width * span.bits / 8);
        rest = after;
        let mut sums = start;
        if width == 8 {
            // The upper lanes are added to the lower, and the start is to count once.
            sums.iter_mut().for_each(|sums| sums[0] = _mm512_mask_set1_epi32(sums[0], 0xff00, 0));
        }
        add_tiles(span, group, width == 8, w, &mut sums);
        for (r, sums) in sums.into_iter().enumerate() {
            let out = &mut out[r * span.channels + channel..];
            if width == 16 {
                store(_mm512_add_epi32(sums[0], sums[1]), out);
            } else {
                store_eight(sums, out);
            }
        }
    }
}

/// Of a group of eight channels: the upper lanes are the same ones, of other tokens.
#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn store_eight(sums: [__m512i; 2], out: &mut [i32]) {
    let all = _mm512_add_epi32(sums[0], sums[1]);
    let eight = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let out: &mut [i32; 8] = out.first_chunk_mut().expect("eight channels");
    // SAFETY: eight numbers are written.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast::<__m256i>(), eight) };
}

#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn add_tiles<const R: usize>(span: &Span, tiles: &[u8], half: bool, w: [&[i16]; R], sums: &mut Sums<R>) {
    let tables = tables(span);
    match (span.bits, half) {
        (2, false) => add_bits::<R, 2, 1>(tables, tiles, w, sums),
        (2, true) => add_bits::<R, 2, 2>(tables, tiles, w, sums),
        (3, false) => add_bits::<R, 3, 1>(tables, tiles, w, sums),
        (3, true) => add_bits::<R, 3, 2>(tables, tiles, w, sums),
        (4, false) => add_bits::<R, 4, 1>(tables, tiles, w, sums),
        (4, true) => add_bits::<R, 4, 2>(tables, tiles, w, sums),
        _ => unreachable!("codes of 15-bit queries and of values have 2 to 4 bits"),
    }
}

/// A tile takes the next `STEP` quads of words, as `pair` orders them: with two, one for each half of the lanes.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn add_bits<const R: usize, const BITS: usize, const STEP: usize>(
    tables: Tables,
    tiles: &[u8],
    w: [&[i16]; R],
    sums: &mut Sums<R>,
) {
    let low = _mm512_set1_epi16(255);
    let mut local = *sums;
    let count = tiles.len() / (8 * BITS);
    assert!(w.iter().all(|w| w.len() >= 4 * STEP * count));
    for (n, tile) in tiles.chunks_exact(8 * BITS).enumerate() {
        let u = decode::<BITS>(tile, tables);
        let bytes = [_mm512_and_si512(u, low), _mm512_srli_epi16::<8>(u)];
        for (w, sums) in w.iter().zip(&mut local) {
            let w = w.as_ptr().cast::<[i32; 2]>();
            // SAFETY: n < count, so that all four words of each quad are there.
            let (first, last) =
                unsafe { (w.add(STEP * n).read_unaligned(), w.add(STEP * n + STEP - 1).read_unaligned()) };
            for i in 0..2 {
                let mut words = _mm512_set1_epi32(first[i]);
                if STEP == 2 {
                    words = _mm512_mask_set1_epi32(words, 0xff00, last[i]);
                }
                sums[i] = _mm512_add_epi32(sums[i], _mm512_madd_epi16(bytes[i], words));
            }
        }
    }
    *sums = local;
}
