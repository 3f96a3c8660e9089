//! Eight floats in a register.

use std::arch::x86_64::*;

use super::super::isa::{Isa, intrinsics};
use super::super::sums::planes;
use super::super::tiles::Codes;
use super::registers::{get, get_bytes, get_half, magnitude, put, put_half};
use super::tiles::pack_registers;
use crate::half;

/// AVX2 and F16C, with words in the order of two broadcasts or as planes.
pub struct Avx2<const PLANES: bool>;

impl<const PLANES: bool> Isa for Avx2<PLANES> {
    type Eight = __m256;

    intrinsics! {
        fn all(x: f32) -> __m256 { _mm256_set1_ps(x) }
        fn get(x: &[f32; 8]) -> __m256 { get(x) }
        fn put(x: __m256, out: &mut [f32; 8]) { put(x, out) }
        fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fn min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        fn abs(x: __m256) -> __m256 { magnitude(x) }
        fn largest(x: __m256) -> f32 { largest(x) }
        fn tree(x: __m256) -> f32 { tree(x) }
        fn trees(x: [__m256; 8]) -> __m256 { trees(x) }
        fn widen(halves: &[u8; 16]) -> __m256 { _mm256_cvtph_ps(get_half(halves)) }
        fn narrow(x: __m256, out: &mut [u8; 16]) { put_half(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x), out) }
        fn narrow_finite(x: __m256, out: &mut [u8; 16]) { put_half(narrow_finite(x), out) }
        fn finite(x: __m256) -> bool {
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LE_OQ>(magnitude(x), _mm256_set1_ps(half::LARGEST))) == 0xff
        }
        fn words(x: __m256, out: &mut [i16; 8]) { words(x, out) }
        fn codes(x: __m256, step: __m256, out: &mut [u8; 8]) { *out = codes(x, step) }
        fn ask_for(row: &[u8]) {
            for line in row.chunks(64) {
                _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
            }
        }
        fn order(w: &mut [i16]) {
            if PLANES { planes(w) } else { pair(w) }
        }
        fn sixteen(x: &mut [f32; 16]) { sixteen(x) }
        fn pack(codes: &Codes, bits: usize, tile: &mut [u8]) {
            let (halves, _) = codes.as_chunks();
            pack_registers([get_bytes(&halves[0]), get_bytes(&halves[1])], bits, tile)
        }
    }
}

/// The largest of eight.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(x: __m256) -> f32 {
    let two = _mm256_max_ps(x, _mm256_permute2f128_ps::<1>(x, x));
    let four = _mm256_max_ps(two, _mm256_permute_ps::<0b01_00_11_10>(two));
    _mm256_cvtss_f32(_mm256_max_ps(four, _mm256_permute_ps::<0b10_11_00_01>(four)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn tree(eight: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn trees(s: [__m256; 8]) -> __m256 {
    let (mut four, mut two) = ([_mm256_setzero_ps(); 4], [_mm256_setzero_ps(); 2]);
    for i in 0..4 {
        let (a, b) = (s[2 * i], s[2 * i + 1]);
        four[i] = _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
    }
    for i in 0..2 {
        let (a, b) = (four[2 * i], four[2 * i + 1]);
        two[i] = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b));
    }
    let [a, b] = two;
    // Tokens 0, 2, 4, 6, then 1, 3, 5, 7.
    let one = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
    _mm256_permutevar8x32_ps(one, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// Of an infinity the number before it.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow_finite(x: __m256) -> __m128i {
    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
    let size = _mm_and_si128(halves, _mm_set1_epi16(0x7fff));
    _mm_add_epi16(halves, _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7c00)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn packed(x: __m256) -> __m128i {
    let x = _mm256_cvtps_epi32(x);
    _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn words(x: __m256, out: &mut [i16; 8]) {
    // SAFETY: sixteen bytes are written.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), packed(x)) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn codes(x: __m256, step: __m256) -> [u8; 8] {
    let some = _mm256_cmp_ps::<_CMP_NEQ_OQ>(step, _mm256_setzero_ps());
    let words = packed(_mm256_and_ps(x, some));
    _mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes()
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

#[inline]
#[target_feature(enable = "avx2")]
fn sixteen(x: &mut [f32; 16]) {
    let (halves, _) = x.as_chunks_mut();
    let (a, b) = (eight(get(&halves[0])), eight(get(&halves[1])));
    put(_mm256_add_ps(a, b), &mut halves[0]);
    put(_mm256_sub_ps(a, b), &mut halves[1]);
}

/// Puts each four words in the order first, third, second, fourth: the words of two broadcasts.
#[target_feature(enable = "avx2")]
fn pair(w: &mut [i16]) {
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for w in w.as_chunks_mut::<16>().0 {
        // SAFETY: 32 bytes are read and written.
        unsafe {
            let words = _mm256_loadu_si256(w.as_ptr().cast());
            _mm256_storeu_si256(w.as_mut_ptr().cast(), _mm256_shuffle_epi8(words, order));
        }
    }
}
