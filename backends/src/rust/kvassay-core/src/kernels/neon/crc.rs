//! CRC-32 by the instructions for this very polynomial, where the CPU has them (all of ARMv8.1 and later).

use std::arch::aarch64::{__crc32b, __crc32d};
use std::arch::is_aarch64_feature_detected;

pub fn crc32(crc: u32, data: &[u8]) -> u32 {
    if is_aarch64_feature_detected!("crc") {
        // SAFETY: the CPU has the instructions.
        unsafe { with_instructions(crc, data) }
    } else {
        crate::crc::crc32(crc, data)
    }
}

#[target_feature(enable = "crc")]
fn with_instructions(crc: u32, data: &[u8]) -> u32 {
    let (words, rest) = data.as_chunks::<8>();
    let crc = words.iter().fold(!crc, |crc, word| __crc32d(crc, u64::from_le_bytes(*word)));
    !rest.iter().fold(crc, |crc, byte| __crc32b(crc, *byte))
}
