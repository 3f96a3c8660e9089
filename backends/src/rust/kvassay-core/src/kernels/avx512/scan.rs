//! Integer dot products over tiles.
//!
//! With VNNI, bytes as centroid + 64 go unsigned into `vpdpbusd`, those of 15 bits as two planes of multipliers whose
//! sums stay apart until the end; sums start from minus 64 times the multipliers.
//!
//! Without it, queries of 7 bits go into `vpmaddubsw`: the sums of 16 bits of two tiles start from the offset and wrap,
//! since what they end at fits (4 * 127 * 63 = 32004). For queries and weights of 15 bits even and odd bytes go as words
//! into `vpmaddwd`.

use super::super::{Queries, body};
use super::simd::*;
use super::tiles::{OFFSET, Tables, decode, dot, tables};
use crate::codec::{Codec, Span};

/// Rows that share what is decoded.
const ROWS: usize = 4;

/// `f` with the number of rows as a constant.
macro_rules! for_rows {
    ($vnni:ident, $rows:expr, $f:ident($($arg:expr),*)) => {
        match $rows {
            1 => $f::<$vnni, 1>($($arg),*),
            2 => $f::<$vnni, 2>($($arg),*),
            3 => $f::<$vnni, 3>($($arg),*),
            _ => $f::<$vnni, 4>($($arg),*),
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

/// Two sums a row: what two tiles, two planes or even and odd bytes give.
type Sums<const R: usize> = [[__m512i; 2]; R];

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
pub fn keyscan<const VNNI: bool>(
    codec: &Codec,
    d: usize,
    tiles: &[u8],
    tokens: usize,
    q: Queries<'_>,
    out: &mut [i32],
) {
    let prepared = q.prepared.chunks(ROWS * d / 8);
    for ((q, prepared), out) in q.qi.chunks(ROWS * d).zip(prepared).zip(out.chunks_mut(ROWS * tokens)) {
        for_rows!(VNNI, q.len() / d, keyscan_rows(codec, d, tiles, tokens, q, prepared, out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan_rows<const VNNI: bool, const R: usize>(
    codec: &Codec,
    d: usize,
    tiles: &[u8],
    tokens: usize,
    q: &[i8],
    prepared: &[i32],
    out: &mut [i32],
) {
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums = [[_mm512_setzero_si512(); 2]; R];
        if VNNI {
            for (sums, prepared) in sums.iter_mut().zip(prepared.chunks(d / 8)) {
                sums[0] = _mm512_set1_epi32(prepared[0]);
            }
        }
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            let channels = span.first..span.first + span.channels;
            let of_rows: [&[i8]; R] = std::array::from_fn(|r| &q[r * d..][channels.clone()]);
            let starts: [&[i32]; R] =
                std::array::from_fn(|r| &prepared[r * d / 8..][channels.start / 8..channels.end / 8]);
            match span.bits {
                1 => keyscan_span::<VNNI, R, 1>(span, tiles, starts, of_rows, &mut sums),
                2 => keyscan_span::<VNNI, R, 2>(span, tiles, starts, of_rows, &mut sums),
                3 => keyscan_span::<VNNI, R, 3>(span, tiles, starts, of_rows, &mut sums),
                _ => keyscan_span::<VNNI, R, 4>(span, tiles, starts, of_rows, &mut sums),
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            store(_mm512_add_epi32(sums[0], sums[1]), &mut out[r * tokens + 16 * block..]);
        }
    }
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
    sums: &mut Sums<R>,
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
                local[r] = [dot(local[r][0], a, qa), dot(local[r][1], b, qb)];
                continue;
            }
            let words = _mm512_add_epi16(_mm512_set1_epi32(start), _mm512_maddubs_epi16(a, qa));
            let words = _mm512_add_epi16(words, _mm512_maddubs_epi16(b, qb));
            local[r][0] = _mm512_add_epi32(local[r][0], _mm512_madd_epi16(words, ones));
        }
    }
    *sums = local;
}

/// Makes two broadcasts of each four words: the first and third, the second and fourth; with VNNI two planes of bytes,
/// w = 128 * second + first with first in 0 .. 127 and second within -127 .. 127.
fn pair<const VNNI: bool>(w: &mut [i16]) {
    for w in w.as_chunks_mut::<4>().0 {
        if VNNI {
            let (first, second) = (w.map(|w| (w & 127) as u8), w.map(|w| (w >> 7) as u8));
            let word = |plane: [u8; 4], i: usize| i16::from_le_bytes([plane[i], plane[i + 1]]);
            *w = [word(first, 0), word(first, 2), word(second, 0), word(second, 2)];
        } else {
            w.swap(1, 2);
        }
    }
}

/// The sum of words as `pair` left them.
fn total<const VNNI: bool>(w: &[i16]) -> i32 {
    let bytes = |w: &[i16]| -> i32 { w.iter().flat_map(|w| w.to_le_bytes()).map(|b| i32::from(b as i8)).sum() };
    if VNNI {
        w.as_chunks::<4>().0.iter().map(|w| bytes(&w[..2]) + 128 * bytes(&w[2..])).sum()
    } else {
        w.iter().map(|w| i32::from(*w)).sum()
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2"))]
pub fn weigh<const VNNI: bool>(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32 {
    let largest = body::weigh(p, scale, iw);
    pair::<VNNI>(iw);
    largest
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2"))]
pub fn query15<const VNNI: bool>(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let scale = body::query15(q, step, qi);
    pair::<VNNI>(qi);
    scale
}

/// Sums that start from minus 64 times the sum of each row's words.
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
fn start<const VNNI: bool, const R: usize>(w: [&[i16]; R]) -> Sums<R> {
    let mut sums = [[_mm512_setzero_si512(); 2]; R];
    for (sums, w) in sums.iter_mut().zip(w) {
        sums[0] = _mm512_set1_epi32(-OFFSET * total::<VNNI>(w));
    }
    sums
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn keyscan15<const VNNI: bool>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    for (q, out) in q.chunks(ROWS * d).zip(out.chunks_mut(ROWS * tokens)) {
        for_rows!(VNNI, q.len() / d, keyscan15_rows(codec, d, tiles, tokens, q, out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn keyscan15_rows<const VNNI: bool, const R: usize>(
    codec: &Codec,
    d: usize,
    tiles: &[u8],
    tokens: usize,
    q: &[i16],
    out: &mut [i32],
) {
    let rows: [&[i16]; R] = std::array::from_fn(|r| &q[r * d..(r + 1) * d]);
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums = start::<VNNI, R>(rows);
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            let w: [&[i16]; R] = std::array::from_fn(|r| &rows[r][span.first..span.first + span.channels]);
            add_tiles::<VNNI, R>(span, tiles, false, w, &mut sums);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            store(joined::<VNNI>(sums), &mut out[r * tokens + 16 * block..]);
        }
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn valuesum<const VNNI: bool>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(ROWS * tokens).zip(out.chunks_mut(ROWS * span.channels)) {
        for_rows!(VNNI, w.len() / tokens, valuesum_rows(span, tiles, tokens, w, out));
    }
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn valuesum_rows<const VNNI: bool, const R: usize>(
    span: &Span,
    tiles: &[u8],
    tokens: usize,
    w: &[i16],
    out: &mut [i32],
) {
    let w: [&[i16]; R] = std::array::from_fn(|r| &w[r * tokens..(r + 1) * tokens]);
    let start = start::<VNNI, R>(w);
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
        add_tiles::<VNNI, R>(span, group, width == 8, w, &mut sums);
        for (r, sums) in sums.into_iter().enumerate() {
            let out = &mut out[r * span.channels + channel..];
            if width == 16 {
                store(joined::<VNNI>(sums), out);
            } else {
                store_eight(joined::<VNNI>(sums), out);
            }
        }
    }
}

/// The sums of a row.
#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
fn joined<const VNNI: bool>(sums: [__m512i; 2]) -> __m512i {
    _mm512_add_epi32(sums[0], if VNNI { _mm512_slli_epi32::<7>(sums[1]) } else { sums[1] })
}

/// Of a group of eight channels: the upper lanes are the same ones, of other tokens.
#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn store_eight(all: __m512i, out: &mut [i32]) {
    let eight = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let out: &mut [i32; 8] = out.first_chunk_mut().expect("eight channels");
    // SAFETY: eight numbers are written.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast::<__m256i>(), eight) };
}

#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn add_tiles<const VNNI: bool, const R: usize>(
    span: &Span,
    tiles: &[u8],
    half: bool,
    w: [&[i16]; R],
    sums: &mut Sums<R>,
) {
    let tables = tables(span);
    match (span.bits, half) {
        (2, false) => add_bits::<VNNI, R, 2, 1>(tables, tiles, w, sums),
        (2, true) => add_bits::<VNNI, R, 2, 2>(tables, tiles, w, sums),
        (3, false) => add_bits::<VNNI, R, 3, 1>(tables, tiles, w, sums),
        (3, true) => add_bits::<VNNI, R, 3, 2>(tables, tiles, w, sums),
        (4, false) => add_bits::<VNNI, R, 4, 1>(tables, tiles, w, sums),
        (4, true) => add_bits::<VNNI, R, 4, 2>(tables, tiles, w, sums),
        _ => unreachable!("codes of 15-bit queries and of values have 2 to 4 bits"),
    }
}

/// A tile takes the next `STEP` quads of words, as `pair` orders them: with two, one for each half of the lanes.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
fn add_bits<const VNNI: bool, const R: usize, const BITS: usize, const STEP: usize>(
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
        let bytes = if VNNI { [u; 2] } else { [_mm512_and_si512(u, low), _mm512_srli_epi16::<8>(u)] };
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
