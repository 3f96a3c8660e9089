//! Eight floats in two registers, and Turbo's codes.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::isa::{Isa, intrinsics};
use super::super::sums::planes;
use super::super::tiles::Codes;
use super::tiles;
use crate::codec::Span;
use crate::half;

/// NEON of ARMv8.0.
pub struct Neon;

/// Eight floats.
type Eight = [float32x4_t; 2];

/// What is done to each register of two eights.
macro_rules! each {
    ($($name:ident: $is:ident;)*) => {$(
        #[inline(always)]
        fn $name(a: Eight, b: Eight) -> Eight {
            // SAFETY: every aarch64 has the instruction.
            unsafe { [$is(a[0], b[0]), $is(a[1], b[1])] }
        }
    )*};
}

impl Isa for Neon {
    type Eight = Eight;

    each! {
        add: vaddq_f32;
        sub: vsubq_f32;
        mul: vmulq_f32;
        div: vdivq_f32;
        min: vminq_f32;
        max: vmaxq_f32;
    }
    intrinsics! {
        fn all(x: f32) -> Eight { [vdupq_n_f32(x); 2] }
        fn get(x: &[f32; 8]) -> Eight { [vld1q_f32(x.as_ptr()), vld1q_f32(x[4..].as_ptr())] }
        fn put(x: Eight, out: &mut [f32; 8]) {
            vst1q_f32(out.as_mut_ptr(), x[0]);
            vst1q_f32(out[4..].as_mut_ptr(), x[1])
        }
        fn abs(x: Eight) -> Eight { x.map(|x| vabsq_f32(x)) }
        fn largest(x: Eight) -> f32 { vmaxvq_f32(vmaxq_f32(x[0], x[1])) }
        fn tree(x: Eight) -> f32 {
            let four = vaddq_f32(x[0], x[1]);
            vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
        fn widen(halves: &[u8; 16]) -> Eight { widen(vld1q_u8(halves.as_ptr())) }
        fn narrow(x: Eight, out: &mut [u8; 16]) { vst1q_u8(out.as_mut_ptr(), narrow(x)) }
        fn narrow_finite(x: Eight, out: &mut [u8; 16]) {
            // An infinity, 0x7c00, becomes the largest number below it. Compare gives -1.
            let h = vreinterpretq_u16_u8(narrow(x));
            let infinite = vceqq_u16(vandq_u16(h, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x7c00));
            vst1q_u8(out.as_mut_ptr(), vreinterpretq_u8_u16(vaddq_u16(h, infinite)))
        }
        fn finite(x: Eight) -> bool {
            let limit = vdupq_n_f32(half::LARGEST);
            vminvq_u32(vandq_u32(vcaleq_f32(x[0], limit), vcaleq_f32(x[1], limit))) == u32::MAX
        }
        fn words(x: Eight, out: &mut [i16; 8]) { vst1q_s16(out.as_mut_ptr(), words(x)) }
        fn codes(x: Eight, step: Eight, out: &mut [u8; 8]) {
            // Where the step is 0 the quotient may be NaN.
            let some = |i| vbicq_u32(vreinterpretq_u32_f32(x[i]), vceqzq_f32(step[i]));
            let x = [vreinterpretq_f32_u32(some(0)), vreinterpretq_f32_u32(some(1))];
            vst1_u8(out.as_mut_ptr(), vmovn_u16(vreinterpretq_u16_s16(words(x))))
        }
        fn order(w: &mut [i16]) { planes(w) }
        fn sixteen(x: &mut [f32; 16]) { sixteen(x) }
        fn pack(codes: &Codes, bits: usize, tile: &mut [u8]) { tiles::pack(codes, bits, tile) }
        fn centroids(span: &Span, codes: &[u8], out: &mut [f32]) { centroids(span, codes, out) }
    }
    #[inline(always)]
    fn threshold<const N: usize>(span: &Span, sigma: f32, y: &[f32], codes: &mut [u8], out: &mut [f32]) {
        // SAFETY: every aarch64 has the instructions.
        unsafe { threshold::<N>(span, sigma, y, codes, out) }
    }
}

/// Exact. The instructions are ARMv8.0; their intrinsics came to Rust later than this needs.
#[inline]
#[target_feature(enable = "neon")]
fn widen(halves: uint8x16_t) -> Eight {
    let (low, high);
    // SAFETY: registers alone; every aarch64 has the instructions.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) low, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
        asm!("fcvtl2 {0:v}.4s, {1:v}.8h", out(vreg) high, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
    }
    [low, high]
}

/// Ties to even; what is too large becomes infinite.
#[inline]
#[target_feature(enable = "neon")]
fn narrow([low, high]: Eight) -> uint8x16_t {
    let halves: uint8x16_t;
    // SAFETY: registers alone; every aarch64 has the instructions.
    unsafe {
        asm!(
            "fcvtn {0:v}.4h, {1:v}.4s",
            "fcvtn2 {0:v}.8h, {2:v}.4s",
            out(vreg) halves, in(vreg) low, in(vreg) high, options(pure, nomem, nostack, preserves_flags)
        );
    }
    halves
}

/// Rounded to nearest even.
#[inline]
#[target_feature(enable = "neon")]
fn words(x: Eight) -> int16x8_t {
    vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x[0])), vmovn_s32(vcvtnq_s32_f32(x[1])))
}

/// A code is half + m, or half - 1 - m, which is half + !m, for a negative number; m counts the thresholds reached.
#[inline]
#[target_feature(enable = "neon")]
fn codes4<const N: usize>(y: float32x4_t, th: &[float32x4_t; N]) -> uint16x4_t {
    let m = th.iter().fold(vdupq_n_u32(0), |m, th| vsubq_u32(m, vcageq_f32(y, *th)));
    vmovn_u32(vaddq_u32(vdupq_n_u32(N as u32 + 1), veorq_u32(m, vcltzq_f32(y))))
}

#[inline]
#[target_feature(enable = "neon")]
fn threshold<const N: usize>(span: &Span, sigma: f32, y: &[f32], codes: &mut [u8], out: &mut [f32]) {
    let th: [float32x4_t; N] = std::array::from_fn(|i| vdupq_n_f32(span.thresholds[i] * sigma));
    for (y, codes) in y.as_chunks().0.iter().zip(codes.as_chunks_mut::<8>().0) {
        let [low, high] = Neon::get(y).map(|y| codes4(y, &th));
        // SAFETY: eight bytes are written.
        unsafe { vst1_u8(codes.as_mut_ptr(), vmovn_u16(vcombine_u16(low, high))) };
    }
    centroids(span, codes, out);
}

#[inline]
#[target_feature(enable = "neon")]
fn centroids(span: &Span, codes: &[u8], out: &mut [f32]) {
    let table = tiles::table(span);
    for (codes, out) in codes.as_chunks::<8>().0.iter().zip(out.as_chunks_mut().0) {
        // SAFETY: eight bytes are read.
        let words = vmovl_s8(vqtbl1_s8(table, unsafe { vld1_u8(codes.as_ptr()) }));
        Neon::put([vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))], out);
    }
}

/// Two registers as pairs of floats: the first of each, the second of each.
#[inline]
#[target_feature(enable = "neon")]
fn of_pairs(a: float32x4_t, b: float32x4_t) -> (float32x4_t, float32x4_t) {
    let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
    (vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b)))
}

/// Stages 1 and 2 of two registers: interleaved, both are a sum and a difference.
#[inline]
#[target_feature(enable = "neon")]
fn two_stages([x, y]: Eight) -> Eight {
    let (even, odd) = (vtrn1q_f32(x, y), vtrn2q_f32(x, y));
    let (low, high) = of_pairs(vaddq_f32(even, odd), vsubq_f32(even, odd));
    let (sum, difference) = (vaddq_f32(low, high), vsubq_f32(low, high));
    [vuzp1q_f32(sum, difference), vuzp2q_f32(sum, difference)]
}

#[inline]
#[target_feature(enable = "neon")]
fn sixteen(x: &mut [f32; 16]) {
    let (halves, _) = x.as_chunks_mut();
    let [low, high] = [0, 1].map(|i| {
        let [a, b] = two_stages(Neon::get(&halves[i]));
        [vaddq_f32(a, b), vsubq_f32(a, b)]
    });
    Neon::put(Neon::add(low, high), &mut halves[0]);
    Neon::put(Neon::sub(low, high), &mut halves[1]);
}
