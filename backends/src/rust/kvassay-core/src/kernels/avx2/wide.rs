//! The transform: butterflies within a register by shuffles.

use std::arch::x86_64::*;

use super::super::body;
use crate::transform::Transform;

#[target_feature(enable = "avx2")]
pub fn forward(t: &Transform, x: &mut [f32]) {
    body::forward(t, x, |x, block| hadamard(x, block));
}

#[target_feature(enable = "avx2")]
pub fn inverse(t: &Transform, x: &mut [f32]) {
    body::inverse(t, x, |x, block| hadamard(x, block));
}

/// The stages of 1, 2 and 4 within eight numbers: `x` with the signs of the second of each pair flipped is added to the
/// pairs exchanged, so that (a, b) becomes (b + a, a - b): the same sums, since addition commutes.
#[inline]
#[target_feature(enable = "avx2")]
fn eight(x: __m256) -> __m256 {
    let flip = |x, mask: i64| _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_set1_epi64x(mask)));
    let one = _mm256_add_ps(_mm256_permute_ps::<0b10_11_00_01>(x), flip(x, 1 << 63));
    let signs = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, i32::MIN, i32::MIN, 0, 0, i32::MIN, i32::MIN));
    let two = _mm256_add_ps(_mm256_permute_ps::<0b01_00_11_10>(one), _mm256_xor_ps(one, signs));
    let signs = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, 0, 0, i32::MIN, i32::MIN, i32::MIN, i32::MIN));
    _mm256_add_ps(_mm256_permute2f128_ps::<1>(two, two), _mm256_xor_ps(two, signs))
}

#[target_feature(enable = "avx2")]
fn hadamard(x: &mut [f32], block: usize) {
    for x in x.as_chunks_mut::<16>().0 {
        // SAFETY: sixteen floats are read and written.
        unsafe {
            let a = eight(_mm256_loadu_ps(x.as_ptr()));
            let b = eight(_mm256_loadu_ps(x[8..].as_ptr()));
            _mm256_storeu_ps(x.as_mut_ptr(), _mm256_add_ps(a, b));
            _mm256_storeu_ps(x[8..].as_mut_ptr(), _mm256_sub_ps(a, b));
        }
    }
    if block > 16 {
        for x in x.chunks_exact_mut(block) {
            stages::<8>(x, 16);
        }
    }
}

/// The stages of `h` numbers and more, among up to `MOST` numbers in one pass.
#[inline]
#[target_feature(enable = "avx2")]
pub fn stages<const MOST: usize>(x: &mut [f32], mut h: usize) {
    while h < x.len() {
        let ways = (x.len() / h).min(MOST);
        for x in x.chunks_exact_mut(ways * h) {
            match ways {
                2 => columns::<2>(x, h),
                4 => columns::<4>(x, h),
                8 => columns::<8>(x, h),
                _ => columns::<MOST>(x, h),
            }
        }
        h *= ways;
    }
}

#[inline(never)] // each with registers of its own
#[target_feature(enable = "avx2")]
fn columns<const WAYS: usize>(x: &mut [f32], h: usize) {
    for c in (0..h).step_by(8) {
        butterflies::<WAYS>(x, h, c);
    }
}

/// All stages among `WAYS` numbers h apart, eight columns from c on.
#[inline]
#[target_feature(enable = "avx2")]
fn butterflies<const WAYS: usize>(x: &mut [f32], h: usize, c: usize) {
    assert!(x.len() == WAYS * h && c + 8 <= h);
    let mut v = [_mm256_setzero_ps(); WAYS];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: i * h + c + 8 <= WAYS * h.
        *v = unsafe { _mm256_loadu_ps(x.as_ptr().add(i * h + c)) };
    }
    let mut step = 1;
    while step < WAYS {
        for i in 0..WAYS {
            if i & step == 0 {
                let (a, b) = (v[i], v[i + step]);
                v[i] = _mm256_add_ps(a, b);
                v[i + step] = _mm256_sub_ps(a, b);
            }
        }
        step *= 2;
    }
    for (i, v) in v.iter().enumerate() {
        // SAFETY: likewise.
        unsafe { _mm256_storeu_ps(x.as_mut_ptr().add(i * h + c), *v) };
    }
}
