//! Integer dot products over tiles.
//!
//! Queries of 7 bits: bytes as centroid + 64 go unsigned into `vpmaddubsw`; the offset, 64 times the sum of the
//! queries, is what the sums of 16 bits start from, which wrap, since what they end at fits. As many tiles share those as
//! cannot overflow. Queries and weights of 15 bits: even and odd bytes as words into `vpmaddwd`.

use std::arch::x86_64::*;

use super::super::{Queries, body};
use super::tiles::{decode, table};
use crate::codec::{Codec, Span};

const OFFSET: i32 = 64;
/// Rows that share what is decoded.
const ROWS: usize = 4;
type Sums<const R: usize> = [[__m256i; 2]; R];

/// `f` with the number of rows and bits as constants.
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

#[target_feature(enable = "avx2")]
fn store(sums: [__m256i; 2], out: &mut [i32]) {
    let out: &mut [i32; 16] = out.first_chunk_mut().expect("sixteen lanes");
    // SAFETY: two times eight numbers are written.
    unsafe {
        _mm256_storeu_si256(out.as_mut_ptr().cast(), sums[0]);
        _mm256_storeu_si256(out[8..].as_mut_ptr().cast(), sums[1]);
    }
}

/// Tiles whose sums of pairs fit in 16 bits.
fn window(span: &Span) -> usize {
    match 32767 / (2 * 127 * span.largest()) {
        8.. => 8,
        4..8 => 4,
        _ => 2,
    }
}

/// What the sums of a window start from: minus 64 times the sums of pairs of queries, as two words. One a window.
pub fn prepare(codec: &Codec, q: &[i8], prepared: &mut [i32]) {
    let mut starts = prepared.iter_mut();
    for span in codec.spans() {
        for (q, start) in q[span.first..span.first + span.channels].chunks(4 * window(span)).zip(&mut starts) {
            let pair = |s: usize| -> i32 {
                q.as_chunks::<4>().0.iter().map(|q| i32::from(q[s]) + i32::from(q[s + 1])).sum::<i32>() * -OFFSET
            };
            *start = pair(0) & 0xffff | pair(2) << 16;
        }
    }
}

#[target_feature(enable = "avx2")]
pub fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
    let prepared = q.prepared.chunks(ROWS * d / 8);
    for ((q, prepared), out) in q.qi.chunks(ROWS * d).zip(prepared).zip(out.chunks_mut(ROWS * tokens)) {
        for_rows!(q.len() / d, keyscan_rows(codec, d, tiles, tokens, q, prepared, out));
    }
}

#[target_feature(enable = "avx2")]
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
        let mut sums: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        let (mut rest, mut windows) = (tiles, 0);
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            let (mut of_rows, mut starts) = ([&q[..0]; R], [&prepared[..0]; R]);
            for (r, (q, prepared)) in q.chunks_exact(d).zip(prepared.chunks_exact(d / 8)).enumerate() {
                of_rows[r] = &q[span.first..span.first + span.channels];
                starts[r] = &prepared[windows..];
            }
            match (span.bits, window(span)) {
                (1, _) => keyscan_span::<R, 1, 8>(span, tiles, starts, of_rows, &mut sums),
                (2, 4) => keyscan_span::<R, 2, 4>(span, tiles, starts, of_rows, &mut sums),
                (2, _) => keyscan_span::<R, 2, 8>(span, tiles, starts, of_rows, &mut sums),
                (3, _) => keyscan_span::<R, 3, 2>(span, tiles, starts, of_rows, &mut sums),
                _ => keyscan_span::<R, 4, 2>(span, tiles, starts, of_rows, &mut sums),
            }
            windows += (span.channels / 4).div_ceil(window(span));
        }
        for (r, sums) in sums.into_iter().enumerate() {
            store(sums, &mut out[r * tokens + 16 * block..]);
        }
    }
}

#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[target_feature(enable = "avx2")]
fn keyscan_span<const R: usize, const BITS: usize, const WINDOW: usize>(
    span: &Span,
    tiles: &[u8],
    starts: [&[i32]; R],
    q: [&[i8]; R],
    sums: &mut Sums<R>,
) {
    let table = table(span, OFFSET as i8);
    let ones = _mm256_set1_epi16(1);
    let count = span.channels / 4;
    assert!(tiles.len() == 8 * BITS * count && q.iter().all(|q| q.len() == 4 * count));
    assert!(starts.iter().all(|starts| starts.len() >= count.div_ceil(WINDOW)));
    let mut local = *sums;
    for w in 0..count.div_ceil(WINDOW) {
        let mut words: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        for (r, words) in words.iter_mut().enumerate() {
            // SAFETY: there is a start for each window.
            *words = [_mm256_set1_epi32(unsafe { *starts[r].get_unchecked(w) }); 2];
        }
        let (from, to) = (w * WINDOW, (w * WINDOW + WINDOW).min(count));
        if to - from == WINDOW {
            for i in 0..WINDOW {
                // SAFETY: from + i < count.
                unsafe { step::<R, BITS>(table, tiles, q, from + i, &mut words) };
            }
        } else {
            for n in from..to {
                // SAFETY: n < count.
                unsafe { step::<R, BITS>(table, tiles, q, n, &mut words) };
            }
        }
        for (sums, words) in local.iter_mut().zip(words) {
            sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(words[0], ones));
            sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(words[1], ones));
        }
    }
    *sums = local;
}

/// Adds tile n to the words of every row.
///
/// # Safety
/// There are more than n tiles, and as many quads of queries in each row.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn step<const R: usize, const BITS: usize>(
    table: __m256i,
    tiles: &[u8],
    q: [&[i8]; R],
    n: usize,
    words: &mut Sums<R>,
) {
    // SAFETY: the caller's promise.
    let x = decode::<BITS>(unsafe { tiles.get_unchecked(8 * BITS * n..8 * BITS * (n + 1)) }, table);
    for (q, words) in q.iter().zip(words) {
        // SAFETY: likewise.
        let quad = _mm256_set1_epi32(unsafe { q.as_ptr().add(4 * n).cast::<i32>().read_unaligned() });
        words[0] = _mm256_add_epi16(words[0], _mm256_maddubs_epi16(x[0], quad));
        words[1] = _mm256_add_epi16(words[1], _mm256_maddubs_epi16(x[1], quad));
    }
}

/// Puts each four words in the order first, third, second, fourth: the words of two broadcasts.
#[target_feature(enable = "avx2")]
pub fn pair(w: &mut [i16]) {
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for w in w.as_chunks_mut::<16>().0 {
        // SAFETY: 32 bytes are read and written.
        unsafe {
            let words = _mm256_loadu_si256(w.as_ptr().cast());
            _mm256_storeu_si256(w.as_mut_ptr().cast(), _mm256_shuffle_epi8(words, order));
        }
    }
}

#[target_feature(enable = "avx2")]
pub fn keyscan15(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    for (q, out) in q.chunks(ROWS * d).zip(out.chunks_mut(ROWS * tokens)) {
        for_rows!(q.len() / d, keyscan15_rows(codec, d, tiles, tokens, q, out));
    }
}

#[target_feature(enable = "avx2")]
fn keyscan15_rows<const R: usize>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            let mut w = [&q[..0]; R];
            for (w, q) in w.iter_mut().zip(q.chunks_exact(d)) {
                *w = &q[span.first..span.first + span.channels];
            }
            add_tiles::<R>(span, 0, tiles, false, w, &mut sums);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            store(sums, &mut out[r * tokens + 16 * block..]);
        }
    }
}

#[target_feature(enable = "avx2")]
pub fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(ROWS * tokens).zip(out.chunks_mut(ROWS * span.channels)) {
        for_rows!(w.len() / tokens, valuesum_rows(span, tiles, tokens, w, out));
    }
}

/// What the sums of each row start from: minus 64 times the sum of its weights.
#[target_feature(enable = "avx2")]
fn sums_of<const R: usize>(w: [&[i16]; R]) -> [i32; R] {
    let mut starts = [0; R];
    for (start, w) in starts.iter_mut().zip(w) {
        for w in w {
            *start -= OFFSET * i32::from(*w);
        }
    }
    starts
}

#[target_feature(enable = "avx2")]
fn valuesum_rows<const R: usize>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    let mut of_rows = [&w[..0]; R];
    for (of_row, w) in of_rows.iter_mut().zip(w.chunks_exact(tokens)) {
        *of_row = w;
    }
    let w = of_rows;
    let start = sums_of(w);
    let mut rest = tiles;
    let mut channel = 0;
    while channel < span.channels {
        let half = span.channels - channel < 16;
        let width = if half { 8 } else { 16 };
        let (group, after) = rest.split_at(tokens * width * span.bits / 8);
        rest = after;
        // Of a group of eight channels the second register adds to the first.
        let mut sums: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        for (sums, start) in sums.iter_mut().zip(start) {
            *sums = [_mm256_set1_epi32(start), _mm256_set1_epi32(if half { 0 } else { start })];
        }
        add_tiles::<R>(span, OFFSET as i8, group, half, w, &mut sums);
        for (r, sums) in sums.into_iter().enumerate() {
            let out = &mut out[r * span.channels + channel..];
            if half {
                let sum = _mm256_add_epi32(sums[0], sums[1]);
                let out: &mut [i32; 8] = out.first_chunk_mut().expect("eight channels");
                // SAFETY: eight numbers are written.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), sum) };
            } else {
                store(sums, out);
            }
        }
        channel += width;
    }
}

#[target_feature(enable = "avx2")]
fn add_tiles<const R: usize>(span: &Span, offset: i8, tiles: &[u8], half: bool, w: [&[i16]; R], sums: &mut Sums<R>) {
    let table = table(span, offset);
    match (span.bits, half) {
        (2, false) => add_bits::<R, 2, 1>(table, tiles, w, sums),
        (2, true) => add_bits::<R, 2, 2>(table, tiles, w, sums),
        (3, false) => add_bits::<R, 3, 1>(table, tiles, w, sums),
        (3, true) => add_bits::<R, 3, 2>(table, tiles, w, sums),
        (4, false) => add_bits::<R, 4, 1>(table, tiles, w, sums),
        (4, true) => add_bits::<R, 4, 2>(table, tiles, w, sums),
        _ => unreachable!("codes of 15-bit queries and of values have 2 to 4 bits"),
    }
}

/// A tile takes the next `STEP` quads of words, as `pair` orders them: with two, one for each register.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[target_feature(enable = "avx2")]
fn add_bits<const R: usize, const BITS: usize, const STEP: usize>(
    table: __m256i,
    tiles: &[u8],
    w: [&[i16]; R],
    sums: &mut Sums<R>,
) {
    let low = _mm256_set1_epi16(255);
    let mut local = *sums;
    let count = tiles.len() / (8 * BITS);
    assert!(w.iter().all(|w| w.len() >= 4 * STEP * count));
    for (n, tile) in tiles.chunks_exact(8 * BITS).enumerate() {
        let x = decode::<BITS>(tile, table);
        let even = [_mm256_and_si256(x[0], low), _mm256_and_si256(x[1], low)];
        let odd = [_mm256_srli_epi16(x[0], 8), _mm256_srli_epi16(x[1], 8)];
        for (w, sums) in w.iter().zip(&mut local) {
            for i in 0..2 {
                let quad = STEP * n + i * (STEP - 1);
                // SAFETY: n < count, so that all four words of the quad are there.
                let [first, second] = unsafe { w.as_ptr().add(4 * quad).cast::<[i32; 2]>().read_unaligned() };
                sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(even[i], _mm256_set1_epi32(first)));
                sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(odd[i], _mm256_set1_epi32(second)));
            }
        }
    }
    *sums = local;
}

#[target_feature(enable = "avx2")]
pub fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32 {
    let largest = body::weigh(p, scale, iw);
    pair(iw);
    largest
}

#[target_feature(enable = "avx2")]
pub fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let scale = body::query15(q, step, qi);
    pair(qi);
    scale
}

/// Asks for bytes that are read soon, into the second-level cache.
#[target_feature(enable = "avx2")]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
    }
}
