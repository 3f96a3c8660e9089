//! Turbo: codes and scales of transformed rows, and what the codes leave over.

use std::arch::aarch64::*;

use super::lanes::{d16, get4, put4};
use crate::codec::{Codec, Span};
use crate::transform::MOST_CHANNELS;

/// Eight codes as what they stand for.
#[inline]
#[target_feature(enable = "neon")]
fn stands(table: int8x16_t, codes: uint8x8_t) -> [float32x4_t; 2] {
    let words = vmovl_s8(vqtbl1_s8(table, codes));
    [vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))]
}

#[inline]
#[target_feature(enable = "neon")]
pub fn table(span: &Span) -> int8x16_t {
    // SAFETY: sixteen bytes are read.
    unsafe { vld1q_s8(span.table.as_ptr()) }
}

/// A code is half + m, or half - 1 - m, which is half + !m, for a negative number; m counts the thresholds reached.
#[inline]
#[target_feature(enable = "neon")]
fn codes4<const N: usize>(y: float32x4_t, th: &[float32x4_t; N]) -> uint32x4_t {
    let m = th.iter().fold(vdupq_n_u32(0), |m, th| vsubq_u32(m, vcageq_f32(y, *th)));
    vaddq_u32(vdupq_n_u32(N as u32 + 1), veorq_u32(m, vcltzq_f32(y)))
}

/// Codes of one span and what they stand for.
#[inline]
#[target_feature(enable = "neon")]
fn threshold<const N: usize>(span: &Span, sigma: f32, y: &[f32], codes: &mut [u8], centroids: &mut [f32]) {
    let th: [float32x4_t; N] = std::array::from_fn(|i| vdupq_n_f32(span.thresholds[i] * sigma));
    let table = table(span);
    let eights = codes.as_chunks_mut::<8>().0.iter_mut().zip(centroids.as_chunks_mut::<8>().0);
    for (y, (codes, centroids)) in y.as_chunks::<8>().0.iter().zip(eights) {
        let [low, high] = [0, 1].map(|i| vmovn_u32(codes4(get4(&y.as_chunks().0[i]), &th)));
        let code = vmovn_u16(vcombine_u16(low, high));
        // SAFETY: eight bytes are written.
        unsafe { vst1_u8(codes.as_mut_ptr(), code) };
        for (out, x) in centroids.as_chunks_mut().0.iter_mut().zip(stands(table, code)) {
            put4(out, x);
        }
    }
}

#[target_feature(enable = "neon")]
pub fn quantize(codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]) {
    let d = codes.len() / scales.len();
    let part = (1.0 / d as f64) as f32;
    let mut room = [0.0; MOST_CHANNELS];
    let centroids = &mut room[..d];
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
            let (y, codes, centroids) = (&y[channels.clone()], &mut codes[channels.clone()], &mut centroids[channels]);
            match span.bits {
                2 => threshold::<1>(span, sigma, y, codes, centroids),
                3 => threshold::<3>(span, sigma, y, codes, centroids),
                _ => threshold::<7>(span, sigma, y, codes, centroids),
            }
        }
        let e = d16(y, centroids);
        *scale = if unbiased { n2 / e } else { e / d16(centroids, centroids) };
    }
}

#[target_feature(enable = "neon")]
pub fn residual(codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32 {
    for span in codec.spans() {
        let table = table(span);
        let channels = span.first..span.first + span.channels;
        let rows = y[channels.clone()].as_chunks_mut::<8>().0.iter_mut().zip(codes[channels].as_chunks::<8>().0);
        for (y, codes) in rows {
            // SAFETY: eight bytes are read.
            let stands = stands(table, unsafe { vld1_u8(codes.as_ptr()) });
            for (y, x) in y.as_chunks_mut().0.iter_mut().zip(stands) {
                put4(y, vsubq_f32(get4(y), vmulq_n_f32(x, scale)));
            }
        }
    }
    d16(y, y)
}
