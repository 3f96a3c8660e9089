//! Tiles of 64 codes as four registers of bytes: lanes 4 k .. 4 k + 3 in register k, four summands each.

use std::arch::aarch64::*;

use super::super::tiles::Codes;
use crate::codec::Span;

#[inline]
#[target_feature(enable = "neon")]
fn bytes(x: &[u8; 16]) -> uint8x16_t {
    // SAFETY: sixteen bytes are read.
    unsafe { vld1q_u8(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn put_bytes(out: &mut [u8; 16], x: uint8x16_t) {
    // SAFETY: sixteen bytes are written.
    unsafe { vst1q_u8(out.as_mut_ptr(), x) };
}

/// What the codes of a span stand for.
#[inline]
#[target_feature(enable = "neon")]
pub fn table(span: &Span) -> int8x16_t {
    // SAFETY: sixteen bytes are read.
    unsafe { vld1q_s8(span.table.as_ptr()) }
}

/// A tile as what its codes stand for.
#[inline]
#[target_feature(enable = "neon")]
pub fn decode<const BITS: usize>(tile: &[u8], table: int8x16_t) -> [int8x16_t; 4] {
    codes::<BITS>(tile).map(|codes| vqtbl1q_s8(table, codes))
}

#[inline]
#[target_feature(enable = "neon")]
fn codes<const BITS: usize>(tile: &[u8]) -> [uint8x16_t; 4] {
    match BITS {
        4 => {
            let tile: &[u8; 32] = tile.first_chunk().expect("a tile of 4 bits");
            let [a, b] = [0, 1].map(|i| bytes(&tile.as_chunks().0[i]));
            let low = vdupq_n_u8(15);
            [vandq_u8(a, low), vandq_u8(b, low), vshrq_n_u8::<4>(a), vshrq_n_u8::<4>(b)]
        }
        3 => {
            let tile: &[u8; 24] = tile.first_chunk().expect("a tile of 3 bits");
            let low = two_bits(tile.first_chunk().expect("16 bytes"));
            let set = set_bits(tile.last_chunk().expect("64 bits"));
            let four = vdupq_n_u8(4);
            [0, 1, 2, 3].map(|k| vorrq_u8(low[k], vandq_u8(set[k], four)))
        }
        2 => two_bits(tile.first_chunk().expect("a tile of 2 bits")),
        _ => set_bits(tile.first_chunk().expect("a tile of 1 bit")).map(|set| vshrq_n_u8::<7>(set)),
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn two_bits(tile: &[u8; 16]) -> [uint8x16_t; 4] {
    let (x, three) = (bytes(tile), vdupq_n_u8(3));
    [vandq_u8(x, three), vandq_u8(vshrq_n_u8::<2>(x), three), vandq_u8(vshrq_n_u8::<4>(x), three), vshrq_n_u8::<6>(x)]
}

/// Each of eight bytes' bits at its place.
#[inline]
#[target_feature(enable = "neon")]
fn each_bit() -> uint8x16_t {
    vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201))
}

/// Bytes of ones where the bit is set.
#[inline]
#[target_feature(enable = "neon")]
fn set_bits(bits: &[u8; 8]) -> [uint8x16_t; 4] {
    let x = vreinterpretq_u8_u64(vdupq_n_u64(u64::from_le_bytes(*bits)));
    [0, 2, 4, 6].map(|k| {
        let byte = vcombine_u8(vdup_n_u8(k), vdup_n_u8(k + 1));
        vtstq_u8(vqtbl1q_u8(x, byte), each_bit())
    })
}

/// One bit of each code: put at its place in a byte, eight add up to that byte.
#[inline]
#[target_feature(enable = "neon")]
fn gather(codes: [uint8x16_t; 4], bit: u8) -> [u8; 8] {
    let x = codes.map(|codes| vandq_u8(vtstq_u8(codes, vdupq_n_u8(bit)), each_bit()));
    let four = vpaddq_u8(vpaddq_u8(x[0], x[1]), vpaddq_u8(x[2], x[3]));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(four, four))).to_le_bytes()
}

/// Shifts that insert keep what lies below and drop what lies above the code: no mask is needed.
#[inline]
#[target_feature(enable = "neon")]
pub fn pack(codes: &Codes, bits: usize, tile: &mut [u8]) {
    let c = [0, 1, 2, 3].map(|k| bytes(&codes.as_chunks().0[k]));
    match bits {
        4 => {
            let (tile, _) = tile.as_chunks_mut();
            put_bytes(&mut tile[0], vsliq_n_u8::<4>(c[0], c[2]));
            put_bytes(&mut tile[1], vsliq_n_u8::<4>(c[1], c[3]));
        }
        2 | 3 => {
            let (low, high) = (vsliq_n_u8::<2>(c[0], c[1]), vsliq_n_u8::<2>(c[2], c[3]));
            put_bytes(tile.first_chunk_mut().expect("16 bytes"), vsliq_n_u8::<4>(low, high));
            if bits == 3 {
                tile[16..24].copy_from_slice(&gather(c, 4));
            }
        }
        _ => tile[..8].copy_from_slice(&gather(c, 1)),
    }
}
