//! Integer dot products over tiles. Multipliers of 7 bits are one plane of bytes, those of 15 bits two, of which the
//! sums stay apart until the end.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::Queries;
use super::super::body::MOST_ROW;
use super::codes::table;
use super::tiles::decode;
use crate::codec::{Codec, Span};
use crate::transform::MOST_CHANNELS;

/// Planes of one pass: sixteen sums, eight decoded registers and the rest fit 32.
const PLANES: usize = 4;
/// Sixteen lanes of each plane.
type Sums<const N: usize> = [[int32x4_t; 4]; N];

#[inline]
#[target_feature(enable = "neon")]
fn zeros<const N: usize>() -> Sums<N> {
    [[vdupq_n_s32(0); 4]; N]
}

#[inline]
#[target_feature(enable = "neon")]
fn store(sums: &[int32x4_t], out: &mut [i32]) {
    for (sum, out) in sums.iter().zip(out.as_chunks_mut::<4>().0) {
        // SAFETY: four numbers are written.
        unsafe { vst1q_s32(out.as_mut_ptr(), *sum) };
    }
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

/// A run of tiles, an even number of them. Each takes the next `STEP` quads: with two, one for each half of its lanes.
#[inline(never)] // in one body the constants of all cases stay in registers and the sums do not
#[target_feature(enable = "neon")]
fn add_run<const DOT: bool, const N: usize, const BITS: usize, const STEP: usize>(
    table: int8x16_t,
    tiles: &[u8],
    planes: [&[i8]; N],
    sums: &mut Sums<N>,
) {
    let planes = planes.map(|plane| plane.as_chunks::<4>().0);
    let count = tiles.len() / (8 * BITS);
    assert!(count % 2 == 0 && planes.iter().all(|plane| plane.len() >= STEP * count));
    let mut local = *sums;
    for (n, pair) in tiles.chunks_exact(16 * BITS).enumerate() {
        let (first, second) = pair.split_at(8 * BITS);
        let x = [decode::<BITS>(first, table), decode::<BITS>(second, table)];
        let quad = 2 * STEP * n;
        let at = if STEP == 1 { [quad, quad + 1, quad, quad + 1] } else { [quad, quad + 2, quad + 1, quad + 3] };
        for (plane, sums) in planes.iter().zip(&mut local) {
            add_tiles::<DOT>(&x, plane, at, sums);
        }
    }
    *sums = local;
}

#[inline]
#[target_feature(enable = "neon")]
fn add_span<const DOT: bool, const N: usize, const STEP: usize>(
    span: &Span,
    tiles: &[u8],
    planes: [&[i8]; N],
    sums: &mut Sums<N>,
) {
    let table = table(span);
    match span.bits {
        1 => add_run::<DOT, N, 1, STEP>(table, tiles, planes, sums),
        2 => add_run::<DOT, N, 2, STEP>(table, tiles, planes, sums),
        3 => add_run::<DOT, N, 3, STEP>(table, tiles, planes, sums),
        _ => add_run::<DOT, N, 4, STEP>(table, tiles, planes, sums),
    }
}

/// The sums of each sixteen tokens, which `done` gets.
#[inline]
#[target_feature(enable = "neon")]
fn each_block<const DOT: bool, const N: usize>(
    codec: &Codec,
    tiles: &[u8],
    planes: [&[i8]; N],
    mut done: impl FnMut(usize, Sums<N>),
) {
    for (block, mut tiles) in tiles.chunks_exact(codec.bytes(16)).enumerate() {
        let mut sums = zeros::<N>();
        for span in codec.spans() {
            let (run, rest) = tiles.split_at(span.bytes(16));
            tiles = rest;
            let planes = planes.map(|plane| &plane[span.first..span.first + span.channels]);
            add_span::<DOT, N, 1>(span, run, planes, &mut sums);
        }
        done(16 * block, sums);
    }
}

#[target_feature(enable = "neon")]
pub fn keyscan<const DOT: bool>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
    let tiles = &tiles[..codec.bytes(tokens)];
    for (q, out) in q.qi.chunks(PLANES * d).zip(out.chunks_mut(PLANES * tokens)) {
        match q.len() / d {
            1 => keyscan_rows::<DOT, 1>(codec, d, tiles, tokens, q, out),
            2 => keyscan_rows::<DOT, 2>(codec, d, tiles, tokens, q, out),
            3 => keyscan_rows::<DOT, 3>(codec, d, tiles, tokens, q, out),
            _ => keyscan_rows::<DOT, 4>(codec, d, tiles, tokens, q, out),
        }
    }
}

#[target_feature(enable = "neon")]
fn keyscan_rows<const DOT: bool, const R: usize>(
    codec: &Codec,
    d: usize,
    tiles: &[u8],
    tokens: usize,
    q: &[i8],
    out: &mut [i32],
) {
    let rows: [&[i8]; R] = std::array::from_fn(|r| &q[r * d..(r + 1) * d]);
    each_block::<DOT, R>(codec, tiles, rows, |token, sums| {
        for (r, sums) in sums.iter().enumerate() {
            store(sums, &mut out[r * tokens + token..]);
        }
    });
}

/// Rows of multipliers of up to 15 bits as planes, x = 128 * second + first, with first in 0 .. 127 and second within
/// -127 .. 127.
struct Planes<const MOST: usize>([[[i8; MOST]; 2]; 2]);

impl<const MOST: usize> Planes<MOST> {
    fn of(x: &[i16], n: usize) -> Self {
        let mut planes = [[[0; MOST]; 2]; 2];
        for (x, [first, second]) in x.chunks_exact(n).zip(&mut planes) {
            for ((x, first), second) in x.iter().zip(first).zip(second) {
                (*first, *second) = ((*x & 127) as i8, (*x >> 7) as i8);
            }
        }
        Self(planes)
    }

    /// The first N planes.
    fn get<const N: usize>(&self, n: usize) -> [&[i8]; N] {
        std::array::from_fn(|i| &self.0[i / 2][i % 2][..n])
    }
}

/// The sums of a row from those of its planes.
#[inline]
#[target_feature(enable = "neon")]
fn joined(planes: &[[int32x4_t; 4]; 2]) -> [int32x4_t; 4] {
    [0, 1, 2, 3].map(|k| vaddq_s32(planes[0][k], vshlq_n_s32::<7>(planes[1][k])))
}

#[target_feature(enable = "neon")]
pub fn keyscan15<const DOT: bool>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    let tiles = &tiles[..codec.bytes(tokens)];
    for (q, out) in q.chunks(2 * d).zip(out.chunks_mut(2 * tokens)) {
        let planes = Planes::<MOST_CHANNELS>::of(q, d);
        match q.len() / d {
            1 => keyscan15_rows::<DOT, 2>(codec, tiles, tokens, planes.get(d), out),
            _ => keyscan15_rows::<DOT, 4>(codec, tiles, tokens, planes.get(d), out),
        }
    }
}

#[target_feature(enable = "neon")]
fn keyscan15_rows<const DOT: bool, const N: usize>(
    codec: &Codec,
    tiles: &[u8],
    tokens: usize,
    planes: [&[i8]; N],
    out: &mut [i32],
) {
    each_block::<DOT, N>(codec, tiles, planes, |token, sums| {
        for (r, planes) in sums.as_chunks::<2>().0.iter().enumerate() {
            store(&joined(planes), &mut out[r * tokens + token..]);
        }
    });
}

#[target_feature(enable = "neon")]
pub fn valuesum<const DOT: bool>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(2 * tokens).zip(out.chunks_mut(2 * span.channels)) {
        let planes = Planes::<MOST_ROW>::of(w, tokens);
        match w.len() / tokens {
            1 => valuesum_rows::<DOT, 2>(span, tiles, planes.get(tokens), out),
            _ => valuesum_rows::<DOT, 4>(span, tiles, planes.get(tokens), out),
        }
    }
}

#[target_feature(enable = "neon")]
fn valuesum_rows<const DOT: bool, const N: usize>(span: &Span, tiles: &[u8], planes: [&[i8]; N], out: &mut [i32]) {
    let group_bytes = planes[0].len() * 2 * span.bits;
    for channel in (0..span.channels).step_by(16) {
        let tiles = &tiles[channel / 16 * group_bytes..];
        let mut sums = zeros::<N>();
        // In a group of eight channels the upper lanes are the same ones, of other tokens.
        let eight = span.channels - channel < 16;
        if eight {
            add_span::<DOT, N, 2>(span, &tiles[..group_bytes / 2], planes, &mut sums);
        } else {
            add_span::<DOT, N, 1>(span, &tiles[..group_bytes], planes, &mut sums);
        }
        for (r, planes) in sums.as_chunks::<2>().0.iter().enumerate() {
            let (x, out) = (joined(planes), &mut out[r * span.channels + channel..]);
            if eight {
                store(&[vaddq_s32(x[0], x[2]), vaddq_s32(x[1], x[3])], out);
            } else {
                store(&x, out);
            }
        }
    }
}
