//! KIVI: asymmetric steps and minima (numeric contract, section 6), eight groups or eight channels at once.

use super::Isa;
use crate::half;

/// Step and minimum of eight groups, as they are read.
struct Affine<I: Isa> {
    step: I::Eight,
    minimum: I::Eight,
    /// The largest code.
    most: I::Eight,
}

impl<I: Isa> Affine<I> {
    /// Stores them.
    #[inline(always)]
    fn new(bits: usize, low: I::Eight, high: I::Eight, step: &mut [u8; 16], minimum: &mut [u8; 16]) -> Self {
        let (zero, most) = (I::all(0.0), I::all(((1 << bits) - 1) as f32));
        I::narrow_finite(I::add(low, zero), minimum);
        let low = I::widen(minimum);
        I::narrow_finite(I::div(I::max(I::sub(I::add(high, zero), low), zero), most), step);
        Self { step: I::widen(step), minimum: low, most }
    }

    /// The largest code is a whole number, so that it does not matter which comes first, rounding or this limit. Of a
    /// step of 0 the quotient may be NaN.
    #[inline(always)]
    fn codes(&self, r: &[f32; 8], out: &mut [u8; 8]) {
        let quotient = I::div(I::sub(I::get(r), self.minimum), self.step);
        I::codes(I::min(I::max(quotient, I::all(0.0)), self.most), self.step, out);
    }
}

#[inline(always)]
pub fn affine_keys<I: Isa>(bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]) {
    let stored = steps.as_chunks_mut().0.iter_mut().zip(minima.as_chunks_mut().0);
    for (n, (step, minimum)) in stored.enumerate() {
        let (mut low, mut high) = (I::all(f32::INFINITY), I::all(f32::NEG_INFINITY));
        for r in r.chunks_exact(d) {
            let x = I::get(&r.as_chunks().0[n]);
            (low, high) = (I::min(x, low), I::max(x, high));
        }
        let affine = Affine::<I>::new(bits, low, high, step, minimum);
        for (r, codes) in r.chunks_exact(d).zip(codes.chunks_exact_mut(d)) {
            affine.codes(&r.as_chunks().0[n], &mut codes.as_chunks_mut().0[n]);
        }
    }
}

#[inline(always)]
pub fn affine_values<I: Isa>(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16) {
    let (mut low, mut high) = (I::all(f32::NEG_INFINITY), I::all(f32::NEG_INFINITY));
    for x in r.as_chunks().0 {
        let x = I::get(x);
        (low, high) = (I::max(I::sub(I::all(-0.0), x), low), I::max(x, high));
    }
    let (mut step, mut minimum) = ([0; 16], [0; 16]);
    let (low, high) = (I::all(-I::largest(low)), I::all(I::largest(high)));
    let affine = Affine::<I>::new(bits, low, high, &mut step, &mut minimum);
    for (r, codes) in r.as_chunks().0.iter().zip(codes.as_chunks_mut().0) {
        affine.codes(r, codes);
    }
    (half::get(&step, 0), half::get(&minimum, 0))
}
