//! The few operations that everything else is made of (numeric contract, sections 0 and 10).

/// `rne`: to the nearest integer, ties to even, for |x| < 2^22.
#[inline(always)]
pub fn rne(x: f32) -> f32 {
    (x + 12_582_912.0) - 12_582_912.0
}

/// `rne` as an integer: its low bits are those of the sum with the magic number.
#[inline(always)]
pub fn rne_bits(x: f32) -> i32 {
    (x + 12_582_912.0).to_bits().wrapping_sub(12_582_912.0f32.to_bits()) as i32
}

/// Folds sixteen sums by halves.
#[inline(always)]
pub fn tree(mut s: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            s[i] += s[i + half];
        }
    }
    s[0]
}

/// `D16(a, b)`; the length is a multiple of 16.
#[inline(always)]
pub fn d16(a: &[f32], b: &[f32]) -> f32 {
    let mut s = [0.0f32; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for i in 0..16 {
            s[i] += a[i] * b[i];
        }
    }
    tree(s)
}

/// `c0 .. c5`.
const C: [u32; 6] =
    [hex(0x000000, 0), hex(0x62e42a, -1), hex(0xebf9bc, -3), hex(0xc6b752, -5), hex(0x3cea88, -7), hex(0x5bba14, -10)];

/// Bits of the float `0x1.fraction p exponent`, the fraction as six digits of which the last bit is 0.
pub const fn hex(fraction: u32, exponent: i32) -> u32 {
    ((exponent + 127) as u32) << 23 | fraction >> 1
}

/// `ex2(x)` for x <= 0.
#[inline(always)]
pub fn ex2(x: f32) -> f32 {
    let w = x + 12_582_912.0;
    let r = x - (w - 12_582_912.0);
    let mut p = f32::from_bits(C[5]);
    for c in [C[4], C[3], C[2], C[1], C[0]] {
        p = p * r + f32::from_bits(c);
    }
    let bits = p.to_bits().wrapping_add(w.to_bits() << 23);
    if x < -64.0 { 0.0 } else { f32::from_bits(bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two() {
        assert_eq!(ex2(0.0), 1.0);
        assert_eq!(ex2(-3.0), 0.125);
        assert_eq!(ex2(-64.5), 0.0);
        for i in 0..6400 {
            let x = -(i as f32) / 100.0;
            assert!((f64::from(ex2(x)) / f64::from(x).exp2() - 1.0).abs() < 1.93e-7, "{x}");
        }
    }

    #[test]
    fn rounding_is_to_even() {
        assert_eq!([0.5, 1.5, -2.5, 2.6].map(rne), [0.0, 2.0, -2.0, 3.0]);
    }
}
