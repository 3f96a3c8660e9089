//! Turbo pages in one: rows to transformed tokens, a token a lane, to codes, to tiles. What a quad holds falls almost
//! into the order of tiles.

use std::arch::x86_64::*;

use super::isa::Avx2;
use super::lanes::{Lane, Room, forward_lanes, forward_rows};
use super::quantize::{Quad, book, quantize, squares};
use super::registers::{get, get_bytes, put, twice};
use super::tiles::pack_registers;
use crate::codec::{Codec, Span};
use crate::kernels::{Fp16Rows, Role, Turbo, Workspace, body};
use crate::transform::{MOST_CHANNELS, Transform};

/// The working memory of a page, by eight tokens: `[tokens / 8][d]` and `[tokens / 8][d / 4]`.
fn cut<'a>(y: &'a mut [f32], codes: &'a mut [u8]) -> (&'a mut [Lane], &'a mut [Quad]) {
    (y.as_chunks_mut().0, codes.as_chunks_mut().0)
}

#[target_feature(enable = "avx2,f16c")]
pub fn encode(turbo: &Turbo<'_>, rows: Fp16Rows<'_>, mean: &[u8], work: &mut Workspace<'_>, tiles: &mut [u8]) {
    let (codec, t) = (turbo.codec, turbo.transform);
    let (tokens, mut wide) = (work.scales.len(), [0.0; MOST_CHANNELS]);
    body::widen::<Avx2<false>>(mean, &[], &mut wide[..mean.len() / 2]);
    let mean = (!mean.is_empty()).then_some(&wide[..t.d]);
    let books = [book(&codec.spans()[0]), book(&codec.spans()[codec.spans().len() - 1])];
    let (lanes, quads) = cut(work.y, work.codes);
    let mut room = [[0.0; 8]; MOST_CHANNELS];
    for (n, scales) in work.scales.as_chunks_mut().0.iter_mut().enumerate() {
        // What the sign projection reads is kept; the rest stays in the cache.
        let at = if turbo.role == Role::SignedKeys { n } else { n % 2 };
        let y = &mut lanes[at * t.d..(at + 1) * t.d];
        forward_rows(t, rows, 8 * n, mean, &mut room, y);
        let own = at * t.d / 4..(at + 1) * t.d / 4;
        quantize(codec, &books, turbo.role == Role::Keys, y, &mut quads[own.clone()], scales);
        if turbo.role == Role::Values {
            value_tiles(codec, &quads[own], 8 * n, tokens, tiles);
        } else if n % 2 == 1 {
            let both = &quads[own.start - t.d / 4..own.end];
            key_tiles(codec, both.split_at(t.d / 4), &mut tiles[codec.bytes(8 * n - 8)..]);
        }
    }
}

/// A quad of `[channel][token]` as `[token][channel]`, of both fours of tokens.
#[inline]
#[target_feature(enable = "avx2")]
fn turn(quad: __m256i) -> __m256i {
    _mm256_shuffle_epi8(quad, twice(&[0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]))
}

/// Lane: token; summand: channel. Sixteen tokens.
#[target_feature(enable = "avx2")]
fn key_tiles(codec: &Codec, (first, second): (&[Quad], &[Quad]), mut tiles: &mut [u8]) {
    for span in codec.spans() {
        let quads = span.first / 4..(span.first + span.channels) / 4;
        let (out, rest) = tiles.split_at_mut(span.bytes(16));
        tiles = rest;
        let pairs = first[quads.clone()].iter().zip(&second[quads]);
        for ((first, second), tile) in pairs.zip(out.chunks_exact_mut(span.tile_bytes())) {
            pack_registers([turn(get_bytes(first)), turn(get_bytes(second))], span.bits, tile);
        }
    }
}

/// Lane: channel; summand: token. Eight tokens from `token` on.
#[target_feature(enable = "avx2")]
fn value_tiles(codec: &Codec, quads: &[Quad], token: usize, tokens: usize, mut tiles: &mut [u8]) {
    for span in codec.spans() {
        let quads = &quads[span.first / 4..(span.first + span.channels) / 4];
        let (out, rest) = tiles.split_at_mut(span.bytes(tokens));
        tiles = rest;
        for (quads, group) in quads.chunks(4).zip(out.chunks_mut(2 * tokens * span.bits)) {
            of_group(span, quads, &mut group[group_at(span, quads.len(), token)..]);
        }
    }
}

/// Where the tiles of a group of `4 * quads` channels begin.
fn group_at(span: &Span, quads: usize, token: usize) -> usize {
    token * 4 * quads * span.bits / 8
}

/// Two tiles of four tokens of sixteen channels, or one of eight tokens of eight channels.
#[inline]
#[target_feature(enable = "avx2")]
fn of_group(span: &Span, quads: &[Quad], tiles: &mut [u8]) {
    let pair = |i: usize| -> [__m256i; 2] {
        let (a, b) = (get_bytes(&quads[i]), get_bytes(&quads[i + 1]));
        [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)]
    };
    let low = pair(0);
    if quads.len() == 2 {
        pack_registers(low, span.bits, tiles);
        return;
    }
    let high = pair(2);
    let (first, second) = tiles.split_at_mut(span.tile_bytes());
    pack_registers([low[0], high[0]], span.bits, first);
    pack_registers([low[1], high[1]], span.bits, second);
}

/// Of what `encode` left of signed keys and of scales: squares of residuals to `norms`, and the signs of their
/// projections to tiles.
#[target_feature(enable = "avx2")]
pub fn signs(key: &Codec, t: &Transform, work: &mut Workspace<'_>, tiles: &mut [u8]) {
    let (lanes, quads) = cut(work.y, work.codes);
    let (scales, norms) = (work.scales.as_chunks::<8>().0, work.norms.as_chunks_mut().0);
    let mut room: Room = [[0.0; 8]; MOST_CHANNELS];
    let of_eight = lanes.chunks_exact_mut(t.d).zip(quads.chunks_exact(t.d / 4)).zip(scales.iter().zip(norms));
    for (n, ((y, quads), (scales, norms))) in of_eight.enumerate() {
        for span in key.spans() {
            let (from, to) = (span.first, span.first + span.channels);
            subtract(span, get(scales), &quads[from / 4..to / 4], &mut y[from..to]);
        }
        put(squares(y), norms);
        forward_lanes(t, y, &mut room);
        let tiles = tiles[n / 2 * 2 * t.d..][..2 * t.d].as_chunks_mut::<8>().0;
        for (y, tile) in y.as_chunks::<4>().0.iter().zip(tiles) {
            tile[n % 2 * 4..][..4].copy_from_slice(&positive(y).to_le_bytes());
        }
    }
}

/// `y - scale * centroid`.
#[target_feature(enable = "avx2")]
fn subtract(span: &Span, scale: __m256, quads: &[Quad], y: &mut [Lane]) {
    let table = twice(&span.table);
    // The four tokens of a channel to the high bytes of four words.
    let spread = _mm256_setr_epi8(
        -1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1,
        -1, -1, 3,
    );
    for (quad, y) in quads.iter().zip(y.as_chunks_mut::<4>().0) {
        let mut centroids = _mm256_shuffle_epi8(table, get_bytes(quad));
        for y in y {
            let four = _mm256_srai_epi32::<24>(_mm256_shuffle_epi8(centroids, spread));
            put(_mm256_sub_ps(get(y), _mm256_mul_ps(scale, _mm256_cvtepi32_ps(four))), y);
            centroids = _mm256_srli_si256::<4>(centroids);
        }
    }
}

/// Four channels of eight tokens: a bit is set where a number is not negative, in the order of a tile's half.
#[inline]
#[target_feature(enable = "avx2")]
fn positive(y: &[Lane; 4]) -> u32 {
    let mut set = [_mm256_setzero_si256(); 4];
    for i in 0..4 {
        set[i] = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GE_OQ>(get(&y[i]), _mm256_setzero_ps()));
    }
    let words = [_mm256_packs_epi32(set[0], set[1]), _mm256_packs_epi32(set[2], set[3])];
    _mm256_movemask_epi8(turn(_mm256_packs_epi16(words[0], words[1]))) as u32
}
