//! Tiles of 64 codes as one register of bytes: what each code stands for, plus `OFFSET`, lane by lane.

use super::simd::*;
use crate::codec::Span;

/// Makes whatever a code stands for an unsigned byte of 7 bits.
pub const OFFSET: i32 = 64;

/// What codes stand for: those below 4, or all; and those from 4 on.
#[derive(Clone, Copy)]
pub struct Tables {
    low: __m512i,
    high: __m512i,
}

#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
pub fn tables(span: &Span) -> Tables {
    let bytes = span.table.map(|x| (i32::from(x) + OFFSET) as u8);
    let (low, high) = match span.bits {
        1 => ([bytes[0]; 16], [bytes[1]; 16]),
        _ => (bytes, std::array::from_fn(|i| bytes[4 + i % 4])),
    };
    Tables { low: broadcast(&low), high: broadcast(&high) }
}

#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f"))]
fn broadcast(bytes: &[u8; 16]) -> __m512i {
    // SAFETY: sixteen bytes are read.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// A broadcast shifted by 0 and 4, or by 0, 2, 4 and 6, has every code at the bottom of its byte; what lies above it
/// is masked off.
#[inline]
#[cfg_attr(not(kvassay_emulate), target_feature(enable = "avx512f,avx512bw,avx2"))]
#[cfg_attr(kvassay_emulate, target_feature(enable = "avx2"))]
pub fn decode<const BITS: usize>(tile: &[u8], tables: Tables) -> __m512i {
    match BITS {
        1 => _mm512_mask_blend_epi8(bits(tile), tables.low, tables.high),
        4 => {
            let tile: &[u8; 32] = tile.first_chunk().expect("a tile of 4 bits");
            // SAFETY: 32 bytes are read.
            let x = _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(tile.as_ptr().cast()) });
            let shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
            let index = _mm512_and_si512(_mm512_srlv_epi32(x, shifts), _mm512_set1_epi8(15));
            _mm512_shuffle_epi8(tables.low, index)
        }
        _ => {
            let x = broadcast(tile.first_chunk().expect("sixteen bytes of a tile"));
            let shifts = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
            let index = _mm512_and_si512(_mm512_srlv_epi32(x, shifts), _mm512_set1_epi8(3));
            let u = _mm512_shuffle_epi8(tables.low, index);
            if BITS == 2 { u } else { _mm512_mask_shuffle_epi8(u, bits(&tile[16..]), tables.high, index) }
        }
    }
}

/// `sum` and, a lane, the four products of unsigned bytes of u and signed ones of q: `vpdpbusd` of AVX-512 VNNI. As
/// the instruction, not the intrinsic, which the code of the variant without it could not be shared with.
#[cfg(not(kvassay_emulate))]
#[inline]
#[target_feature(enable = "avx512f")]
pub fn dot(mut sum: __m512i, u: __m512i, q: __m512i) -> __m512i {
    // SAFETY: registers alone; the variant that comes here is there only where the CPU has the instruction.
    unsafe {
        std::arch::asm!(
            "vpdpbusd {0}, {1}, {2}",
            inout(zmm_reg) sum, in(zmm_reg) u, in(zmm_reg) q, options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

#[cfg(kvassay_emulate)]
pub use super::emulated::_mm512_dpbusd_epi32 as dot;

#[inline]
fn bits(tile: &[u8]) -> u64 {
    u64::from_le_bytes(*tile.first_chunk().expect("64 bits"))
}
