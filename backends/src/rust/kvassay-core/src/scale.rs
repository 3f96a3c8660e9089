//! Scales of a page and KV head as they are stored (numeric contract, section 5, step 4).

use crate::arith::rne;
use crate::half;
use crate::spec::{SCALE_FP16, SCALE_U8};

const FULL: [u32; 16] = [
    0x1000000, 0xea4afa, 0xd5818e, 0xc199be, 0xae89fa, 0x9c4918, 0x8ace54, 0x7a1148, 0x6a09e6, 0x5ab07e, 0x4bfdae,
    0x3dea64, 0x306fe0, 0x2387a6, 0x172b84, 0x0b5586,
];
const HALF: [u32; 16] = [
    0xf50766, 0xdfc974, 0xcb720e, 0xb7f770, 0xa5503c, 0x93737c, 0x82589a, 0x71f75e, 0x6247ec, 0x5342b6, 0x44e086,
    0x371a74, 0x29e9e0, 0x1d4874, 0x11301e, 0x059b0e,
];

/// `u`-th entry: `table[k mod 16] * 2^-(k div 16)` with k = 255 - u, and 0 for u = 0. The table has the 24 bits after
/// the point of a number in [1/2, 1) (0x1000000: of 1).
const fn spread(table: &[u32; 16]) -> [f32; 256] {
    let mut out = [0.0; 256];
    let mut u = 1;
    while u < 256 {
        let k = 255 - u;
        out[u] = f32::from_bits(((126 - k as u32 / 16) << 23) + (table[k % 16] >> 1));
        u += 1;
    }
    out
}

static READ: [f32; 256] = spread(&FULL);
static LIMIT: [f32; 256] = spread(&HALF);

/// Stores scales; the largest goes to `maximum`, which is empty where none is stored.
pub fn store(kind: u8, scales: &[f32], out: &mut [u8], maximum: &mut [u8]) {
    if kind == SCALE_FP16 {
        for (i, s) in scales.iter().enumerate() {
            half::put(out, i, half::narrow(*s));
        }
        return;
    }
    let largest = scales.iter().fold(0.0f32, |most, s| if *s > most { *s } else { most });
    maximum.copy_from_slice(&largest.to_le_bytes());
    let factor = 255.0 / largest;
    for (s, out) in scales.iter().zip(out) {
        *out = if largest == 0.0 {
            0
        } else if kind == SCALE_U8 {
            rne(s * factor) as u8
        } else {
            let ratio = s / largest;
            LIMIT[1..].partition_point(|limit| ratio >= *limit) as u8
        };
    }
}

/// Reads scales back: `su` of each; the result is `unit`.
#[inline(always)]
pub fn load(kind: u8, stored: &[u8], maximum: &[u8], su: &mut [f32]) -> f32 {
    if kind == SCALE_FP16 {
        for (i, su) in su.iter_mut().enumerate() {
            *su = half::widen(half::get(stored, i));
        }
        return 1.0;
    }
    let largest = f32::from_le_bytes(*maximum.first_chunk().expect("a maximum of four bytes"));
    if kind == SCALE_U8 {
        for (su, u) in su.iter_mut().zip(stored) {
            *su = f32::from(*u);
        }
        return largest * (1.0 / 255.0f64) as f32;
    }
    for (su, u) in su.iter_mut().zip(stored) {
        *su = READ[usize::from(*u)];
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_powers() {
        for u in 1..256 {
            let exact = 2f64.powf(-(255.0 - u as f64) / 16.0);
            assert_eq!(READ[u], exact as f32, "{u}");
            assert_eq!(LIMIT[u], 2f64.powf(-(255.5 - u as f64) / 16.0) as f32, "{u}");
        }
    }
}
