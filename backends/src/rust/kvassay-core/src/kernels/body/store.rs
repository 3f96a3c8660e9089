//! Tokens to codes and queries to integers: conversion, transform, codes, scales, packing.

use super::attend::largest;
use crate::arith::{d16, rne};
use crate::codec::{Codec, Span};
use crate::half;
use crate::kernels::tiles::Codes;
use crate::transform::{MOST_CHANNELS, Transform};

#[inline(always)]
pub fn narrow(x: &[f32], out: &mut [u8]) -> bool {
    let mut good = true;
    for (x, out) in x.iter().zip(out.as_chunks_mut::<2>().0) {
        good &= x.abs() <= half::LARGEST; // false for NaN
        *out = half::narrow(*x).to_le_bytes();
    }
    good
}

#[inline(always)]
pub fn widen(x: &[u8], mean: &[u8], out: &mut [f32]) {
    for (x, out) in x.as_chunks::<2>().0.iter().zip(&mut *out) {
        *out = half::widen(u16::from_le_bytes(*x));
    }
    for (mean, out) in mean.as_chunks::<2>().0.iter().zip(out) {
        *out -= half::widen(u16::from_le_bytes(*mean));
    }
}

/// One stage of butterflies `H` apart, within 16 numbers.
#[inline(always)]
fn stage<const H: usize>(x: &mut [f32; 16]) {
    for i in 0..16 {
        if i & H == 0 {
            (x[i], x[i + H]) = (x[i] + x[i + H], x[i] - x[i + H]);
        }
    }
}

/// `Had` of a row.
#[inline(always)]
pub fn hadamard(x: &mut [f32], block: usize) {
    for sixteen in x.as_chunks_mut::<16>().0 {
        stage::<1>(sixteen);
        stage::<2>(sixteen);
        stage::<4>(sixteen);
        stage::<8>(sixteen);
    }
    for block in x.chunks_exact_mut(block) {
        let mut h = 16;
        while h < block.len() {
            for pair in block.chunks_exact_mut(2 * h) {
                let (a, b) = pair.split_at_mut(h);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            h *= 2;
        }
    }
}

/// A row with room for any index that a transform has, so that none need be checked.
const ROOM: usize = MOST_CHANNELS.next_power_of_two();

#[inline(always)]
fn multiply(out: &mut [f32], x: &[f32], by: &[f32]) {
    for ((out, x), by) in out.iter_mut().zip(x).zip(by) {
        *out = x * by;
    }
}

#[inline(always)]
pub fn forward(t: &Transform, x: &mut [f32], hadamard: impl Fn(&mut [f32], usize)) {
    let mut room = [0.0; ROOM];
    for x in x.chunks_exact_mut(t.d) {
        multiply(&mut room[..t.d], x, t.first());
        hadamard(&mut room[..t.d], t.block);
        if t.rounds == 2 {
            for ((x, from), sign) in x.iter_mut().zip(t.order()).zip(t.second()) {
                *x = room[usize::from(*from) % ROOM] * sign;
            }
            hadamard(x, t.block);
        } else {
            x.copy_from_slice(&room[..t.d]);
        }
    }
}

#[inline(always)]
pub fn inverse(t: &Transform, x: &mut [f32], hadamard: impl Fn(&mut [f32], usize)) {
    let mut room = [0.0; ROOM];
    for x in x.chunks_exact_mut(t.d) {
        hadamard(x, t.block);
        if t.rounds == 2 {
            for ((x, to), sign) in x.iter().zip(t.order()).zip(t.second()) {
                room[usize::from(*to) % ROOM] = x * sign;
            }
            hadamard(&mut room[..t.d], t.block);
            multiply(x, &room[..t.d], t.first());
        } else {
            room[..t.d].copy_from_slice(x);
            multiply(x, &room[..t.d], t.first());
        }
    }
}

/// Codes of one span and what they stand for, with the number of thresholds known.
#[inline(always)]
fn threshold<const N: usize>(span: &Span, sigma: f32, y: &[f32], codes: &mut [u8], centroids: &mut [f32]) {
    let th: [f32; N] = std::array::from_fn(|i| span.thresholds[i] * sigma);
    let middle = N as u32 + 1;
    let positive: [f32; 8] = std::array::from_fn(|m| f32::from(span.table[(N + 1 + m) % 16]));
    for ((y, code), centroid) in y.iter().zip(codes).zip(centroids) {
        let (mut m, mut stands) = (0, positive[0]);
        for i in 0..N {
            let beyond = y.abs() >= th[i];
            m += u32::from(beyond);
            stands = if beyond { positive[i + 1] } else { stands };
        }
        *code = if *y < 0.0 { middle - 1 - m } else { middle + m } as u8;
        *centroid = if *y < 0.0 { -stands } else { stands };
    }
}

/// `f32(centroid)` of each code of a token.
#[inline(always)]
fn centroids<'a>(codec: &Codec, codes: &[u8], out: &'a mut [f32; MOST_CHANNELS]) -> &'a [f32] {
    for span in codec.spans() {
        let table = span.table.map(f32::from);
        let channels = span.first..span.first + span.channels;
        for (code, out) in codes[channels.clone()].iter().zip(&mut out[channels]) {
            *out = table[usize::from(code & 15)];
        }
    }
    &out[..codes.len()]
}

#[inline(always)]
pub fn quantize(codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]) {
    let d = codes.len() / scales.len();
    let part = (1.0 / d as f64) as f32;
    let mut room = [0.0; MOST_CHANNELS];
    for ((y, codes), scale) in y.chunks_exact(d).zip(codes.chunks_exact_mut(d)).zip(scales) {
        let n2 = d16(y, y);
        if n2 == 0.0 {
            for span in codec.spans() {
                codes[span.first..span.first + span.channels].fill(1 << (span.bits - 1));
            }
            *scale = 0.0;
            continue;
        }
        let sigma = (n2 * part).sqrt();
        for span in codec.spans() {
            let channels = span.first..span.first + span.channels;
            let (y, codes, room) = (&y[channels.clone()], &mut codes[channels.clone()], &mut room[channels]);
            match span.bits {
                2 => threshold::<1>(span, sigma, y, codes, room),
                3 => threshold::<3>(span, sigma, y, codes, room),
                _ => threshold::<7>(span, sigma, y, codes, room),
            }
        }
        let centroid = &room[..d];
        let e = d16(y, centroid);
        *scale = if unbiased { n2 / e } else { e / d16(centroid, centroid) };
    }
}

#[inline(always)]
pub fn residual(codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32 {
    let mut room = [0.0; MOST_CHANNELS];
    for (y, centroid) in y.iter_mut().zip(centroids(codec, codes, &mut room)) {
        *y -= scale * centroid;
    }
    d16(y, y)
}

/// Step and minimum of a group.
#[inline(always)]
fn step(bits: usize, low: f32, high: f32) -> (u16, u16) {
    let n = ((1 << bits) - 1) as f32;
    let (low, high) = (low + 0.0, high + 0.0);
    let minimum = half::narrow(low);
    let range = high - half::widen(minimum);
    let range = if range < 0.0 { 0.0 } else { range };
    (half::narrow(range / n), minimum)
}

#[inline(always)]
fn affine_code(bits: usize, r: f32, step: f32, low: f32) -> u8 {
    let n = ((1 << bits) - 1) as f32;
    let quotient = ((r - low) / step).clamp(-1.0, 1_048_576.0);
    rne(quotient).clamp(0.0, n) as u8
}

#[inline(always)]
pub fn affine_keys(bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]) {
    let (mut low, mut high) = ([f32::INFINITY; MOST_CHANNELS], [f32::NEG_INFINITY; MOST_CHANNELS]);
    let (low, high) = (&mut low[..d], &mut high[..d]);
    for row in r.chunks_exact(d) {
        for (c, x) in row.iter().enumerate() {
            low[c] = if *x < low[c] { *x } else { low[c] };
            high[c] = if *x > high[c] { *x } else { high[c] };
        }
    }
    for c in 0..d {
        let (size, minimum) = step(bits, low[c], high[c]);
        half::put(steps, c, size);
        half::put(minima, c, minimum);
        (high[c], low[c]) = (half::widen(size), half::widen(minimum));
    }
    for (row, codes) in r.chunks_exact(d).zip(codes.chunks_exact_mut(d)) {
        for (((x, step), low), code) in row.iter().zip(&*high).zip(&*low).zip(codes) {
            *code = if *step == 0.0 { 0 } else { affine_code(bits, *x, *step, *low) };
        }
    }
}

#[inline(always)]
pub fn affine_values(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16) {
    let low = r.iter().fold(f32::INFINITY, |low, x| if *x < low { *x } else { low });
    let high = r.iter().fold(f32::NEG_INFINITY, |high, x| if *x > high { *x } else { high });
    let (size, minimum) = step(bits, low, high);
    let (step, low) = (half::widen(size), half::widen(minimum));
    for (x, code) in r.iter().zip(codes) {
        *code = if step == 0.0 { 0 } else { affine_code(bits, *x, step, low) };
    }
    (size, minimum)
}

#[inline(always)]
pub fn pack_keys(codec: &Codec, d: usize, codes: &[u8], mut tiles: &mut [u8], pack: impl Fn(&Codes, usize, &mut [u8])) {
    for block in codes.chunks_exact(16 * d) {
        for span in codec.spans() {
            for channel in (span.first..span.first + span.channels).step_by(4) {
                let mut tile = [[0; 4]; 16];
                for (lane, row) in tile.iter_mut().zip(block.chunks_exact(d)) {
                    *lane = *row[channel..].first_chunk().expect("four channels");
                }
                let (out, rest) = tiles.split_at_mut(span.tile_bytes());
                pack(tile.as_flattened().try_into().expect("64 codes"), span.bits, out);
                tiles = rest;
            }
        }
    }
}

/// Four rows of codes as 16 lanes of four.
#[inline(always)]
fn lanes(rows: [&[u8; 16]; 4]) -> Codes {
    let mut quads = [0u32; 16];
    for (i, quad) in quads.iter_mut().enumerate() {
        let [a, b, c, d] = rows.map(|row| u32::from(row[i]));
        *quad = a | b << 8 | c << 16 | d << 24;
    }
    let mut tile = [0; 64];
    for (bytes, quad) in tile.as_chunks_mut::<4>().0.iter_mut().zip(quads) {
        *bytes = quad.to_le_bytes();
    }
    tile
}

#[inline(always)]
pub fn pack_values(
    codec: &Codec,
    d: usize,
    codes: &[u8],
    mut tiles: &mut [u8],
    pack: impl Fn(&Codes, usize, &mut [u8]),
) {
    let tokens = codes.len() / d;
    for span in codec.spans() {
        let mut channel = span.first;
        let end = span.first + span.channels;
        while channel < end {
            // The last group of a span may be 8 channels wide, with twice the tokens.
            let width = (end - channel).min(16);
            for token in (0..tokens).step_by(64 / width) {
                let tile = if width == 16 {
                    lanes([0, 1, 2, 3].map(|s| codes[(token + s) * d + channel..].first_chunk().expect("16 channels")))
                } else {
                    let eight = |token: usize| codes[token * d + channel..].first_chunk::<8>().expect("8 channels");
                    let both = [0, 1, 2, 3].map(|s| {
                        let mut row = [0; 16];
                        row[..8].copy_from_slice(eight(token + s));
                        row[8..].copy_from_slice(eight(token + 4 + s));
                        row
                    });
                    lanes(both.each_ref())
                };
                let (out, rest) = tiles.split_at_mut(span.tile_bytes());
                pack(&tile, span.bits, out);
                tiles = rest;
            }
            channel += width;
        }
    }
}

#[inline(always)]
pub fn query8(z: &[f32], qi: &mut [i8]) -> f32 {
    let mut most = [0.0f32; 16];
    for z in z.as_chunks::<16>().0 {
        for i in 0..16 {
            most[i] = if z[i].abs() > most[i] { z[i].abs() } else { most[i] };
        }
    }
    let a = largest(most);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    let factor = 127.0 / a;
    for (z, qi) in z.iter().zip(qi) {
        *qi = rne_bits(z * factor) as i8;
    }
    a * (1.0 / 127.0f64) as f32
}

/// `rne` as an integer: its low bits are those of the sum with the magic number.
#[inline(always)]
pub(super) fn rne_bits(x: f32) -> i32 {
    (x + 12_582_912.0).to_bits().wrapping_sub(12_582_912.0f32.to_bits()) as i32
}

#[inline(always)]
pub fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let mut most = [0.0f32; 16];
    for (q, step) in q.as_chunks::<16>().0.iter().zip(step.as_chunks::<16>().0) {
        for i in 0..16 {
            let z = (q[i] * step[i]).abs();
            most[i] = if z > most[i] { z } else { most[i] };
        }
    }
    let a = largest(most);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    let factor = 16256.0 / a;
    for ((q, s), qi) in q.iter().zip(step).zip(qi) {
        *qi = rne_bits(q * s * factor) as i16;
    }
    a * (1.0 / 16256.0f64) as f32
}
