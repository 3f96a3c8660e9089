//! Turbo: transformed tokens to codes, scales and tiles; and the packing of any codes.

use super::{Isa, forward, widen};
use crate::arith::d16;
use crate::codec::{Codec, Span};
use crate::kernels::tiles::Codes;
use crate::kernels::{Fp16Rows, Role, Turbo, Workspace};
use crate::transform::{MOST_CHANNELS, Transform};

/// Codes of one span and what they stand for, with the number of thresholds known.
#[inline(always)]
pub fn threshold<const N: usize>(span: &Span, sigma: f32, y: &[f32], codes: &mut [u8], centroids: &mut [f32]) {
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

/// Transformed rows y `[tokens][d]` to codes `[tokens][d]` and scales without the gain.
#[inline(always)]
fn quantize<I: Isa>(codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]) {
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
                2 => I::threshold::<1>(span, sigma, y, codes, room),
                3 => I::threshold::<3>(span, sigma, y, codes, room),
                _ => I::threshold::<7>(span, sigma, y, codes, room),
            }
        }
        let centroid = &room[..d];
        let e = d16(y, centroid);
        *scale = if unbiased { n2 / e } else { e / d16(centroid, centroid) };
    }
}

/// One token: `y = y - scale * centroid`; the result is `D16` of that with itself.
#[inline(always)]
fn residual<I: Isa>(codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32 {
    let mut room = [0.0; MOST_CHANNELS];
    for span in codec.spans() {
        let channels = span.first..span.first + span.channels;
        I::centroids(span, &codes[channels.clone()], &mut room[channels]);
    }
    for (y, centroid) in y.iter_mut().zip(&room) {
        *y -= scale * centroid;
    }
    d16(y, y)
}

#[inline(always)]
pub fn encode<I: Isa>(turbo: &Turbo<'_>, rows: Fp16Rows<'_>, mean: &[u8], work: &mut Workspace<'_>, tiles: &mut [u8]) {
    let d = turbo.transform.d;
    for (j, y) in work.y.chunks_exact_mut(d).enumerate() {
        widen::<I>(rows.row(j, d), mean, y);
    }
    forward::<I>(turbo.transform, work.y);
    quantize::<I>(turbo.codec, turbo.role == Role::Keys, work.y, work.codes, work.scales);
    match turbo.role {
        Role::Values => pack_values::<I>(turbo.codec, d, work.codes, tiles),
        Role::Keys | Role::SignedKeys => pack_keys::<I>(turbo.codec, d, work.codes, tiles),
    }
}

#[inline(always)]
pub fn signs<I: Isa>(key: &Codec, t: &Transform, work: &mut Workspace<'_>, tiles: &mut [u8]) {
    let tokens = work.y.chunks_exact_mut(t.d).zip(work.codes.chunks_exact(t.d));
    for ((scale, norm), (y, codes)) in work.scales.iter().zip(&mut *work.norms).zip(tokens) {
        *norm = residual::<I>(key, y, codes, *scale);
    }
    forward::<I>(t, work.y);
    for (y, code) in work.y.iter().zip(&mut *work.codes) {
        *code = u8::from(*y >= 0.0);
    }
    pack_keys::<I>(&Codec::signs(t.d), t.d, work.codes, tiles);
}

#[inline(always)]
pub fn pack_keys<I: Isa>(codec: &Codec, d: usize, codes: &[u8], mut tiles: &mut [u8]) {
    for block in codes.chunks_exact(16 * d) {
        for span in codec.spans() {
            for channel in (span.first..span.first + span.channels).step_by(4) {
                let mut tile = [[0; 4]; 16];
                for (lane, row) in tile.iter_mut().zip(block.chunks_exact(d)) {
                    *lane = *row[channel..].first_chunk().expect("four channels");
                }
                let (out, rest) = tiles.split_at_mut(span.tile_bytes());
                I::pack(tile.as_flattened().try_into().expect("64 codes"), span.bits, out);
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
pub fn pack_values<I: Isa>(codec: &Codec, d: usize, codes: &[u8], mut tiles: &mut [u8]) {
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
                I::pack(&tile, span.bits, out);
                tiles = rest;
            }
            channel += width;
        }
    }
}
