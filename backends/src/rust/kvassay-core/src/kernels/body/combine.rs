//! Softmax, and combinations of sums with scales.

use super::Isa;
use crate::arith::ex2;

#[inline(always)]
pub fn exponentials<I: Isa>(t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize) {
    let lead = t.len().min((16 - phase % 16) % 16);
    let (head, body) = t.split_at_mut(lead);
    for (i, t) in head.iter_mut().enumerate() {
        *t = ex2(*t - maximum);
        stripes[(phase + i) % 16] += *t;
    }
    let (whole, rest) = body.as_chunks_mut::<16>();
    for t in whole {
        for i in 0..16 {
            t[i] = ex2(t[i] - maximum);
            stripes[i] += t[i];
        }
    }
    for (t, stripe) in rest.iter_mut().zip(stripes) {
        *t = ex2(*t - maximum);
        *stripe += *t;
    }
}

#[inline(always)]
pub fn logits<I: Isa>(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]) {
    for ((sum, su), t) in sum.iter().zip(su).zip(t) {
        *t = *sum as f32 * su * factor;
    }
}

#[inline(always)]
pub fn add_logits<I: Isa>(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]) {
    for ((sum, su), t) in sum.iter().zip(su).zip(t) {
        *t += *sum as f32 * su * factor;
    }
}

#[inline(always)]
pub fn affine_logits<I: Isa>(sum: &[i32], scale: f32, bias: f32, t: &mut [f32]) {
    for (sum, t) in sum.iter().zip(t) {
        *t = *sum as f32 * scale + bias;
    }
}

#[inline(always)]
pub fn shift<I: Isa>(t: &mut [f32], bias: f32) {
    for t in t {
        *t += bias;
    }
}

#[inline(always)]
pub fn blend<I: Isa>(acc: &mut [f32], sum: &[i32], al: f32, f: f32) {
    for (acc, sum) in acc.iter_mut().zip(sum) {
        *acc = *acc * al + *sum as f32 * f;
    }
}

#[inline(always)]
pub fn blend_affine<I: Isa>(acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32) {
    for (acc, sum) in acc.iter_mut().zip(sum) {
        *acc = *acc * al + (*sum as f32 * scale + offset) * be;
    }
}

#[inline(always)]
pub fn blend_rows<I: Isa>(acc: &mut [f32], x: &[f32], al: f32, be: f32) {
    for (acc, x) in acc.iter_mut().zip(x) {
        *acc = *acc * al + x * be;
    }
}

/// What lies in memory is read when it is read.
#[inline(always)]
pub fn prefetch<I: Isa>(_: &[u8]) {}

#[inline(always)]
pub fn crc32<I: Isa>(crc: u32, data: &[u8]) -> u32 {
    crate::crc::crc32(crc, data)
}
