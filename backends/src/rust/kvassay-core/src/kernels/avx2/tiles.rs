//! Tiles of 64 codes as two registers of bytes: lanes 0 to 7, lanes 8 to 15, four summands each.

use std::arch::x86_64::*;

use super::super::body;
use super::super::tiles::Codes;
use super::registers::{get_bytes, put_bytes, put_half};
use crate::codec::{Codec, Span};

/// What a code stands for, as bytes in both halves of a register, plus `offset`.
#[inline]
#[target_feature(enable = "avx2")]
pub fn table(span: &Span, offset: i8) -> __m256i {
    let bytes = span.table.map(|x| x + offset);
    // SAFETY: sixteen bytes are read.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// A tile as bytes of the table.
#[inline]
#[target_feature(enable = "avx2")]
pub fn decode<const BITS: usize>(tile: &[u8], table: __m256i) -> [__m256i; 2] {
    let [a, b] = codes::<BITS>(tile);
    [_mm256_shuffle_epi8(table, a), _mm256_shuffle_epi8(table, b)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn codes<const BITS: usize>(tile: &[u8]) -> [__m256i; 2] {
    match BITS {
        4 => {
            let tile: &[u8; 32] = tile.first_chunk().expect("a tile of 4 bits");
            // SAFETY: 32 bytes are read.
            let x = unsafe { _mm256_loadu_si256(tile.as_ptr().cast()) };
            let low = _mm256_set1_epi8(15);
            [_mm256_and_si256(x, low), _mm256_and_si256(_mm256_srli_epi16(x, 4), low)]
        }
        3 => {
            let tile: &[u8; 24] = tile.first_chunk().expect("a tile of 3 bits");
            let set = bits(tile[16..].first_chunk().expect("64 bits"));
            let low = two_bits(tile.first_chunk().expect("16 bytes"));
            let four = _mm256_set1_epi8(4);
            [
                _mm256_or_si256(low[0], _mm256_and_si256(set[0], four)),
                _mm256_or_si256(low[1], _mm256_and_si256(set[1], four)),
            ]
        }
        2 => two_bits(tile.first_chunk().expect("a tile of 2 bits")),
        _ => {
            let set = bits(tile.first_chunk().expect("a tile of 1 bit"));
            let one = _mm256_set1_epi8(1);
            [_mm256_and_si256(set[0], one), _mm256_and_si256(set[1], one)]
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn two_bits(tile: &[u8; 16]) -> [__m256i; 2] {
    // SAFETY: sixteen bytes are read.
    let x = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(tile.as_ptr().cast()) });
    // What comes in from the neighbouring byte is masked off.
    let first = _mm256_srlv_epi32(x, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
    let mask = _mm256_set1_epi8(3);
    [_mm256_and_si256(first, mask), _mm256_and_si256(_mm256_srli_epi32(first, 4), mask)]
}

/// Bytes of ones where the bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn bits(bits: &[u8; 8]) -> [__m256i; 2] {
    let x = _mm256_set1_epi64x(i64::from_le_bytes(*bits));
    let each = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let first = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let second = _mm256_add_epi8(first, _mm256_set1_epi8(4));
    let (a, b) = (_mm256_shuffle_epi8(x, first), _mm256_shuffle_epi8(x, second));
    [_mm256_cmpeq_epi8(_mm256_and_si256(a, each), each), _mm256_cmpeq_epi8(_mm256_and_si256(b, each), each)]
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

#[inline]
#[target_feature(enable = "avx2")]
fn pack(codes: &Codes, bits: usize, tile: &mut [u8]) {
    let [a, b] = codes.as_chunks().0 else { unreachable!("two registers of codes") };
    pack_registers([get_bytes(a), get_bytes(b)], bits, tile);
}

#[target_feature(enable = "avx2")]
pub fn pack_keys(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]) {
    body::pack_keys(codec, d, codes, tiles, |codes, bits, tile| pack(codes, bits, tile));
}

#[target_feature(enable = "avx2")]
pub fn pack_values(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]) {
    body::pack_values(codec, d, codes, tiles, |codes, bits, tile| pack(codes, bits, tile));
}
