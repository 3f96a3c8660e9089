//! KIVI: asymmetric steps and minima (numeric contract, section 6), eight groups or eight channels at once.

use std::arch::aarch64::*;

use super::lanes::{get8, narrow8_finite, put_bytes, widen8};

/// Eight groups.
struct Affine {
    /// fp16, as stored.
    step: uint8x16_t,
    minimum: uint8x16_t,
    step32: [float32x4_t; 2],
    minimum32: [float32x4_t; 2],
}

/// The largest code of this many bits.
fn levels(bits: usize) -> i32 {
    (1 << bits) - 1
}

#[inline]
#[target_feature(enable = "neon")]
fn affine(bits: usize, low: [float32x4_t; 2], high: [float32x4_t; 2]) -> Affine {
    let (zero, n) = (vdupq_n_f32(0.0), vdupq_n_f32(levels(bits) as f32));
    let minimum = narrow8_finite(low.map(|low| vaddq_f32(low, zero)));
    let minimum32 = widen8(minimum);
    let step = narrow8_finite([0, 1].map(|i| {
        let range = vsubq_f32(vaddq_f32(high[i], zero), minimum32[i]);
        let step = vreinterpretq_u32_f32(vdivq_f32(range, n));
        vreinterpretq_f32_u32(vandq_u32(step, vcgtzq_f32(range)))
    }));
    Affine { step, minimum, step32: widen8(step), minimum32 }
}

/// Codes of eight numbers; a step of 0 gives 0, whatever the quotient.
#[inline]
#[target_feature(enable = "neon")]
fn codes(bits: usize, x: &[f32; 8], a: &Affine, codes: &mut [u8; 8]) {
    let x = get8(x);
    let [low, high] = [0, 1].map(|i| {
        let quotient = vdivq_f32(vsubq_f32(x[i], a.minimum32[i]), a.step32[i]);
        let quotient = vminq_f32(vmaxq_f32(quotient, vdupq_n_f32(-1.0)), vdupq_n_f32(1_048_576.0));
        let quotient = vbicq_u32(vreinterpretq_u32_f32(quotient), vceqzq_f32(a.step32[i]));
        let code = vcvtnq_s32_f32(vreinterpretq_f32_u32(quotient));
        vmovn_s32(vminq_s32(vmaxq_s32(code, vdupq_n_s32(0)), vdupq_n_s32(levels(bits))))
    });
    let bytes = vmovn_u16(vreinterpretq_u16_s16(vcombine_s16(low, high)));
    // SAFETY: eight bytes are written.
    unsafe { vst1_u8(codes.as_mut_ptr(), bytes) };
}

#[target_feature(enable = "neon")]
pub fn affine_keys(bits: usize, r: &[f32], d: usize, out: &mut [u8], steps: &mut [u8], minima: &mut [u8]) {
    for c in (0..d).step_by(8) {
        let row = |row: &[f32]| -> [f32; 8] { *row[c..].first_chunk().expect("eight channels") };
        let first = get8(&row(r));
        let (mut low, mut high) = (first, first);
        for r in r.chunks_exact(d).skip(1) {
            let x = get8(&row(r));
            for i in 0..2 {
                (low[i], high[i]) = (vminq_f32(low[i], x[i]), vmaxq_f32(high[i], x[i]));
            }
        }
        let a = affine(bits, low, high);
        for (r, out) in r.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
            codes(bits, &row(r), &a, out[c..].first_chunk_mut().expect("eight channels"));
        }
        put_bytes(steps[2 * c..].first_chunk_mut().expect("eight halves"), a.step);
        put_bytes(minima[2 * c..].first_chunk_mut().expect("eight halves"), a.minimum);
    }
}

#[target_feature(enable = "neon")]
pub fn affine_values(bits: usize, r: &[f32], out: &mut [u8]) -> (u16, u16) {
    let (r, _) = r.as_chunks::<8>();
    let (mut low, mut high) = (vdupq_n_f32(f32::INFINITY), vdupq_n_f32(f32::NEG_INFINITY));
    for r in r {
        for x in get8(r) {
            (low, high) = (vminq_f32(low, x), vmaxq_f32(high, x));
        }
    }
    let a = affine(bits, [vdupq_n_f32(vminvq_f32(low)); 2], [vdupq_n_f32(vmaxvq_f32(high)); 2]);
    for (r, out) in r.iter().zip(out.as_chunks_mut::<8>().0) {
        codes(bits, r, &a, out);
    }
    let first = |halves: uint8x16_t| vgetq_lane_u16::<0>(vreinterpretq_u16_u8(halves));
    (first(a.step), first(a.minimum))
}
