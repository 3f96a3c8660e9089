//! Codes and scales of transformed tokens, a token a lane.

use std::arch::x86_64::*;

use super::lanes::Lane;
use super::registers::{get, magnitude, put, put_bytes};
use crate::codec::{Codec, Span};

/// Four channels of eight tokens: `[two fours of tokens][4 channels][4 tokens]`.
pub type Quad = [u8; 32];

/// Thresholds and centroids of a span. The seven thresholds of four bits are sorted into bins of 0.3 sigma, the last
/// without end, none of which has two: `below` counts those before a bin, `next` is the one after.
#[derive(Clone, Copy)]
pub struct Book {
    few: [f32; 3],
    next: __m256,
    below: __m256i,
    /// By how many thresholds a magnitude reaches.
    centroids: __m256,
}

const BIN: f32 = 0.3;

#[target_feature(enable = "avx2")]
pub fn book(span: &Span) -> Book {
    let half = 1 << (span.bits - 1);
    let (mut next, mut below, mut centroids) = ([0.0; 8], [0i32; 8], [0.0; 8]);
    for (centroid, entry) in centroids.iter_mut().zip(&span.table[half..2 * half]) {
        *centroid = f32::from(*entry);
    }
    for bin in 0..8 {
        let count = span.thresholds[..6].iter().filter(|t| **t < BIN * bin as f32).count();
        (next[bin], below[bin]) = (span.thresholds[count], count as i32);
    }
    let few = [span.thresholds[0], span.thresholds[1], span.thresholds[2]];
    // SAFETY: eight numbers are read.
    let below = unsafe { _mm256_loadu_si256(below.as_ptr().cast()) };
    Book { few, next: get(&next), below, centroids: get(&centroids) }
}

/// `D16` without its tree: sixteen sums of each token.
type Stripes = [__m256; 16];

#[inline]
#[target_feature(enable = "avx2")]
fn tree(mut s: Stripes) -> __m256 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            s[i] = _mm256_add_ps(s[i], s[i + half]);
        }
    }
    s[0]
}

/// `D16(y, y)` of each token; eight stripes at a time fit the registers.
#[target_feature(enable = "avx2")]
pub fn squares(y: &[Lane]) -> __m256 {
    let mut all = [_mm256_setzero_ps(); 16];
    for (half, all) in all.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut sums = [_mm256_setzero_ps(); 8];
        for y in y.as_chunks::<16>().0 {
            let y: &[Lane; 8] = y[8 * half..].first_chunk().expect("eight channels");
            for i in 0..8 {
                let x = get(&y[i]);
                sums[i] = _mm256_add_ps(sums[i], _mm256_mul_ps(x, x));
            }
        }
        *all = sums;
    }
    tree(all)
}

/// `D16` of y and centroids, and of centroids and themselves.
struct Sums {
    e: Stripes,
    squares: Stripes,
}

/// What one vector of a span is compared with.
struct Limits {
    sigma: __m256,
    /// Bins per unit of y.
    bins: __m256,
    few: [__m256; 3],
}

/// How many thresholds each magnitude reaches.
#[inline]
#[target_feature(enable = "avx2")]
fn reached<const BITS: usize>(book: &Book, limits: &Limits, size: __m256) -> __m256i {
    let add = |m, beyond| _mm256_sub_epi32(m, _mm256_castps_si256(beyond));
    if BITS == 4 {
        let bin = _mm256_cvttps_epi32(_mm256_mul_ps(size, limits.bins));
        let bin = _mm256_min_epi32(bin, _mm256_set1_epi32(7));
        let next = _mm256_mul_ps(_mm256_permutevar8x32_ps(book.next, bin), limits.sigma);
        let below = _mm256_permutevar8x32_epi32(book.below, bin);
        return add(below, _mm256_cmp_ps::<_CMP_GE_OQ>(size, next));
    }
    let mut m = _mm256_setzero_si256();
    for threshold in &limits.few[..(1 << (BITS - 1)) - 1] {
        m = add(m, _mm256_cmp_ps::<_CMP_GE_OQ>(size, *threshold));
    }
    m
}

/// The channels of a span that belong to stripes `4 * quarter` and the next three: a quad at a time.
#[inline(never)] // each with registers of its own
#[target_feature(enable = "avx2")]
fn quads<const BITS: usize, const UNBIASED: bool>(
    span: &Span,
    book: &Book,
    sigma: __m256,
    y: &[Lane],
    quarter: usize,
    sums: &mut Sums,
    out: &mut [Quad],
) {
    let bins = _mm256_div_ps(_mm256_set1_ps(1.0 / BIN), sigma);
    let mut limits = Limits { sigma, bins, few: [sigma; 3] };
    for (limit, few) in limits.few.iter_mut().zip(book.few) {
        *limit = _mm256_mul_ps(sigma, _mm256_set1_ps(few));
    }
    let e: &mut [__m256; 4] = sums.e[4 * quarter..].first_chunk_mut().expect("four stripes");
    let squares: &mut [__m256; 4] = sums.squares[4 * quarter..].first_chunk_mut().expect("four stripes");
    let (mut own_e, mut own_squares) = (*e, *squares);
    let half = _mm256_set1_epi8(1 << (BITS - 1));
    // A span may begin at stripe 8.
    let mut channel = span.first / 16 * 16 + 4 * quarter;
    channel += if channel < span.first { 16 } else { 0 };
    while channel < span.first + span.channels {
        let y: &[Lane; 4] = y[channel..].first_chunk().expect("four channels");
        let mut codes = [_mm256_setzero_si256(); 4];
        for i in 0..4 {
            let x = get(&y[i]);
            let size = magnitude(x);
            let m = reached::<BITS>(book, &limits, size);
            // A centroid has the sign of its number, so that the product is that of their sizes.
            let centroid = _mm256_permutevar8x32_ps(book.centroids, m);
            own_e[i] = _mm256_add_ps(own_e[i], _mm256_mul_ps(size, centroid));
            if !UNBIASED {
                own_squares[i] = _mm256_add_ps(own_squares[i], _mm256_mul_ps(centroid, centroid));
            }
            // m, or -1 - m of what is negative: the code less half.
            let negative = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_setzero_ps());
            codes[i] = _mm256_xor_si256(m, _mm256_castps_si256(negative));
        }
        let words = [_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3])];
        let bytes = _mm256_packs_epi16(words[0], words[1]);
        put_bytes(_mm256_add_epi8(bytes, half), &mut out[channel / 4]);
        channel += 16;
    }
    (*e, *squares) = (own_e, own_squares);
}

/// Codes of eight tokens y `[d]`, and their scales.
#[target_feature(enable = "avx2")]
pub fn quantize(codec: &Codec, books: &[Book; 2], unbiased: bool, y: &[Lane], out: &mut [Quad], scales: &mut Lane) {
    let zero = _mm256_setzero_ps();
    let n2 = squares(y);
    let none = _mm256_cmp_ps::<_CMP_EQ_OQ>(n2, zero);
    let part = (1.0 / y.len() as f64) as f32;
    let sigma = _mm256_sqrt_ps(_mm256_mul_ps(n2, _mm256_set1_ps(part)));
    // Of zeros none reaches infinity, so that all codes are half.
    let sigma = _mm256_blendv_ps(sigma, _mm256_set1_ps(f32::INFINITY), none);
    let mut sums = Sums { e: [zero; 16], squares: [zero; 16] };
    for quarter in 0..4 {
        for (span, book) in codec.spans().iter().zip(books) {
            let run = match (span.bits, unbiased) {
                (2, true) => quads::<2, true>,
                (3, true) => quads::<3, true>,
                (_, true) => quads::<4, true>,
                (2, false) => quads::<2, false>,
                (3, false) => quads::<3, false>,
                (_, false) => quads::<4, false>,
            };
            run(span, book, sigma, y, quarter, &mut sums, out);
        }
    }
    let e = tree(sums.e);
    let scale = if unbiased { _mm256_div_ps(n2, e) } else { _mm256_div_ps(e, tree(sums.squares)) };
    put(_mm256_andnot_ps(none, scale), scales);
}
