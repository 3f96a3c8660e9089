//! Integer queries.

use std::arch::aarch64::*;

use super::lanes::get4;

/// Rounded to nearest even, as words.
#[inline]
#[target_feature(enable = "neon")]
fn rounded(low: float32x4_t, high: float32x4_t, factor: f32) -> int16x8_t {
    let word = |x| vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x, factor)));
    vcombine_s16(word(low), word(high))
}

#[inline]
#[target_feature(enable = "neon")]
fn eight(x: &[f32; 8]) -> [float32x4_t; 2] {
    let (x, _) = x.as_chunks::<4>();
    [get4(&x[0]), get4(&x[1])]
}

#[target_feature(enable = "neon")]
pub fn query8(z: &[f32], qi: &mut [i8]) -> f32 {
    let (z, _) = z.as_chunks::<8>();
    let mut most = vdupq_n_f32(0.0);
    for z in z {
        let [low, high] = eight(z);
        most = vmaxq_f32(most, vmaxq_f32(vabsq_f32(low), vabsq_f32(high)));
    }
    let a = vmaxvq_f32(most);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    for (z, qi) in z.iter().zip(qi.as_chunks_mut::<8>().0) {
        let [low, high] = eight(z);
        // SAFETY: eight bytes are written.
        unsafe { vst1_s8(qi.as_mut_ptr(), vmovn_s16(rounded(low, high, 127.0 / a))) };
    }
    a * (1.0 / 127.0f64) as f32
}

#[target_feature(enable = "neon")]
pub fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let products = || {
        q.as_chunks().0.iter().zip(step.as_chunks().0).map(|(q, step)| {
            let (q, step) = (eight(q), eight(step));
            [vmulq_f32(q[0], step[0]), vmulq_f32(q[1], step[1])]
        })
    };
    let most = products()
        .fold(vdupq_n_f32(0.0), |most, [low, high]| vmaxq_f32(most, vmaxq_f32(vabsq_f32(low), vabsq_f32(high))));
    let a = vmaxvq_f32(most);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    for ([low, high], qi) in products().zip(qi.as_chunks_mut::<8>().0) {
        // SAFETY: eight words are written.
        unsafe { vst1q_s16(qi.as_mut_ptr(), rounded(low, high, 16256.0 / a)) };
    }
    a * (1.0 / 16256.0f64) as f32
}
