//! Memory to registers and back, fp16 to floats and back, and the sums of `D16`.

use std::arch::aarch64::*;
use std::arch::asm;

/// Sixteen floats.
pub type Sixteen = [float32x4_t; 4];

#[inline]
#[target_feature(enable = "neon")]
pub fn zeros() -> Sixteen {
    [vdupq_n_f32(0.0); 4]
}

#[inline]
#[target_feature(enable = "neon")]
pub fn get(x: &[f32; 16]) -> Sixteen {
    // SAFETY: sixteen floats are read.
    [0, 4, 8, 12].map(|i| unsafe { vld1q_f32(x.as_ptr().add(i)) })
}

#[inline]
#[target_feature(enable = "neon")]
pub fn put(out: &mut [f32; 16], x: Sixteen) {
    for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
        put4(out, x);
    }
}

#[inline]
#[target_feature(enable = "neon")]
pub fn get4(x: &[f32; 4]) -> float32x4_t {
    // SAFETY: four floats are read.
    unsafe { vld1q_f32(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub fn get8(x: &[f32; 8]) -> [float32x4_t; 2] {
    let (x, _) = x.as_chunks::<4>();
    [get4(&x[0]), get4(&x[1])]
}

#[inline]
#[target_feature(enable = "neon")]
pub fn put4(out: &mut [f32; 4], x: float32x4_t) {
    // SAFETY: four floats are written.
    unsafe { vst1q_f32(out.as_mut_ptr(), x) };
}

#[inline]
#[target_feature(enable = "neon")]
pub fn bytes(x: &[u8; 16]) -> uint8x16_t {
    // SAFETY: sixteen bytes are read.
    unsafe { vld1q_u8(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub fn put_bytes(out: &mut [u8; 16], x: uint8x16_t) {
    // SAFETY: sixteen bytes are written.
    unsafe { vst1q_u8(out.as_mut_ptr(), x) };
}

/// Eight halves as floats: exact. The instructions are ARMv8.0; their intrinsics came to Rust later than this needs.
#[inline]
#[target_feature(enable = "neon")]
pub fn widen8(halves: uint8x16_t) -> [float32x4_t; 2] {
    let (low, high);
    // SAFETY: registers alone; every aarch64 has the instructions.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) low, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
        asm!("fcvtl2 {0:v}.4s, {1:v}.8h", out(vreg) high, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
    }
    [low, high]
}

/// Eight floats to the nearest halves, ties to even; what is too large becomes infinite.
#[inline]
#[target_feature(enable = "neon")]
pub fn narrow8(low: float32x4_t, high: float32x4_t) -> uint8x16_t {
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

/// `f16s` of eight floats: an infinity, 0x7c00, becomes the largest number below it. Compare gives -1.
#[inline]
#[target_feature(enable = "neon")]
pub fn narrow8_finite([low, high]: [float32x4_t; 2]) -> uint8x16_t {
    let h = vreinterpretq_u16_u8(narrow8(low, high));
    let infinite = vceqq_u16(vandq_u16(h, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x7c00));
    vreinterpretq_u8_u16(vaddq_u16(h, infinite))
}

/// Sixteen halves as floats.
#[inline]
#[target_feature(enable = "neon")]
pub fn widen16(x: &[u8; 32]) -> Sixteen {
    let (x, _) = x.as_chunks::<16>();
    let ([a, b], [c, d]) = (widen8(bytes(&x[0])), widen8(bytes(&x[1])));
    [a, b, c, d]
}

/// `s + a * b`, each rounded.
#[inline]
#[target_feature(enable = "neon")]
pub fn add_product(s: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vaddq_f32(s, vmulq_f32(a, b))
}

/// Folds sixteen sums by halves.
#[inline]
#[target_feature(enable = "neon")]
pub fn tree(s: Sixteen) -> f32 {
    let four = vaddq_f32(vaddq_f32(s[0], s[2]), vaddq_f32(s[1], s[3]));
    vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
}

/// `D16(a, b)`.
#[inline]
#[target_feature(enable = "neon")]
pub fn d16(a: &[f32], b: &[f32]) -> f32 {
    let mut s = zeros();
    for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
        let (a, b) = (get(a), get(b));
        for i in 0..4 {
            s[i] = add_product(s[i], a[i], b[i]);
        }
    }
    tree(s)
}
