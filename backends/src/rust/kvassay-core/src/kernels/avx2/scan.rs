//! Integer dot products over tiles.
//!
//! Codes become bytes without sign, as how much what they stand for is above what code 0 does; what that leaves out, a
//! product with the sum of the multipliers, is what sums start from. Multipliers of 7 bits go into `vpmaddubsw`
//! (`seven`), those of 15 bits, with even and odd bytes as words, into `vpmaddwd`.

use std::arch::x86_64::*;

use super::super::{TOGETHER, body};
use super::registers::get_bytes;
use super::tiles::{MASKS, decode, opaque, table};
use crate::codec::{Codec, Span};

/// Rows that share what is decoded.
pub const ROWS: usize = TOGETHER;
/// Lanes 0 to 7 and 8 to 15 of each row.
pub type Sums<const R: usize> = [[__m256i; 2]; R];

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
#[target_feature(enable = "avx2")]
pub fn store(sums: [__m256i; 2], out: &mut [i32]) {
    let out: &mut [i32; 16] = out.first_chunk_mut().expect("sixteen lanes");
    // SAFETY: two times eight numbers are written.
    unsafe {
        _mm256_storeu_si256(out.as_mut_ptr().cast(), sums[0]);
        _mm256_storeu_si256(out[8..].as_mut_ptr().cast(), sums[1]);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load(sums: &[i32]) -> [__m256i; 2] {
    let sums: &[i32; 16] = sums.first_chunk().expect("sixteen lanes");
    // SAFETY: two times eight numbers are read.
    unsafe { [_mm256_loadu_si256(sums.as_ptr().cast()), _mm256_loadu_si256(sums[8..].as_ptr().cast())] }
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
    let mut start = [0; R];
    for span in codec.spans() {
        for (start, more) in start.iter_mut().zip(starts(span, of_span::<R>(span, d, q))) {
            *start += more;
        }
    }
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        for (sums, start) in sums.iter_mut().zip(start) {
            *sums = [_mm256_set1_epi32(start); 2];
        }
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            add_tiles::<R>(span, tiles, false, of_span(span, d, q), &mut sums);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            store(sums, &mut out[r * tokens + 16 * block..]);
        }
    }
}

/// A span's part of each row.
#[inline]
fn of_span<'a, const R: usize>(span: &Span, d: usize, q: &'a [i16]) -> [&'a [i16]; R] {
    let mut rows = [&q[..0]; R];
    for (row, q) in rows.iter_mut().zip(q.chunks_exact(d)) {
        *row = &q[span.first..span.first + span.channels];
    }
    rows
}

#[target_feature(enable = "avx2")]
pub fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(ROWS * tokens).zip(out.chunks_mut(ROWS * span.channels)) {
        for_rows!(w.len() / tokens, valuesum_rows(span, tiles, tokens, w, out));
    }
}

/// What the sums of each row start from.
#[inline]
#[target_feature(enable = "avx2")]
fn starts<const R: usize>(span: &Span, w: [&[i16]; R]) -> [i32; R] {
    let mut starts = [0; R];
    if span.table[0] == 0 {
        return starts;
    }
    for (start, w) in starts.iter_mut().zip(w) {
        let mut sums = [0; 8];
        for w in w.as_chunks::<8>().0 {
            for i in 0..8 {
                sums[i] += i32::from(w[i]);
            }
        }
        *start = i32::from(span.table[0]) * sums.iter().sum::<i32>();
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
    let start = starts(span, w);
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
        add_tiles::<R>(span, group, half, w, &mut sums);
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
fn add_tiles<const R: usize>(span: &Span, tiles: &[u8], half: bool, w: [&[i16]; R], sums: &mut Sums<R>) {
    match (span.bits, half) {
        (2, false) => add_bits::<R, 2, 1>(span, tiles, w, sums),
        (2, true) => add_bits::<R, 2, 2>(span, tiles, w, sums),
        (3, false) => add_bits::<R, 3, 1>(span, tiles, w, sums),
        (3, true) => add_bits::<R, 3, 2>(span, tiles, w, sums),
        (4, false) => add_bits::<R, 4, 1>(span, tiles, w, sums),
        (4, true) => add_bits::<R, 4, 2>(span, tiles, w, sums),
        _ => unreachable!("codes of 15-bit queries and of values have 2 to 4 bits"),
    }
}

/// A tile takes the next `STEP` quads of words, as `pair` orders them: with two, one for each register.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[target_feature(enable = "avx2")]
fn add_bits<const R: usize, const BITS: usize, const STEP: usize>(
    span: &Span,
    tiles: &[u8],
    w: [&[i16]; R],
    sums: &mut Sums<R>,
) {
    let table = table::<BITS>(span);
    let mut local = *sums;
    let tiles = tiles.chunks_exact(8 * BITS);
    let count = tiles.len();
    assert!(w.iter().all(|w| w.len() >= 4 * STEP * count));
    for (n, tile) in tiles.enumerate() {
        // SAFETY: n < count, so that the words are there.
        unsafe { add_tile::<R, STEP>(decode::<BITS>(tile, table), n, &w, &mut local) };
    }
    *sums = local;
}

/// Adds tile n, decoded.
///
/// # Safety
/// Each row has all words that the tile takes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_tile<const R: usize, const STEP: usize>(x: [__m256i; 2], n: usize, w: &[&[i16]; R], sums: &mut Sums<R>) {
    // The products of even bytes first, so that few registers are in use at once.
    let low = get_bytes(&opaque(&MASKS).low_byte);
    let even = [_mm256_and_si256(x[0], low), _mm256_and_si256(x[1], low)];
    for (w, sums) in w.iter().zip(&mut *sums) {
        for i in 0..2 {
            // SAFETY: the caller's promise; of two quads the second is that of the upper register.
            let pair = unsafe { w.as_ptr().add(4 * (STEP * n + i * (STEP - 1))).cast::<i32>().read_unaligned() };
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(even[i], _mm256_set1_epi32(pair)));
        }
    }
    let odd = [_mm256_srli_epi16::<8>(x[0]), _mm256_srli_epi16::<8>(x[1])];
    for (w, sums) in w.iter().zip(sums) {
        for i in 0..2 {
            // SAFETY: likewise.
            let pair = unsafe { w.as_ptr().add(4 * (STEP * n + i * (STEP - 1)) + 2).cast::<i32>().read_unaligned() };
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(odd[i], _mm256_set1_epi32(pair)));
        }
    }
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
    if let Some(last) = bytes.last() {
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(last).cast());
    }
}
