//! The intrinsics of 512 bits that the kernels use, in plain Rust, by their names in `std::arch`: for tests on a CPU
//! that lacks them. Written from Intel's description of each.

use std::arch::x86_64::{__m128i, __m256i, _mm_storeu_si128, _mm256_loadu_si256, _mm256_storeu_si256};

/// A register, as bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(non_camel_case_types)]
pub struct __m512i([u8; 64]);

/// Lanes of 16 bits.
fn words(x: __m512i) -> [i16; 32] {
    std::array::from_fn(|i| i16::from_le_bytes([x.0[2 * i], x.0[2 * i + 1]]))
}

fn of_words(x: [i16; 32]) -> __m512i {
    __m512i(std::array::from_fn(|i| x[i / 2].to_le_bytes()[i % 2]))
}

/// Lanes of 32 bits.
fn numbers(x: __m512i) -> [i32; 16] {
    std::array::from_fn(|i| i32::from_le_bytes(std::array::from_fn(|k| x.0[4 * i + k])))
}

fn of_numbers(x: [i32; 16]) -> __m512i {
    __m512i(std::array::from_fn(|i| x[i / 4].to_le_bytes()[i % 4]))
}

pub fn _mm512_setzero_si512() -> __m512i {
    __m512i([0; 64])
}

pub fn _mm512_set1_epi8(a: i8) -> __m512i {
    __m512i([a as u8; 64])
}

pub fn _mm512_set1_epi16(a: i16) -> __m512i {
    of_words([a; 32])
}

pub fn _mm512_set1_epi32(a: i32) -> __m512i {
    of_numbers([a; 16])
}

#[allow(clippy::too_many_arguments)] // as many as Intel gave it
#[rustfmt::skip]
pub fn _mm512_setr_epi32(
    e15: i32, e14: i32, e13: i32, e12: i32, e11: i32, e10: i32, e9: i32, e8: i32,
    e7: i32, e6: i32, e5: i32, e4: i32, e3: i32, e2: i32, e1: i32, e0: i32,
) -> __m512i {
    of_numbers([e15, e14, e13, e12, e11, e10, e9, e8, e7, e6, e5, e4, e3, e2, e1, e0])
}

/// `a` in the lanes whose bit of k is set, else those of src.
pub fn _mm512_mask_set1_epi32(src: __m512i, k: u16, a: i32) -> __m512i {
    let src = numbers(src);
    of_numbers(std::array::from_fn(|i| if k >> i & 1 == 1 { a } else { src[i] }))
}

pub fn _mm512_broadcast_i32x4(a: __m128i) -> __m512i {
    let mut bytes = [0; 16];
    // SAFETY: sixteen bytes are written.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), a) };
    __m512i(std::array::from_fn(|i| bytes[i % 16]))
}

#[target_feature(enable = "avx2")]
pub fn _mm512_broadcast_i64x4(a: __m256i) -> __m512i {
    let mut bytes = [0; 32];
    // SAFETY: 32 bytes are written.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), a) };
    __m512i(std::array::from_fn(|i| bytes[i % 32]))
}

#[target_feature(enable = "avx2")]
pub fn _mm512_extracti64x4_epi64<const IMM1: i32>(a: __m512i) -> __m256i {
    const { assert!(IMM1 == 0 || IMM1 == 1) };
    // SAFETY: 32 bytes of 64 are read.
    unsafe { _mm256_loadu_si256(a.0.as_ptr().add(32 * IMM1 as usize).cast()) }
}

#[target_feature(enable = "avx2")]
pub fn _mm512_castsi512_si256(a: __m512i) -> __m256i {
    _mm512_extracti64x4_epi64::<0>(a)
}

/// # Safety
/// 64 bytes are written.
pub unsafe fn _mm512_storeu_si512(mem_addr: *mut __m512i, a: __m512i) {
    // SAFETY: the caller's promise.
    unsafe { mem_addr.cast::<[u8; 64]>().write_unaligned(a.0) };
}

pub fn _mm512_and_si512(a: __m512i, b: __m512i) -> __m512i {
    __m512i(std::array::from_fn(|i| a.0[i] & b.0[i]))
}

pub fn _mm512_add_epi16(a: __m512i, b: __m512i) -> __m512i {
    let (a, b) = (words(a), words(b));
    of_words(std::array::from_fn(|i| a[i].wrapping_add(b[i])))
}

pub fn _mm512_add_epi32(a: __m512i, b: __m512i) -> __m512i {
    let (a, b) = (numbers(a), numbers(b));
    of_numbers(std::array::from_fn(|i| a[i].wrapping_add(b[i])))
}

/// Zeros come in; a shift beyond the lane leaves nothing.
pub fn _mm512_srli_epi16<const IMM8: u32>(a: __m512i) -> __m512i {
    of_words(words(a).map(|x| (x as u16).checked_shr(IMM8).unwrap_or(0) as i16))
}

/// Likewise, each lane by its own count.
pub fn _mm512_srlv_epi32(a: __m512i, count: __m512i) -> __m512i {
    let (a, count) = (numbers(a), numbers(count));
    of_numbers(std::array::from_fn(|i| (a[i] as u32).checked_shr(count[i] as u32).unwrap_or(0) as i32))
}

/// Bytes of a, within each 128 bits, by the low four bits of b; 0 where b's top bit is set.
pub fn _mm512_shuffle_epi8(a: __m512i, b: __m512i) -> __m512i {
    let byte = |i: usize| if b.0[i] & 128 == 0 { a.0[i / 16 * 16 + usize::from(b.0[i] & 15)] } else { 0 };
    __m512i(std::array::from_fn(byte))
}

pub fn _mm512_mask_shuffle_epi8(src: __m512i, k: u64, a: __m512i, b: __m512i) -> __m512i {
    _mm512_mask_blend_epi8(k, src, _mm512_shuffle_epi8(a, b))
}

/// Bytes of b where the bit of k is set, else of a.
pub fn _mm512_mask_blend_epi8(k: u64, a: __m512i, b: __m512i) -> __m512i {
    __m512i(std::array::from_fn(|i| if k >> i & 1 == 1 { b.0[i] } else { a.0[i] }))
}

/// Unsigned bytes of a times signed bytes of b, neighbours added, saturated to 16 bits.
pub fn _mm512_maddubs_epi16(a: __m512i, b: __m512i) -> __m512i {
    let product = |i: usize| i32::from(a.0[i]) * i32::from(b.0[i] as i8);
    let sum = |i: usize| product(2 * i) + product(2 * i + 1);
    of_words(std::array::from_fn(|i| sum(i).clamp(i16::MIN.into(), i16::MAX.into()) as i16))
}

/// Words of a times words of b, neighbours added; the sum wraps.
pub fn _mm512_madd_epi16(a: __m512i, b: __m512i) -> __m512i {
    let (a, b) = (words(a).map(i32::from), words(b).map(i32::from));
    of_numbers(std::array::from_fn(|i| (a[2 * i] * b[2 * i]).wrapping_add(a[2 * i + 1] * b[2 * i + 1])))
}

/// Unsigned bytes of a times signed bytes of b, each four added to a lane of src; the sum wraps.
pub fn _mm512_dpbusd_epi32(src: __m512i, a: __m512i, b: __m512i) -> __m512i {
    let src = numbers(src);
    let product = |i: usize| i32::from(a.0[i]) * i32::from(b.0[i] as i8);
    of_numbers(std::array::from_fn(|i| (0..4).fold(src[i], |sum, k| sum.wrapping_add(product(4 * i + k)))))
}

/// Zeros come in; a shift beyond the lane leaves nothing.
pub fn _mm512_slli_epi32<const IMM8: u32>(a: __m512i) -> __m512i {
    of_numbers(numbers(a).map(|x| (x as u32).checked_shl(IMM8).unwrap_or(0) as i32))
}

/// Each against the instruction of 256 bits of the same name, on both halves.
#[cfg(test)]
mod tests {
    use std::arch::x86_64::*;

    use super::__m512i as Wide;

    /// Bytes with extremes among them.
    fn drawn(seed: u64) -> Wide {
        let mut state = seed;
        Wide(std::array::from_fn(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if i % 7 == 3 { [0, 255, 127, 128][(state >> 40) as usize % 4] } else { (state >> 33) as u8 }
        }))
    }

    #[target_feature(enable = "avx2")]
    fn halves(x: Wide) -> [__m256i; 2] {
        [super::_mm512_extracti64x4_epi64::<0>(x), super::_mm512_extracti64x4_epi64::<1>(x)]
    }

    #[target_feature(enable = "avx2")]
    fn joined(x: [__m256i; 2]) -> Wide {
        let mut bytes = [0; 64];
        for (out, x) in bytes.as_chunks_mut::<32>().0.iter_mut().zip(x) {
            // SAFETY: 32 bytes are written.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), x) };
        }
        Wide(bytes)
    }

    /// Bytes of ones where the bit is set.
    fn ones(k: u64) -> Wide {
        Wide(std::array::from_fn(|i| if k >> i & 1 == 1 { 255 } else { 0 }))
    }

    /// The four products a lane: bytes widened to words, of which neighbours are added twice.
    #[target_feature(enable = "avx2")]
    fn fours(a: __m256i, b: __m256i) -> __m256i {
        let pairs = |a, b| _mm256_madd_epi16(_mm256_cvtepu8_epi16(a), _mm256_cvtepi8_epi16(b));
        let low = pairs(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b));
        let high = pairs(_mm256_extracti128_si256::<1>(a), _mm256_extracti128_si256::<1>(b));
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(low, high))
    }

    #[target_feature(enable = "avx2")]
    fn compare(seed: u64) {
        let (x, y, k) = (drawn(seed), drawn(!seed), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (a, b) = (halves(x), halves(y));
        macro_rules! same {
            ($($wide:ident, $narrow:ident;)*) => {
                $(assert_eq!(super::$wide(x, y), joined([$narrow(a[0], b[0]), $narrow(a[1], b[1])]), stringify!($wide));)*
            };
        }
        same! {
            _mm512_and_si512, _mm256_and_si256;
            _mm512_add_epi16, _mm256_add_epi16;
            _mm512_add_epi32, _mm256_add_epi32;
            _mm512_shuffle_epi8, _mm256_shuffle_epi8;
            _mm512_maddubs_epi16, _mm256_maddubs_epi16;
            _mm512_madd_epi16, _mm256_madd_epi16;
            _mm512_srlv_epi32, _mm256_srlv_epi32;
        }
        let small = super::_mm512_and_si512(y, super::_mm512_set1_epi32(39));
        let counts = halves(small);
        let shifted = [_mm256_srlv_epi32(a[0], counts[0]), _mm256_srlv_epi32(a[1], counts[1])];
        assert_eq!(super::_mm512_srlv_epi32(x, small), joined(shifted));
        assert_eq!(super::_mm512_srli_epi16::<8>(x), joined(a.map(|a| _mm256_srli_epi16::<8>(a))));
        assert_eq!(super::_mm512_srli_epi16::<16>(x), joined(a.map(|a| _mm256_srli_epi16::<16>(a))));
        assert_eq!(super::_mm512_slli_epi32::<7>(x), joined(a.map(|a| _mm256_slli_epi32::<7>(a))));
        assert_eq!(super::_mm512_slli_epi32::<32>(x), joined(a.map(|a| _mm256_slli_epi32::<32>(a))));
        let dots = [fours(a[0], b[0]), fours(a[1], b[1])];
        let dots = [_mm256_add_epi32(b[0], dots[0]), _mm256_add_epi32(b[1], dots[1])];
        assert_eq!(super::_mm512_dpbusd_epi32(y, x, y), joined(dots));
        let mask = halves(ones(k));
        let blended = joined([_mm256_blendv_epi8(a[0], b[0], mask[0]), _mm256_blendv_epi8(a[1], b[1], mask[1])]);
        assert_eq!(super::_mm512_mask_blend_epi8(k, x, y), blended);
        let shuffled = [_mm256_shuffle_epi8(b[0], a[0]), _mm256_shuffle_epi8(b[1], a[1])];
        let expected = [_mm256_blendv_epi8(a[0], shuffled[0], mask[0]), _mm256_blendv_epi8(a[1], shuffled[1], mask[1])];
        assert_eq!(super::_mm512_mask_shuffle_epi8(x, k, y, x), joined(expected));
    }

    #[target_feature(enable = "avx2")]
    fn compare_constants(n: i32) {
        assert_eq!(super::_mm512_setzero_si512(), joined([_mm256_setzero_si256(); 2]));
        assert_eq!(super::_mm512_set1_epi8(n as i8), joined([_mm256_set1_epi8(n as i8); 2]));
        assert_eq!(super::_mm512_set1_epi16(n as i16), joined([_mm256_set1_epi16(n as i16); 2]));
        assert_eq!(super::_mm512_set1_epi32(n), joined([_mm256_set1_epi32(n); 2]));
        let in_order = super::_mm512_setr_epi32(n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, !n);
        let expected = [_mm256_setr_epi32(n, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, !n)];
        assert_eq!(in_order, joined(expected));
        let masked = super::_mm512_mask_set1_epi32(in_order, 0x8f02, n);
        let expected = [_mm256_setr_epi32(n, n, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(n, n, n, n, 12, 13, 14, n)];
        assert_eq!(masked, joined(expected));
        let one = _mm_setr_epi32(n, 1, 2, 3);
        assert_eq!(super::_mm512_broadcast_i32x4(one), joined([_mm256_broadcastsi128_si256(one); 2]));
        let two = _mm256_setr_epi32(n, 1, 2, 3, 4, 5, 6, 7);
        assert_eq!(super::_mm512_broadcast_i64x4(two), joined([two; 2]));
        assert_eq!(joined([super::_mm512_castsi512_si256(in_order); 2]), joined([two; 2]));
        let mut stored = [0u8; 65];
        // SAFETY: 64 bytes are written.
        unsafe { super::_mm512_storeu_si512(stored[1..].as_mut_ptr().cast(), in_order) };
        assert_eq!(stored[1..], in_order.0);
    }

    #[test]
    fn as_the_instructions_of_256_bits() {
        assert!(is_x86_feature_detected!("avx2"), "the emulation is compared with AVX2");
        for seed in 1..2000 {
            // SAFETY: the CPU has AVX2.
            unsafe { compare(seed) };
        }
        for n in [0, -1, 0x1234_5678, i32::MIN] {
            // SAFETY: likewise.
            unsafe { compare_constants(n) };
        }
    }
}
