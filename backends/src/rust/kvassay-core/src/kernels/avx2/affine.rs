//! KIVI: eight channels at once (numeric contract, section 6).

use std::arch::x86_64::*;

use super::registers::{get, put_half};

/// Step and minimum of eight groups.
struct Affine {
    /// As stored.
    step: __m128i,
    minimum: __m128i,
    /// As read.
    wide_step: __m256,
    wide_minimum: __m256,
}

/// The largest code.
#[inline]
#[target_feature(enable = "avx2")]
fn most(bits: usize) -> __m256 {
    _mm256_set1_ps(((1 << bits) - 1) as f32)
}

/// `f16s`: of an infinity the number before it.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn narrow(x: __m256) -> __m128i {
    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
    let size = _mm_and_si128(halves, _mm_set1_epi16(0x7fff));
    _mm_add_epi16(halves, _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7c00)))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn affine(bits: usize, low: __m256, high: __m256) -> Affine {
    let zero = _mm256_setzero_ps();
    let minimum = narrow(_mm256_add_ps(low, zero));
    let wide_minimum = _mm256_cvtph_ps(minimum);
    let range = _mm256_max_ps(_mm256_sub_ps(_mm256_add_ps(high, zero), wide_minimum), zero);
    let step = narrow(_mm256_div_ps(range, most(bits)));
    Affine { step, minimum, wide_step: _mm256_cvtph_ps(step), wide_minimum }
}

/// Eight codes as words of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn code(bits: usize, a: &Affine, r: &[f32; 8]) -> __m256i {
    let quotient = _mm256_div_ps(_mm256_sub_ps(get(r), a.wide_minimum), a.wide_step);
    // The largest code is a whole number, so that it does not matter which comes first, rounding or this limit. Of a
    // step of 0 the quotient may be NaN, of which the maximum is 0.
    let limited = _mm256_min_ps(_mm256_max_ps(quotient, _mm256_setzero_ps()), most(bits));
    let some = _mm256_cmp_ps::<_CMP_NEQ_OQ>(a.wide_step, _mm256_setzero_ps());
    _mm256_cvtps_epi32(_mm256_and_ps(limited, some))
}

/// Eight codes as bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes(codes: __m256i) -> [u8; 8] {
    let words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
    _mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes()
}

#[target_feature(enable = "avx2,f16c")]
pub fn affine_keys(bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]) {
    let stored = steps.as_chunks_mut::<16>().0.iter_mut().zip(minima.as_chunks_mut::<16>().0);
    for (n, (steps, minima)) in stored.enumerate() {
        let (mut low, mut high) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
        for r in r.chunks_exact(d) {
            let x = get(&r.as_chunks().0[n]);
            (low, high) = (_mm256_min_ps(x, low), _mm256_max_ps(x, high));
        }
        let a = affine(bits, low, high);
        for (r, codes) in r.chunks_exact(d).zip(codes.chunks_exact_mut(d)) {
            codes.as_chunks_mut().0[n] = bytes(code(bits, &a, &r.as_chunks().0[n]));
        }
        put_half(a.step, steps);
        put_half(a.minimum, minima);
    }
}

/// The largest of eight, in each place.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(x: __m256) -> __m256 {
    let two = _mm256_max_ps(x, _mm256_permute2f128_ps::<1>(x, x));
    let four = _mm256_max_ps(two, _mm256_permute_ps::<0b01_00_11_10>(two));
    _mm256_max_ps(four, _mm256_permute_ps::<0b10_11_00_01>(four))
}

#[target_feature(enable = "avx2,f16c")]
pub fn affine_values(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16) {
    let (mut low, mut high) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
    for x in r.as_chunks().0 {
        let x = get(x);
        (low, high) = (_mm256_min_ps(x, low), _mm256_max_ps(x, high));
    }
    let sign = _mm256_set1_ps(-0.0);
    let low = _mm256_xor_ps(largest(_mm256_xor_ps(low, sign)), sign);
    let a = affine(bits, low, largest(high));
    for (r, codes) in r.as_chunks().0.iter().zip(codes.as_chunks_mut().0) {
        *codes = bytes(code(bits, &a, r));
    }
    (_mm_extract_epi16::<0>(a.step) as u16, _mm_extract_epi16::<0>(a.minimum) as u16)
}
