//! `T` and its inverse: butterflies of several numbers in one pass.

use super::Isa;
use crate::transform::{MOST_CHANNELS, Transform};

/// `Had` of a row.
#[inline(always)]
pub fn hadamard<I: Isa>(x: &mut [f32], block: usize) {
    for x in x.as_chunks_mut().0 {
        I::sixteen(x);
    }
    if block > 16 {
        for x in x.chunks_exact_mut(block) {
            stages::<I>(x, 16, 8);
        }
    }
}

/// The stages of `h` numbers and more, among up to `most` numbers in one pass.
#[inline(always)]
pub fn stages<I: Isa>(x: &mut [f32], mut h: usize, most: usize) {
    while h < x.len() {
        if I::PLAIN {
            for pair in x.chunks_exact_mut(2 * h) {
                let (a, b) = pair.split_at_mut(h);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            h *= 2;
            continue;
        }
        let ways = (x.len() / h).min(most);
        for x in x.chunks_exact_mut(ways * h) {
            match ways {
                2 => butterflies::<I, 2>(x, h),
                4 => butterflies::<I, 4>(x, h),
                8 => butterflies::<I, 8>(x, h),
                _ => butterflies::<I, 16>(x, h),
            }
        }
        h *= ways;
    }
}

/// All stages among `WAYS` numbers h apart.
#[inline(always)]
#[allow(unsafe_code)]
fn butterflies<I: Isa, const WAYS: usize>(x: &mut [f32], h: usize) {
    assert!(x.len() == WAYS * h && h.is_multiple_of(8));
    for c in (0..h).step_by(8) {
        // SAFETY: c + 8 <= h, so that eight columns of WAYS rows of h are there.
        let mut at = |i: usize| unsafe { x.as_mut_ptr().add(i * h + c).cast::<[f32; 8]>() };
        let mut v = [I::all(0.0); WAYS];
        for (i, v) in v.iter_mut().enumerate() {
            // SAFETY: likewise.
            *v = I::get(unsafe { &*at(i) });
        }
        let mut step = 1;
        while step < WAYS {
            for i in 0..WAYS {
                if i & step == 0 {
                    (v[i], v[i + step]) = (I::add(v[i], v[i + step]), I::sub(v[i], v[i + step]));
                }
            }
            step *= 2;
        }
        for (i, v) in v.iter().enumerate() {
            // SAFETY: likewise.
            I::put(*v, unsafe { &mut *at(i) });
        }
    }
}

/// A row with room for any index that a transform has, so that none need be checked.
const ROOM: usize = MOST_CHANNELS.next_power_of_two();

#[inline(always)]
fn multiply(out: &mut [f32], x: &[f32], by: &[f32]) {
    for ((out, x), by) in out.iter_mut().zip(x).zip(by) {
        *out = x * by;
    }
}

#[inline(always)]
pub fn forward<I: Isa>(t: &Transform, x: &mut [f32]) {
    let mut room = [0.0; ROOM];
    for x in x.chunks_exact_mut(t.d) {
        multiply(&mut room[..t.d], x, t.first());
        hadamard::<I>(&mut room[..t.d], t.block);
        if t.rounds == 2 {
            for ((x, from), sign) in x.iter_mut().zip(t.order()).zip(t.second()) {
                *x = room[usize::from(*from) % ROOM] * sign;
            }
            hadamard::<I>(x, t.block);
        } else {
            x.copy_from_slice(&room[..t.d]);
        }
    }
}

#[inline(always)]
pub fn inverse<I: Isa>(t: &Transform, x: &mut [f32]) {
    let mut room = [0.0; ROOM];
    for x in x.chunks_exact_mut(t.d) {
        hadamard::<I>(x, t.block);
        if t.rounds == 2 {
            for ((x, to), sign) in x.iter().zip(t.order()).zip(t.second()) {
                room[usize::from(*to) % ROOM] = x * sign;
            }
            hadamard::<I>(&mut room[..t.d], t.block);
        } else {
            room[..t.d].copy_from_slice(x);
        }
        multiply(x, &room[..t.d], t.first());
    }
}
