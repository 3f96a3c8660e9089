//! Whole registers from memory and back.

use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx2")]
pub fn get(x: &[f32; 8]) -> __m256 {
    // SAFETY: eight floats are read.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn put(x: __m256, out: &mut [f32; 8]) {
    // SAFETY: eight floats are written.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), x) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn get_bytes(x: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are read.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn put_bytes(x: __m256i, out: &mut [u8; 32]) {
    // SAFETY: 32 bytes are written.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), x) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn get_half(x: &[u8; 16]) -> __m128i {
    // SAFETY: sixteen bytes are read.
    unsafe { _mm_loadu_si128(x.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn put_half(x: __m128i, out: &mut [u8; 16]) {
    // SAFETY: sixteen bytes are written.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), x) };
}

/// The same sixteen bytes in both halves.
#[inline]
#[target_feature(enable = "avx2")]
pub fn twice(x: &[i8; 16]) -> __m256i {
    // SAFETY: sixteen bytes are read.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(x.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn magnitude(x: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)
}
