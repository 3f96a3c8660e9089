//! The transform: the near stages within four registers, the far ones on four columns at once.

use std::arch::aarch64::*;

use super::super::body;
use super::lanes::{get, get4, put, put4};
use crate::transform::Transform;

#[target_feature(enable = "neon")]
pub fn forward(t: &Transform, x: &mut [f32]) {
    body::forward(t, x, |x, block| hadamard(x, block));
}

#[target_feature(enable = "neon")]
pub fn inverse(t: &Transform, x: &mut [f32]) {
    body::inverse(t, x, |x, block| hadamard(x, block));
}

#[target_feature(enable = "neon")]
fn hadamard(x: &mut [f32], block: usize) {
    for x in x.as_chunks_mut::<16>().0 {
        let [a, b, c, d] = get(x);
        let ([a, b], [c, d]) = (two_stages(a, b), two_stages(c, d));
        put(x, four_ways([a, b, c, d]));
    }
    for x in x.chunks_exact_mut(block) {
        let mut h = 16;
        while 4 * h <= block {
            x.chunks_exact_mut(4 * h).for_each(|x| fours(x));
            h *= 4;
        }
        if h < block {
            pairs(x);
        }
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
fn two_stages(x: float32x4_t, y: float32x4_t) -> [float32x4_t; 2] {
    let (even, odd) = (vtrn1q_f32(x, y), vtrn2q_f32(x, y));
    let (low, high) = of_pairs(vaddq_f32(even, odd), vsubq_f32(even, odd));
    let (sum, difference) = (vaddq_f32(low, high), vsubq_f32(low, high));
    [vuzp1q_f32(sum, difference), vuzp2q_f32(sum, difference)]
}

/// Two stages among four registers.
#[inline]
#[target_feature(enable = "neon")]
fn four_ways([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let (ab, a_b) = (vaddq_f32(a, b), vsubq_f32(a, b));
    let (cd, c_d) = (vaddq_f32(c, d), vsubq_f32(c, d));
    [vaddq_f32(ab, cd), vaddq_f32(a_b, c_d), vsubq_f32(ab, cd), vsubq_f32(a_b, c_d)]
}

/// Both stages among the quarters of x.
#[target_feature(enable = "neon")]
fn fours(x: &mut [f32]) {
    let (low, high) = x.split_at_mut(x.len() / 2);
    let ((a, b), (c, d)) = (low.split_at_mut(low.len() / 2), high.split_at_mut(high.len() / 2));
    let ab = a.as_chunks_mut::<4>().0.iter_mut().zip(b.as_chunks_mut::<4>().0);
    let cd = c.as_chunks_mut::<4>().0.iter_mut().zip(d.as_chunks_mut::<4>().0);
    for ((a, b), (c, d)) in ab.zip(cd) {
        let x = four_ways([get4(a), get4(b), get4(c), get4(d)]);
        put4(a, x[0]);
        put4(b, x[1]);
        put4(c, x[2]);
        put4(d, x[3]);
    }
}

/// The stage of the halves of x.
#[target_feature(enable = "neon")]
fn pairs(x: &mut [f32]) {
    let (a, b) = x.split_at_mut(x.len() / 2);
    for (a, b) in a.as_chunks_mut::<4>().0.iter_mut().zip(b.as_chunks_mut::<4>().0) {
        let (x, y) = (get4(a), get4(b));
        put4(a, vaddq_f32(x, y));
        put4(b, vsubq_f32(x, y));
    }
}
