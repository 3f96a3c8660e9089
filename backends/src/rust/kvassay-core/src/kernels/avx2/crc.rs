//! CRC-32 by carry-less products (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel 2009): 64 bytes are folded over the next 64 until the last are left.

use std::arch::x86_64::*;

const POLYNOMIAL: u32 = 0xEDB8_8320;
/// Shorter data are not worth the folds.
const LEAST: usize = 128;

/// `x^n` modulo the polynomial, bit-reflected, as a factor of a product of 64 bits.
const fn power(n: u32) -> i64 {
    let mut x = 1 << 31;
    let mut i = 0;
    while i < n {
        x = x >> 1 ^ if x & 1 == 1 { POLYNOMIAL } else { 0 };
        i += 1;
    }
    (x as i64) << 1
}

/// What brings 128 bits `BITS` further: `x^(BITS + 32)` for the lower half, `x^(BITS - 32)` for the upper.
struct Fold<const BITS: u32>;

impl<const BITS: u32> Fold<BITS> {
    const LOW: i64 = power(BITS + 32);
    const HIGH: i64 = power(BITS - 32);
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn fold<const BITS: u32>(x: __m128i, over: __m128i) -> __m128i {
    let by = _mm_set_epi64x(Fold::<BITS>::HIGH, Fold::<BITS>::LOW);
    let (low, high) = (_mm_clmulepi64_si128::<0x00>(x, by), _mm_clmulepi64_si128::<0x11>(x, by));
    _mm_xor_si128(_mm_xor_si128(low, high), over)
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn load(bytes: &[u8; 64]) -> [__m128i; 4] {
    // SAFETY: i + 16 <= 64.
    [0, 16, 32, 48].map(|i| unsafe { _mm_loadu_si128(bytes.as_ptr().add(i).cast()) })
}

#[target_feature(enable = "pclmulqdq")]
pub fn crc32(crc: u32, data: &[u8]) -> u32 {
    if data.len() < LEAST {
        return crate::crc::crc32(crc, data);
    }
    let (blocks, tail) = data.as_chunks::<64>();
    let mut x = load(&blocks[0]);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(!crc as i32));
    for block in &blocks[1..] {
        for (x, over) in x.iter_mut().zip(load(block)) {
            *x = fold::<512>(*x, over);
        }
    }
    let last = x[1..].iter().fold(x[0], |before, x| fold::<128>(before, *x));
    let mut rest = [0; 16];
    // SAFETY: sixteen bytes are written.
    unsafe { _mm_storeu_si128(rest.as_mut_ptr().cast(), last) };
    // The start is in these sixteen bytes already: the tables go on from a register of zeros.
    crate::crc::crc32(crate::crc::crc32(!0, &rest), tail)
}

#[cfg(test)]
mod tests {
    #[test]
    fn folds_give_what_tables_give() {
        if !is_x86_feature_detected!("pclmulqdq") {
            return;
        }
        let data: Vec<u8> = (0..1000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in [0, 15, 127, 128, 129, 191, 192, 500, 1000] {
            for start in [0, 1, 0xdead_beef, u32::MAX] {
                // SAFETY: the CPU has the instruction.
                let found = unsafe { super::crc32(start, &data[..length]) };
                assert_eq!(found, crate::crc::crc32(start, &data[..length]), "{length} bytes from {start:#x}");
            }
        }
    }
}
