//! Tiles of 64 codes as two registers of bytes: lanes 0 to 7, lanes 8 to 15, four summands each.

use std::arch::asm;
use std::arch::x86_64::*;

use super::registers::{get_bytes, get_half, put_bytes, put_half, twice};
use crate::codec::Span;

/// Constants as full registers in memory, which the compiler cannot see through: sums take the registers, and what it
/// would make again for each tile, a number repeated, costs more than a load.
#[repr(align(32))]
pub struct Masks {
    nibble: [u8; 32],
    three: [u8; 32],
    twelve: [u8; 32],
    /// Which byte of four, and which bit of it.
    byte: [u8; 32],
    bit: [u8; 32],
    pub low_byte: [u8; 32],
}

pub static MASKS: Masks = {
    let mut masks =
        Masks { nibble: [15; 32], three: [3; 32], twelve: [12; 32], byte: [0; 32], bit: [0; 32], low_byte: [0; 32] };
    let mut i = 0;
    while i < 32 {
        masks.byte[i] = i as u8 / 8;
        masks.bit[i] = 1 << (i % 8);
        masks.low_byte[i] = if i % 2 == 0 { 255 } else { 0 };
        i += 1;
    }
    masks
};

/// The same, of which nothing is known, not even that they are the same each time.
#[inline]
pub fn opaque(masks: &'static Masks) -> &'static Masks {
    let mut at: *const Masks = masks;
    // SAFETY: there are no instructions: the pointer stays as it is.
    unsafe {
        asm!("/* {0} */", inout(reg) at, options(readonly, nostack, preserves_flags));
        &*at
    }
}

/// What codes stand for less what code 0 does, which fits a byte without sign. Of three bits there are two tables, one
/// of codes from 4 on at `4 * (code & 3)`, the other, at the byte before, of those below; code 0 finds nothing, which
/// is 0. Of one bit it is what code 1 has, in each byte.
#[inline]
#[target_feature(enable = "avx2")]
pub fn table<const BITS: usize>(span: &Span) -> __m256i {
    let above = _mm256_sub_epi8(twice(&span.table), _mm256_set1_epi8(span.table[0]));
    match BITS {
        1 => _mm256_set1_epi8(span.table[1] - span.table[0]),
        3 => _mm256_shuffle_epi8(above, twice(&[4, -1, -1, 1, 5, -1, -1, 2, 6, -1, -1, 3, 7, -1, -1, -1])),
        _ => above,
    }
}

/// A tile as bytes of the table.
#[inline]
#[target_feature(enable = "avx2")]
pub fn decode<const BITS: usize>(tile: &[u8], table: __m256i) -> [__m256i; 2] {
    let masks = opaque(&MASKS);
    let [a, b] = match BITS {
        1 => {
            let [a, b] = clear(tile.first_chunk().expect("a tile of 1 bit"), masks);
            return [_mm256_andnot_si256(a, table), _mm256_andnot_si256(b, table)];
        }
        2 => two_bits(tile, masks),
        3 => three_bits(tile, masks),
        _ => {
            let x = get_bytes(tile.first_chunk().expect("a tile of 4 bits"));
            let low = get_bytes(&masks.nibble);
            [_mm256_and_si256(x, low), _mm256_and_si256(_mm256_srli_epi16::<4>(x), low)]
        }
    };
    [_mm256_shuffle_epi8(table, a), _mm256_shuffle_epi8(table, b)]
}

/// The first sixteen bytes, twice.
#[inline]
#[target_feature(enable = "avx2")]
fn sixteen(tile: &[u8]) -> __m256i {
    _mm256_broadcastsi128_si256(get_half(tile.first_chunk().expect("a tile of 2 or 3 bits")))
}

#[inline]
#[target_feature(enable = "avx2")]
fn two_bits(tile: &[u8], masks: &Masks) -> [__m256i; 2] {
    let x = sixteen(tile);
    // What comes in from the neighbouring byte is masked off.
    let first = _mm256_srlv_epi32(x, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
    let second = _mm256_srlv_epi32(x, _mm256_setr_epi32(4, 4, 4, 4, 6, 6, 6, 6));
    let mask = get_bytes(&masks.three);
    [_mm256_and_si256(first, mask), _mm256_and_si256(second, mask)]
}

/// Four times the low two bits, less one where the high bit is clear.
#[inline]
#[target_feature(enable = "avx2")]
fn three_bits(tile: &[u8], masks: &Masks) -> [__m256i; 2] {
    let x = sixteen(tile);
    let first = _mm256_sllv_epi32(x, _mm256_setr_epi32(2, 2, 2, 2, 0, 0, 0, 0));
    let second = _mm256_srlv_epi32(x, _mm256_setr_epi32(2, 2, 2, 2, 4, 4, 4, 4));
    let mask = get_bytes(&masks.twelve);
    let [a, b] = clear(tile[16..].first_chunk().expect("64 bits"), masks);
    [_mm256_add_epi8(_mm256_and_si256(first, mask), a), _mm256_add_epi8(_mm256_and_si256(second, mask), b)]
}

/// Bytes of ones where the bit is clear.
#[inline]
#[target_feature(enable = "avx2")]
fn clear(bits: &[u8; 8], masks: &Masks) -> [__m256i; 2] {
    let [a, b] = bits.as_chunks::<4>().0 else { unreachable!("two times 32 bits") };
    let (byte, each) = (get_bytes(&masks.byte), get_bytes(&masks.bit));
    let a = _mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(*a)), byte);
    let b = _mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(*b)), byte);
    [_mm256_cmpeq_epi8(_mm256_andnot_si256(a, each), each), _mm256_cmpeq_epi8(_mm256_andnot_si256(b, each), each)]
}

/// Sixty-four codes to a tile.
#[inline]
#[target_feature(enable = "avx2")]
pub fn pack_registers([a, b]: [__m256i; 2], bits: usize, tile: &mut [u8]) {
    if bits == 4 {
        let tile = tile.first_chunk_mut().expect("a tile of 4 bits");
        put_bytes(_mm256_or_si256(a, _mm256_slli_epi16::<4>(b)), tile);
        return;
    }
    if bits > 1 {
        let three = _mm256_set1_epi8(3);
        let high = _mm256_slli_epi16::<4>(_mm256_and_si256(b, three));
        let both = _mm256_or_si256(_mm256_and_si256(a, three), high);
        let (even, odd) = (_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
        let low = _mm_or_si128(even, _mm_slli_epi16::<2>(odd));
        put_half(low, tile.first_chunk_mut().expect("a tile of 2 or 3 bits"));
    }
    if bits != 2 {
        // What comes in from the neighbouring byte is below the bit that is looked at.
        let shift = _mm_cvtsi32_si128(8 - bits as i32);
        let low = _mm256_movemask_epi8(_mm256_sll_epi16(a, shift)) as u32;
        let high = _mm256_movemask_epi8(_mm256_sll_epi16(b, shift)) as u32;
        let plane = u64::from(low) | u64::from(high) << 32;
        let at = if bits == 3 { 16 } else { 0 };
        tile[at..at + 8].copy_from_slice(&plane.to_le_bytes());
    }
}
