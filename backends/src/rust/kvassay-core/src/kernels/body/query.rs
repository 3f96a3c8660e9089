//! Integer queries and weights, and the largest of logits.

use super::Isa;
use crate::arith::rne_bits;

/// The largest, and not less than `from`, of whole sixteens of x times by, or of their magnitudes.
#[inline(always)]
fn largest<I: Isa, const ABS: bool>(x: &[f32], by: Option<&[f32]>, from: f32) -> f32 {
    let mut most = [I::all(from); 2];
    for (n, x) in x.as_chunks::<16>().0.iter().enumerate() {
        for (i, most) in most.iter_mut().enumerate() {
            let mut x = I::get(&x.as_chunks().0[i]);
            if let Some(by) = by {
                x = I::mul(x, I::get(&by.as_chunks().0[2 * n + i]));
            }
            *most = I::max(if ABS { I::abs(x) } else { x }, *most);
        }
    }
    I::largest(I::max(most[0], most[1]))
}

#[inline(always)]
pub fn query8<I: Isa>(z: &[f32], qi: &mut [i8]) -> f32 {
    let a = largest::<I, true>(z, None, 0.0);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    let factor = I::all(127.0 / a);
    for (z, qi) in z.as_chunks().0.iter().zip(qi.as_chunks_mut::<8>().0) {
        let mut words = [0; 8];
        I::words(I::mul(I::get(z), factor), &mut words);
        *qi = words.map(|word| word as i8);
    }
    a * (1.0 / 127.0f64) as f32
}

/// Products of two rows times a factor as whole numbers, in order.
#[inline(always)]
fn scaled<I: Isa>(a: &[f32], b: &[f32], factor: f32, out: &mut [i16]) {
    if I::PLAIN {
        for ((a, b), out) in a.iter().zip(b).zip(&mut *out) {
            *out = rne_bits(a * b * factor) as i16;
        }
        return;
    }
    for ((a, b), out) in a.as_chunks().0.iter().zip(b.as_chunks().0).zip(out.as_chunks_mut().0) {
        I::words(I::mul(I::mul(I::get(a), I::get(b)), I::all(factor)), out);
    }
    I::order(out);
}

#[inline(always)]
pub fn query15<I: Isa>(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
    let a = largest::<I, true>(q, Some(step), 0.0);
    if a == 0.0 {
        qi.fill(0);
        return 0.0;
    }
    scaled::<I>(q, step, 16256.0 / a, qi);
    a * (1.0 / 16256.0f64) as f32
}

#[inline(always)]
pub fn weigh<I: Isa>(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32 {
    let largest = largest::<I, false>(p, Some(scale), 0.0);
    if largest < 2f32.powi(-60) {
        iw.fill(0);
    } else {
        scaled::<I>(p, scale, 16383.0 / largest, iw);
    }
    largest
}

#[inline(always)]
pub fn maximum<I: Isa>(t: &[f32]) -> f32 {
    let most = largest::<I, false>(t, None, f32::NEG_INFINITY);
    t.as_chunks::<16>().1.iter().fold(most, |most, t| if *t > most { *t } else { most })
}
