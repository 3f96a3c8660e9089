//! What scans and sums of values share: rows, blocks of tokens and groups of channels. A variant adds the tiles.

use super::for_rows;
use crate::codec::{Codec, Span};

/// Sixteen sums of a row, in as many parts as a variant keeps.
pub trait Sums: Copy {
    /// Rows of multipliers of 15 bits that share what is decoded; at most 4.
    const ROWS: usize;
    /// All of them `start`; with `half` of the upper eight 0, since they are added to the lower at the end.
    fn new(start: i32, half: bool) -> Self;
    /// What the sums over a span start from, with these multipliers.
    fn start(span: &Span, w: &[i16]) -> i32;
    /// Adds tiles. A tile takes the next `STEP` quads of words: with two, one for each half of its lanes.
    fn add<const R: usize, const BITS: usize, const STEP: usize>(
        span: &Span,
        tiles: &[u8],
        w: [&[i16]; R],
        sums: &mut [Self; R],
    );
    fn store(self, out: &mut [i32; 16]);
    /// The upper eight added to the lower.
    fn store_half(self, out: &mut [i32; 8]);
}

#[inline(always)]
fn add<S: Sums, const R: usize>(span: &Span, half: bool, tiles: &[u8], w: [&[i16]; R], sums: &mut [S; R]) {
    match (span.bits, half) {
        (2, false) => S::add::<R, 2, 1>(span, tiles, w, sums),
        (2, true) => S::add::<R, 2, 2>(span, tiles, w, sums),
        (3, false) => S::add::<R, 3, 1>(span, tiles, w, sums),
        (3, true) => S::add::<R, 3, 2>(span, tiles, w, sums),
        (4, false) => S::add::<R, 4, 1>(span, tiles, w, sums),
        (4, true) => S::add::<R, 4, 2>(span, tiles, w, sums),
        _ => unreachable!("codes of 15-bit queries and of values have 2 to 4 bits"),
    }
}

/// The sums of all rows; by no closure, which would be compiled without the instructions.
#[inline(always)]
fn all<S: Sums, const R: usize>(starts: [i32; R], half: bool) -> [S; R] {
    let mut sums = [S::new(0, half); R];
    for (sums, start) in sums.iter_mut().zip(starts) {
        *sums = S::new(start, half);
    }
    sums
}

/// R rows of equal length.
#[inline(always)]
pub fn rows<T, const R: usize>(x: &[T]) -> [&[T]; R] {
    let n = x.len() / R;
    std::array::from_fn(|r| &x[r * n..(r + 1) * n])
}

/// A span's part of each row.
#[inline(always)]
pub fn of_span<'a, T, const R: usize>(span: &Span, rows: [&'a [T]; R]) -> [&'a [T]; R] {
    rows.map(|row| &row[span.first..span.first + span.channels])
}

/// To `out` `[R][tokens]` the sums of each sixteen tokens, to which `add` adds each span's tiles.
#[inline(always)]
pub fn each_block<S: Sums, const R: usize>(
    codec: &Codec,
    tiles: &[u8],
    starts: [i32; R],
    out: &mut [i32],
    mut add: impl FnMut(&Span, &[u8], &mut [S; R]),
) {
    let tokens = out.len() / R;
    for (block, tiles) in tiles.chunks_exact(codec.bytes(16)).take(tokens / 16).enumerate() {
        let mut sums = all(starts, false);
        let mut rest = tiles;
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(16));
            rest = after;
            add(span, tiles, &mut sums);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            sums.store(out[r * tokens + 16 * block..].first_chunk_mut().expect("sixteen tokens"));
        }
    }
}

#[inline(always)]
pub fn keyscan15<S: Sums>(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
    for (q, out) in q.chunks(S::ROWS * d).zip(out.chunks_mut(S::ROWS * tokens)) {
        for_rows!(q.len() / d, keyscan15_rows::<S>(codec, tiles, q, out));
    }
}

#[inline(always)]
fn keyscan15_rows<S: Sums, const R: usize>(codec: &Codec, tiles: &[u8], q: &[i16], out: &mut [i32]) {
    let rows: [&[i16]; R] = rows(q);
    let start = |row| codec.spans().iter().map(|span| S::start(span, of_span(span, [row])[0])).sum();
    each_block::<S, R>(codec, tiles, rows.map(start), out, |span, tiles, sums| {
        add(span, false, tiles, of_span(span, rows), sums);
    });
}

#[inline(always)]
pub fn valuesum<S: Sums>(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
    for (w, out) in w.chunks(S::ROWS * tokens).zip(out.chunks_mut(S::ROWS * span.channels)) {
        for_rows!(w.len() / tokens, valuesum_rows::<S>(span, tiles, w, out));
    }
}

#[inline(always)]
fn valuesum_rows<S: Sums, const R: usize>(span: &Span, tiles: &[u8], w: &[i16], out: &mut [i32]) {
    let (tokens, w): (usize, [&[i16]; R]) = (w.len() / R, rows(w));
    let starts = w.map(|w| S::start(span, w));
    let mut rest = tiles;
    for channel in (0..span.channels).step_by(16) {
        let half = span.channels - channel < 16;
        let (group, after) = rest.split_at(tokens * if half { 8 } else { 16 } * span.bits / 8);
        rest = after;
        let mut sums: [S; R] = all(starts, half);
        add(span, half, group, w, &mut sums);
        for (r, sums) in sums.into_iter().enumerate() {
            let out = &mut out[r * span.channels + channel..];
            match half {
                true => sums.store_half(out.first_chunk_mut().expect("eight channels")),
                false => sums.store(out.first_chunk_mut().expect("sixteen channels")),
            }
        }
    }
}

/// Makes of each four words two planes of bytes: w = 128 * second + first with first in 0 .. 127 and second within
/// -127 .. 127.
#[inline(always)]
pub fn planes(w: &mut [i16]) {
    for w in w.as_chunks_mut::<4>().0 {
        let (first, second) = (w.map(|w| (w & 127) as u8), w.map(|w| (w >> 7) as u8));
        let word = |plane: [u8; 4], i: usize| i16::from_le_bytes([plane[i], plane[i + 1]]);
        *w = [word(first, 0), word(first, 2), word(second, 0), word(second, 2)];
    }
}
