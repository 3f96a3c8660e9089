//! Integer queries and weights, and the largest of logits.

use std::arch::aarch64::*;

use super::lanes::get8;

/// Rounded to nearest even, as words.
#[inline]
#[target_feature(enable = "neon")]
fn rounded(low: float32x4_t, high: float32x4_t, factor: f32) -> int16x8_t {
    let word = |x| vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x, factor)));
    vcombine_s16(word(low), word(high))
}

#[target_feature(enable = "neon")]
pub fn query8(z: &[f32], qi: &mut [i8]) -> f32 {
    let (z, _) = z.as_chunks::<8>();
    let mut most = vdupq_n_f32(0.0);
    for z in z {
        let [low, high] = get8(z);
        most = vmaxq_f32(most, vmaxq_f32(vabsq_f32(low), vabsq_f32(high)));
    }
    let a = vmaxvq_f32(most);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    for (z, qi) in z.iter().zip(qi.as_chunks_mut::<8>().0) {
        let [low, high] = get8(z);
        // SAFETY: eight bytes are written.
        unsafe { vst1_s8(qi.as_mut_ptr(), vmovn_s16(rounded(low, high, 127.0 / a))) };
    }
    a * (1.0 / 127.0f64) as f32
}

#[target_feature(enable = "neon")]
pub fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let products = || {
        q.as_chunks().0.iter().zip(step.as_chunks().0).map(|(q, step)| {
            let (q, step) = (get8(q), get8(step));
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

#[target_feature(enable = "neon")]
pub fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32 {
    let products = || {
        p.as_chunks().0.iter().zip(scale.as_chunks().0).map(|(p, scale)| {
            let (p, scale) = (get8(p), get8(scale));
            [vmulq_f32(p[0], scale[0]), vmulq_f32(p[1], scale[1])]
        })
    };
    let most = products().fold(vdupq_n_f32(0.0), |most, [low, high]| vmaxq_f32(most, vmaxq_f32(low, high)));
    let largest = vmaxvq_f32(most);
    if largest < 2f32.powi(-60) {
        iw.fill(0);
        return largest;
    }
    for ([low, high], iw) in products().zip(iw.as_chunks_mut::<8>().0) {
        // SAFETY: eight words are written.
        unsafe { vst1q_s16(iw.as_mut_ptr(), rounded(low, high, 16383.0 / largest)) };
    }
    largest
}

/// Of zeros of both signs either may be returned: nothing that uses a maximum can tell.
#[target_feature(enable = "neon")]
pub fn maximum(t: &[f32]) -> f32 {
    let (whole, rest) = t.as_chunks();
    let most = whole.iter().fold([vdupq_n_f32(f32::NEG_INFINITY); 2], |most, t| {
        let t = get8(t);
        [vmaxq_f32(most[0], t[0]), vmaxq_f32(most[1], t[1])]
    });
    let most = vmaxvq_f32(vmaxq_f32(most[0], most[1]));
    rest.iter().fold(most, |most, t| if *t > most { *t } else { most })
}
