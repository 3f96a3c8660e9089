//! `T` of eight tokens at once, a token a lane: stages are additions between registers, and the permutation is an order
//! of reading.

use std::arch::x86_64::*;

use super::isa::Avx2;
use super::registers::{get, get_half, put};
use crate::kernels::Fp16Rows;
use crate::kernels::body::stages;
use crate::transform::{MOST_CHANNELS, Transform};

/// One channel of eight tokens.
pub type Lane = [f32; 8];
/// Room for what lies between the two rounds.
pub type Room = [Lane; MOST_CHANNELS];

/// Eight channels of fp16 of eight tokens, channel by channel.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn columns(x: [__m128i; 8]) -> [__m256; 8] {
    // Of two tokens four channels, then of four tokens two, then of eight tokens one.
    let (mut pairs, mut fours) = ([_mm_setzero_si128(); 8], [_mm_setzero_si128(); 8]);
    for i in 0..4 {
        pairs[i] = _mm_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
        pairs[i + 4] = _mm_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
    }
    for i in 0..4 {
        fours[2 * i] = _mm_unpacklo_epi32(pairs[2 * i], pairs[2 * i + 1]);
        fours[2 * i + 1] = _mm_unpackhi_epi32(pairs[2 * i], pairs[2 * i + 1]);
    }
    let mut out = [_mm256_setzero_ps(); 8];
    for i in 0..4 {
        let (first, last) = (fours[i / 2 * 4 + i % 2], fours[i / 2 * 4 + i % 2 + 2]);
        out[2 * i] = _mm256_cvtph_ps(_mm_unpacklo_epi64(first, last));
        out[2 * i + 1] = _mm256_cvtph_ps(_mm_unpackhi_epi64(first, last));
    }
    out
}

/// The stages of 1, 2 and 4 channels, after the signs. Of each caller its own, so that registers stay registers.
#[inline]
#[target_feature(enable = "avx2")]
fn near_stages(of: impl Fn(usize) -> __m256, signs: &[f32; 8], out: &mut [Lane; 8]) {
    let mut x = [_mm256_setzero_ps(); 8];
    for i in 0..8 {
        x[i] = _mm256_mul_ps(of(i), _mm256_set1_ps(signs[i]));
    }
    for step in [1, 2, 4] {
        for i in 0..8 {
            if i & step == 0 {
                (x[i], x[i + step]) = (_mm256_add_ps(x[i], x[i + step]), _mm256_sub_ps(x[i], x[i + step]));
            }
        }
    }
    for i in 0..8 {
        put(x[i], &mut out[i]);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn far_stages(t: &Transform, x: &mut [Lane]) {
    for block in x.chunks_exact_mut(t.block) {
        stages::<Avx2<false>>(block.as_flattened_mut(), 64, 16);
    }
}

/// Tokens `first ..` of `rows`, less a mean, transformed into `out`, `[d]`.
#[target_feature(enable = "avx2,f16c")]
pub fn forward_rows(
    t: &Transform,
    rows: Fp16Rows<'_>,
    first: usize,
    mean: Option<&[f32]>,
    room: &mut Room,
    out: &mut [Lane],
) {
    let mut tokens = [&[[0u8; 16]; 0][..]; 8];
    for (i, token) in tokens.iter_mut().enumerate() {
        *token = rows.row(first + i, t.d).as_chunks().0;
    }
    let signs = t.first().as_chunks().0;
    for (n, (out, signs)) in room[..t.d].as_chunks_mut().0.iter_mut().zip(signs).enumerate() {
        let mut halves = [_mm_setzero_si128(); 8];
        for i in 0..8 {
            // SAFETY: each row has d / 8 times eight numbers, as the signs have.
            halves[i] = get_half(unsafe { tokens[i].get_unchecked(n) });
        }
        let mut x = columns(halves);
        if let Some(mean) = mean {
            let mean: &[f32; 8] = mean[8 * n..].first_chunk().expect("a mean of d numbers");
            for i in 0..8 {
                x[i] = _mm256_sub_ps(x[i], _mm256_set1_ps(mean[i]));
            }
        }
        near_stages(|i| x[i], signs, out);
    }
    finish(t, room, out);
}

/// x `[d]` in place.
#[target_feature(enable = "avx2")]
pub fn forward_lanes(t: &Transform, x: &mut [Lane], room: &mut Room) {
    let signs = t.first().as_chunks().0;
    for ((out, x), signs) in room[..t.d].as_chunks_mut().0.iter_mut().zip(x.as_chunks::<8>().0).zip(signs) {
        near_stages(|i| get(&x[i]), signs, out);
    }
    finish(t, room, x);
}

/// What follows the first stages and signs, which are in the room.
#[target_feature(enable = "avx2")]
fn finish(t: &Transform, room: &mut Room, out: &mut [Lane]) {
    let room = &mut room[..t.d];
    far_stages(t, room);
    if t.rounds == 1 {
        out.copy_from_slice(room);
        return;
    }
    let order = t.order().as_chunks::<8>().0;
    let signs = t.second().as_chunks().0;
    for ((out, order), signs) in out.as_chunks_mut().0.iter_mut().zip(order).zip(signs) {
        // SAFETY: the order is a permutation of 0 .. d.
        near_stages(|i| get(unsafe { room.get_unchecked(usize::from(order[i])) }), signs, out);
    }
    far_stages(t, out);
}
