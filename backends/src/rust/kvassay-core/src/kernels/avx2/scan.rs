//! Integer dot products over tiles.
//!
//! Codes become bytes without sign, as how much what they stand for is above what code 0 does; what that leaves out, a
//! product with the sum of the multipliers, is what sums start from. Multipliers of 7 bits go into `vpmaddubsw`
//! (`seven`), those of 15 bits, with even and odd bytes as words, into `vpmaddwd`.

use std::arch::x86_64::*;

use super::super::{TOGETHER, sums};
use super::registers::get_bytes;
use super::tiles::{MASKS, decode, opaque, table};
use crate::codec::{Codec, Span};

/// Rows that share what is decoded.
pub const ROWS: usize = TOGETHER;
/// Lanes 0 to 7 and 8 to 15 of each row.
pub type Sums<const R: usize> = [[__m256i; 2]; R];

impl sums::Sums for [__m256i; 2] {
    const ROWS: usize = ROWS;

    #[inline(always)]
    fn new(start: i32, half: bool) -> Self {
        // SAFETY: kernels with these sums run where the CPU has the instructions.
        unsafe { [_mm256_set1_epi32(start), _mm256_set1_epi32(if half { 0 } else { start })] }
    }
    #[inline(always)]
    fn start(span: &Span, w: &[i16]) -> i32 {
        if span.table[0] == 0 {
            return 0;
        }
        let mut sums = [0; 8];
        for w in w.as_chunks::<8>().0 {
            for i in 0..8 {
                sums[i] += i32::from(w[i]);
            }
        }
        i32::from(span.table[0]) * sums.iter().sum::<i32>()
    }
    #[inline(always)]
    fn add<const R: usize, const BITS: usize, const STEP: usize>(
        span: &Span,
        tiles: &[u8],
        w: [&[i16]; R],
        sums: &mut Sums<R>,
    ) {
        // SAFETY: likewise.
        unsafe { add_bits::<R, BITS, STEP>(span, tiles, w, sums) }
    }
    #[inline(always)]
    fn store(self, out: &mut [i32; 16]) {
        // SAFETY: likewise; two times eight numbers are written.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), self[0]);
            _mm256_storeu_si256(out[8..].as_mut_ptr().cast(), self[1]);
        }
    }
    #[inline(always)]
    fn store_half(self, out: &mut [i32; 8]) {
        // SAFETY: likewise; eight numbers are written.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_add_epi32(self[0], self[1])) };
    }
}

#[target_feature(enable = "avx2")]
pub fn keyscan15(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    sums::keyscan15::<[__m256i; 2]>(codec, d, tiles, tokens, q, out);
}

#[target_feature(enable = "avx2")]
pub fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    sums::valuesum::<[__m256i; 2]>(span, tiles, tokens, w, out);
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
