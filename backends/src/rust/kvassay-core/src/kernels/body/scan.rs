//! Integer dot products over tiles: key scans and sums of values.

use super::Isa;
use crate::codec::{Codec, Span};
use crate::kernels::Queries;
use crate::kernels::tiles::unpack;
use crate::transform::MOST_CHANNELS;

/// What the codes of a tile stand for.
type Words = [i16; 64];
/// Tiles that are decoded at once.
const TILES: usize = 32;

/// What a span's codes stand for, without a table, so that sixteen codes are worked on at once: codes themselves, or
/// signed sizes. The size of half a table is a sum over the sets of bits of its index, each with its coefficient.
#[derive(Clone, Copy)]
enum Meaning {
    Code,
    Signed([u8; 8]),
}

impl Meaning {
    fn of(span: &Span) -> Self {
        if span.table[0] == 0 {
            return Self::Code;
        }
        let half = 1 << (span.bits - 1);
        let mut c = [0u8; 8];
        for (c, size) in c.iter_mut().zip(&span.table[half..2 * half]) {
            *c = *size as u8;
        }
        for bit in [1, 2, 4] {
            for set in (0..8).filter(|set| set & bit != 0) {
                c[set] = c[set].wrapping_sub(c[set ^ bit]);
            }
        }
        Self::Signed(c)
    }
}

/// What a code stands for, as a byte: the lower half of the table mirrors the upper.
#[inline(always)]
fn signed<const BITS: usize>(c: &[u8; 8], code: u8) -> u8 {
    let negative = (code >> (BITS - 1) & 1).wrapping_sub(1);
    let bit = |i: usize| (code >> i & 1).wrapping_neg() ^ negative;
    let four = |c: &[u8]| {
        let (a, b) = (bit(0), bit(1));
        c[0].wrapping_add(a & c[1]).wrapping_add(b & c[2]).wrapping_add(a & b & c[3])
    };
    let size = match BITS {
        1 => c[0],
        2 => c[0].wrapping_add(bit(0) & c[1]),
        3 => four(&c[..4]),
        _ => four(&c[..4]).wrapping_add(bit(2) & four(&c[4..])),
    };
    (size ^ negative).wrapping_sub(negative)
}

#[inline(always)]
fn decode<const BITS: usize>(meaning: Meaning, tiles: &[u8], out: &mut [Words; TILES]) {
    for (tile, out) in tiles.chunks_exact(8 * BITS).zip(out) {
        let mut codes = unpack::<BITS>(tile);
        if let Meaning::Signed(c) = &meaning {
            for code in &mut codes {
                *code = signed::<BITS>(c, *code);
            }
        }
        for (out, code) in out.iter_mut().zip(codes) {
            *out = i16::from(code as i8);
        }
    }
}

/// A lane's four words, twice: what eight products take.
type Quad = [i16; 8];
/// Sums of pairs: two of each lane.
type Sums = [i32; 32];

/// Adds products of all words of tiles; of each tile the lower half with quad `STEP n`, the upper with the next if
/// `STEP` is 2. Products next to each other are added first, which many CPUs do in one instruction.
#[inline(always)]
fn add_words<const STEP: usize>(x: &[Words], w: &[Quad], sums: &mut Sums) {
    let mut own = *sums;
    for (x, w) in x.iter().zip(w.as_chunks::<STEP>().0) {
        for (k, (x, sums)) in x.as_chunks::<8>().0.iter().zip(own.as_chunks_mut::<4>().0).enumerate() {
            let w = &w[k / 4 * (STEP - 1)];
            let mut products = [0; 8];
            for i in 0..8 {
                products[i] = i32::from(x[i]) * i32::from(w[i]);
            }
            for i in 0..4 {
                sums[i] += products[2 * i] + products[2 * i + 1];
            }
        }
    }
    *sums = own;
}

/// A run of tiles of a span, for rows of w of which each tile takes `4 * step` words.
#[inline(always)]
fn add_run(span: &Span, tiles: &[u8], w: &[i16], stride: usize, step: usize, sums: &mut [Sums]) {
    let meaning = Meaning::of(span);
    let mut x = [[0; 64]; TILES];
    let mut quads = [[0; 8]; 2 * TILES];
    for (n, tiles) in tiles.chunks(TILES * span.tile_bytes()).enumerate() {
        match span.bits {
            1 => decode::<1>(meaning, tiles, &mut x),
            2 => decode::<2>(meaning, tiles, &mut x),
            3 => decode::<3>(meaning, tiles, &mut x),
            _ => decode::<4>(meaning, tiles, &mut x),
        }
        let count = tiles.len() / span.tile_bytes();
        for (row, sums) in sums.iter_mut().enumerate() {
            let w = &w[row * stride + n * TILES * 4 * step..][..count * 4 * step];
            for (quad, w) in quads.iter_mut().zip(w.as_chunks::<4>().0) {
                *quad = [w[0], w[1], w[2], w[3], w[0], w[1], w[2], w[3]];
            }
            match step {
                1 => add_words::<1>(&x[..count], &quads, sums),
                _ => add_words::<2>(&x[..count], &quads, sums),
            }
        }
    }
}

/// Rows that a scan takes at once.
const ROWS: usize = 8;

/// The sum of each lane.
#[inline(always)]
fn lane(sums: &Sums, lane: usize) -> i32 {
    sums[2 * lane] + sums[2 * lane + 1]
}

/// The plain scan reads the integers alone.
#[inline(always)]
pub fn prepare<I: Isa>(_: &Codec, _: &[i8], _: &mut [i32]) {}

/// Likewise.
#[inline(always)]
pub fn arranged<I: Isa>(_: usize) -> usize {
    0
}

/// Likewise.
#[inline(always)]
pub fn arrange<I: Isa>(_: &Codec, _: usize, _: &[i8], _: &mut [i32]) {}

#[inline(always)]
pub fn keyscan<I: Isa>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
    let mut wide = [0; ROWS * MOST_CHANNELS];
    for (q, out) in q.qi.chunks(ROWS * d).zip(out.chunks_mut(ROWS * tokens)) {
        for (wide, q) in wide.iter_mut().zip(q) {
            *wide = i16::from(*q);
        }
        keyscan15::<I>(codec, d, tiles, tokens, &wide[..q.len()], out);
    }
}

#[inline(always)]
pub fn keyscan15<I: Isa>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    for (q, out) in q.chunks(ROWS * d).zip(out.chunks_mut(ROWS * tokens)) {
        let rows = q.len() / d;
        for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
            let mut sums = [[0; 32]; ROWS];
            let mut rest = tiles;
            for span in codec.spans() {
                let (tiles, after) = rest.split_at(span.bytes(16));
                rest = after;
                add_run(span, tiles, &q[span.first..], d, 1, &mut sums[..rows]);
            }
            for (row, sums) in sums[..rows].iter().enumerate() {
                for (i, out) in out[row * tokens + 16 * block..][..16].iter_mut().enumerate() {
                    *out = lane(sums, i);
                }
            }
        }
    }
}

#[inline(always)]
pub fn valuesum<I: Isa>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(ROWS * tokens).zip(out.chunks_mut(ROWS * span.channels)) {
        let rows = w.len() / tokens;
        let (mut channel, mut rest) = (0, tiles);
        while channel < span.channels {
            let width = (span.channels - channel).min(16);
            let (group, after) = rest.split_at(tokens * width * span.bits / 8);
            rest = after;
            let mut sums = [[0; 32]; ROWS];
            add_run(span, group, w, tokens, 16 / width, &mut sums[..rows]);
            for (row, sums) in sums[..rows].iter().enumerate() {
                for (i, out) in out[row * span.channels + channel..][..width].iter_mut().enumerate() {
                    // In a group of eight channels the upper lanes are the same ones, of other tokens.
                    *out = lane(sums, i) + if width == 8 { lane(sums, i + 8) } else { 0 };
                }
            }
            channel += width;
        }
    }
}
