//! IEEE binary16, little endian, in bytes.

/// The largest magnitude of binary16.
pub const LARGEST: f32 = 65504.0;

/// `f32(h)`: exact.
#[inline(always)]
pub fn widen(h: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(h & 0x7fff) << 13) * f32::from_bits(0x7780_0000); // 2^112
    f32::from_bits(magnitude.to_bits() | u32::from(h & 0x8000) << 16)
}

/// `f16s(x)`: to nearest even with subnormals kept; overflow becomes 65504.
#[inline(always)]
pub fn narrow(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Below 2^-14 adding 0.5 rounds to the unit of subnormals; above, the bits are rounded as an integer.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = magnitude >> 13 & 1;
    let large = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let rounded = if magnitude < 0x3880_0000 { small } else { large.min(0x7bff) };
    (rounded | bits >> 16 & 0x8000) as u16
}

/// Entry `i` of an array of binary16.
#[inline(always)]
pub fn get(bytes: &[u8], i: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

/// Writes entry `i` of an array of binary16.
#[inline(always)]
pub fn put(bytes: &mut [u8], i: usize, h: u16) {
    bytes[2 * i..2 * i + 2].copy_from_slice(&h.to_le_bytes());
}

/// Neither NaN nor infinite.
#[inline(always)]
pub fn is_finite(h: u16) -> bool {
    h & 0x7c00 != 0x7c00
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives() {
        for h in (0..=u16::MAX).filter(|h| is_finite(*h)) {
            assert_eq!(narrow(widen(h)), h, "{h:#x}");
        }
    }

    #[test]
    fn ties_go_to_even_and_overflow_saturates() {
        assert_eq!(narrow(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(narrow(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!(narrow(2f32.powi(-25)), 0);
        assert_eq!(narrow(-3.0 * 2f32.powi(-25)), 0x8002);
        assert_eq!(narrow(65520.0), 0x7bff);
        assert_eq!(narrow(f32::NEG_INFINITY), 0xfbff);
        assert_eq!(widen(1), 2f32.powi(-24));
    }
}
