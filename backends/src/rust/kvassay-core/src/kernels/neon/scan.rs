//! Integer dot products over tiles. Multipliers of 7 bits are one plane of bytes, those of 15 bits two, of which the
//! sums stay apart until the end.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::sums::each_block;
use super::super::{Queries, TOGETHER, for_rows, sums};
use super::tiles::{decode, table};
use crate::codec::{Codec, Span};

/// Sixteen lanes of N planes.
#[derive(Clone, Copy)]
struct Sums<const N: usize, const DOT: bool>([[int32x4_t; 4]; N]);

impl<const N: usize, const DOT: bool> Sums<N, DOT> {
    /// The sums of a row from those of its planes.
    #[inline(always)]
    fn joined(self) -> [int32x4_t; 4] {
        // SAFETY: every aarch64 has the instructions.
        [0, 1, 2, 3].map(|k| unsafe {
            if N == 1 { self.0[0][k] } else { vaddq_s32(self.0[0][k], vshlq_n_s32::<7>(self.0[N - 1][k])) }
        })
    }
}

impl<const N: usize, const DOT: bool> sums::Sums for Sums<N, DOT> {
    // With two planes each: sixteen sums, eight decoded registers and the rest fit 32.
    const ROWS: usize = 2;

    #[inline(always)]
    fn new(start: i32, _: bool) -> Self {
        // SAFETY: every aarch64 has the instruction.
        Self([[unsafe { vdupq_n_s32(start) }; 4]; N])
    }
    #[inline(always)]
    fn start(_: &Span, _: &[i16]) -> i32 {
        0
    }
    #[inline(always)]
    fn add<const R: usize, const BITS: usize, const STEP: usize>(
        span: &Span,
        tiles: &[u8],
        w: [&[i16]; R],
        sums: &mut [Self; R],
    ) {
        assert!(R <= 2);
        // SAFETY: every aarch64 has the instructions, and a variant with the dot product runs only where it is.
        unsafe { add_run::<DOT, R, N, BITS, STEP>(table(span), tiles, w.map(bytes_of), sums) }
    }
    #[inline(always)]
    fn store(self, out: &mut [i32; 16]) {
        for (sum, out) in self.joined().iter().zip(out.as_chunks_mut::<4>().0) {
            // SAFETY: four numbers are written.
            unsafe { vst1q_s32(out.as_mut_ptr(), *sum) };
        }
    }
    #[inline(always)]
    fn store_half(self, out: &mut [i32; 8]) {
        let x = self.joined();
        for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            // SAFETY: four numbers are written.
            unsafe { vst1q_s32(out.as_mut_ptr(), vaddq_s32(x[i], x[i + 2])) };
        }
    }
}

/// Words as `planes` left them.
fn bytes_of(w: &[i16]) -> &[i8] {
    // SAFETY: as many bytes, of which any bits are a value.
    unsafe { std::slice::from_raw_parts(w.as_ptr().cast(), 2 * w.len()) }
}

/// `sum` and four products a lane, by the instruction of ARMv8.2, which Rust has no stable intrinsic for.
#[inline]
#[target_feature(enable = "neon")]
fn dot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: registers alone; the variant that comes here is there only where the CPU has the instruction.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sum, in(vreg) a, in(vreg) b, options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// `sum + a * qa + b * qb`, four summands a lane. Without the dot product, two products of 7 bits and at most 63, and
/// then four, fit 16 bits (4 * 127 * 63 = 32004).
#[inline]
#[target_feature(enable = "neon")]
fn add_pair<const DOT: bool>(sum: int32x4_t, a: int8x16_t, b: int8x16_t, qa: int8x16_t, qb: int8x16_t) -> int32x4_t {
    if DOT {
        return dot(dot(sum, a, qa), b, qb);
    }
    let low = vmlal_s8(vmull_s8(vget_low_s8(a), vget_low_s8(qa)), vget_low_s8(b), vget_low_s8(qb));
    let high = vmlal_high_s8(vmull_high_s8(a, qa), b, qb);
    vpadalq_s16(sum, vpaddq_s16(low, high))
}

/// Two tiles times one plane. Lanes 0 to 7 take the quads of multipliers `at[0]` and `at[1]`, the others `at[2]` and
/// `at[3]`.
#[inline]
#[target_feature(enable = "neon")]
fn add_tiles<const DOT: bool>(x: &[[int8x16_t; 4]; 2], quads: &[[i8; 4]], at: [usize; 4], sums: &mut [int32x4_t; 4]) {
    let quad = at.map(|i| {
        // SAFETY: `add_run` has counted the quads.
        let quad = unsafe { *quads.get_unchecked(i) };
        vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(quad.map(|x| x as u8))))
    });
    for k in 0..4 {
        let q = k / 2 * 2;
        sums[k] = add_pair::<DOT>(sums[k], x[0][k], x[1][k], quad[q], quad[q + 1]);
    }
}

/// A run of tiles, an even number of them, times rows of quads, N planes of each in turn. Each tile takes the next `STEP`
/// quads: with two, one for each half of its lanes.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[target_feature(enable = "neon")]
fn add_run<const DOT: bool, const R: usize, const N: usize, const BITS: usize, const STEP: usize>(
    table: int8x16_t,
    tiles: &[u8],
    rows: [&[i8]; R],
    sums: &mut [Sums<N, DOT>; R],
) {
    let rows = rows.map(|row| row.as_chunks::<4>().0);
    let count = tiles.len() / (8 * BITS);
    assert!(count % 2 == 0 && rows.iter().all(|row| row.len() >= N * STEP * count));
    let mut local = *sums;
    for (n, pair) in tiles.chunks_exact(16 * BITS).enumerate() {
        let (first, second) = pair.split_at(8 * BITS);
        let x = [decode::<BITS>(first, table), decode::<BITS>(second, table)];
        let quad = 2 * STEP * n;
        let at = if STEP == 1 { [quad, quad + 1, quad, quad + 1] } else { [quad, quad + 2, quad + 1, quad + 3] };
        for (row, Sums(sums)) in rows.iter().zip(&mut local) {
            for (plane, sums) in sums.iter_mut().enumerate() {
                add_tiles::<DOT>(&x, row, at.map(|quad| N * quad + plane), sums);
            }
        }
    }
    *sums = local;
}

#[target_feature(enable = "neon")]
pub fn keyscan<const DOT: bool>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
    for (q, out) in q.qi.chunks(TOGETHER * d).zip(out.chunks_mut(TOGETHER * tokens)) {
        for_rows!(q.len() / d, keyscan_rows::<DOT>(codec, tiles, q, out));
    }
}

#[target_feature(enable = "neon")]
fn keyscan_rows<const DOT: bool, const R: usize>(codec: &Codec, tiles: &[u8], q: &[i8], out: &mut [i32]) {
    let rows: [&[i8]; R] = sums::rows(q);
    each_block::<Sums<1, DOT>, R>(codec, tiles, [0; R], out, |span, tiles, sums| {
        let (table, rows) = (table(span), sums::of_span(span, rows));
        match span.bits {
            1 => add_run::<DOT, R, 1, 1, 1>(table, tiles, rows, sums),
            2 => add_run::<DOT, R, 1, 2, 1>(table, tiles, rows, sums),
            3 => add_run::<DOT, R, 1, 3, 1>(table, tiles, rows, sums),
            _ => add_run::<DOT, R, 1, 4, 1>(table, tiles, rows, sums),
        }
    });
}

#[target_feature(enable = "neon")]
pub fn keyscan15<const DOT: bool>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    sums::keyscan15::<Sums<2, DOT>>(codec, d, tiles, tokens, q, out);
}

#[target_feature(enable = "neon")]
pub fn valuesum<const DOT: bool>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    sums::valuesum::<Sums<2, DOT>>(span, tiles, tokens, w, out);
}
