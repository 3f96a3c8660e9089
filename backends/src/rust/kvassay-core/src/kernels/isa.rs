//! What an instruction set has of its own for the kernels of `body`: eight floats at once, and the few steps that no
//! compiler finds by itself.

use super::body;
use super::tiles::{self, Codes};
use crate::arith::rne_bits;
use crate::codec::Span;
use crate::half;

/// An instruction set. Its functions run where the kernels that use them run, and are inlined into them; a closure over
/// eights that an iterator or an array calls would be compiled without the instructions.
pub trait Isa {
    /// Eight floats.
    type Eight: Copy;
    /// No intrinsics: fp16 is widened by many instructions, so by the row and once for all that use it.
    const PLAIN: bool = false;

    fn all(x: f32) -> Self::Eight;
    fn get(x: &[f32; 8]) -> Self::Eight;
    fn put(x: Self::Eight, out: &mut [f32; 8]);
    fn add(a: Self::Eight, b: Self::Eight) -> Self::Eight;
    fn sub(a: Self::Eight, b: Self::Eight) -> Self::Eight;
    fn mul(a: Self::Eight, b: Self::Eight) -> Self::Eight;
    fn div(a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Of a NaN and a number either.
    fn min(a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Likewise.
    fn max(a: Self::Eight, b: Self::Eight) -> Self::Eight;
    fn abs(x: Self::Eight) -> Self::Eight;
    /// The largest of all.
    fn largest(x: Self::Eight) -> f32;
    /// The rest of a tree: 8, 4 and 2 sums folded by halves.
    fn tree(x: Self::Eight) -> f32;
    /// The same of eight at once.
    #[inline(always)]
    fn trees(x: [Self::Eight; 8]) -> Self::Eight {
        let mut sums = [0.0; 8];
        for i in 0..8 {
            sums[i] = Self::tree(x[i]);
        }
        Self::get(&sums)
    }

    fn widen(halves: &[u8; 16]) -> Self::Eight;
    /// To the nearest half; of a number beyond 65504 that or infinity.
    fn narrow(x: Self::Eight, out: &mut [u8; 16]);
    /// `f16s`: of a number beyond 65504 that.
    fn narrow_finite(x: Self::Eight, out: &mut [u8; 16]);
    /// None is NaN or beyond the largest half.
    fn finite(x: Self::Eight) -> bool;
    /// Rounded to nearest even, numbers of at most 15 bits.
    fn words(x: Self::Eight, out: &mut [i16; 8]);
    /// Likewise codes, 0 where `step` is 0.
    fn codes(x: Self::Eight, step: Self::Eight, out: &mut [u8; 8]);
    /// Asks for a row that is read soon.
    #[inline(always)]
    fn ask_for(_row: &[u8]) {}

    /// Puts integer weights and queries of 15 bits in the order that sums read, sixteens of them.
    #[inline(always)]
    fn order(_: &mut [i16]) {}

    /// Stages of 1, 2, 4 and 8 numbers.
    fn sixteen(x: &mut [f32; 16]);
    /// Codes of one span with N thresholds, and what they stand for.
    #[inline(always)]
    fn threshold<const N: usize>(span: &Span, sigma: f32, y: &[f32], codes: &mut [u8], centroids: &mut [f32]) {
        body::threshold::<N>(span, sigma, y, codes, centroids);
    }
    /// What codes of one span stand for.
    #[inline(always)]
    fn centroids(span: &Span, codes: &[u8], out: &mut [f32]) {
        let table = span.table.map(f32::from);
        for (code, out) in codes.iter().zip(out) {
            *out = table[usize::from(code & 15)];
        }
    }
    /// Sixty-four codes to a tile.
    #[inline(always)]
    fn pack(codes: &Codes, bits: usize, tile: &mut [u8]) {
        tiles::pack(codes, bits, tile);
    }
}

/// Methods that are intrinsics.
macro_rules! intrinsics {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? { $($is:tt)* })*) => {$(
        #[inline(always)]
        fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: kernels over the type run where the CPU has the instructions; memory is that of the references.
            #[allow(unused_unsafe)] // some call functions that are safe here
            unsafe { $($is)* }
        }
    )*};
}

pub(super) use intrinsics;

/// Plain Rust, for whatever instruction set the target has.
pub struct Plain;

#[inline(always)]
fn each(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    let mut out = [0.0; 8];
    for i in 0..8 {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn fold(mut x: [f32; 8], f: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [4, 2, 1] {
        for i in 0..half {
            x[i] = f(x[i], x[i + half]);
        }
    }
    x[0]
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl Isa for Plain {
    type Eight = [f32; 8];
    const PLAIN: bool = true;

    #[inline(always)]
    fn all(x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    fn get(x: &[f32; 8]) -> [f32; 8] {
        *x
    }
    #[inline(always)]
    fn put(x: [f32; 8], out: &mut [f32; 8]) {
        *out = x;
    }
    #[inline(always)]
    fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn min(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(a, b, larger)
    }
    #[inline(always)]
    fn abs(x: [f32; 8]) -> [f32; 8] {
        x.map(f32::abs)
    }
    #[inline(always)]
    fn largest(x: [f32; 8]) -> f32 {
        fold(x, larger)
    }
    #[inline(always)]
    fn tree(x: [f32; 8]) -> f32 {
        fold(x, |a, b| a + b)
    }
    #[inline(always)]
    fn widen(halves: &[u8; 16]) -> [f32; 8] {
        let mut out = [0.0; 8];
        for (out, h) in out.iter_mut().zip(halves.as_chunks().0) {
            *out = half::widen(u16::from_le_bytes(*h));
        }
        out
    }
    #[inline(always)]
    fn narrow(x: [f32; 8], out: &mut [u8; 16]) {
        for (x, out) in x.iter().zip(out.as_chunks_mut().0) {
            *out = half::narrow(*x).to_le_bytes();
        }
    }
    #[inline(always)]
    fn narrow_finite(x: [f32; 8], out: &mut [u8; 16]) {
        Self::narrow(x, out);
    }
    #[inline(always)]
    fn finite(x: [f32; 8]) -> bool {
        x.iter().fold(true, |all, x| all & (x.abs() <= half::LARGEST)) // false for NaN
    }
    #[inline(always)]
    fn words(x: [f32; 8], out: &mut [i16; 8]) {
        for (x, out) in x.iter().zip(out) {
            *out = rne_bits(*x) as i16;
        }
    }
    #[inline(always)]
    fn codes(x: [f32; 8], step: [f32; 8], out: &mut [u8; 8]) {
        for i in 0..8 {
            out[i] = if step[i] == 0.0 { 0 } else { rne_bits(x[i]) as u8 };
        }
    }
    #[inline(always)]
    fn sixteen(x: &mut [f32; 16]) {
        for h in [1, 2, 4, 8] {
            for i in 0..16 {
                if i & h == 0 {
                    (x[i], x[i + h]) = (x[i] + x[i + h], x[i] - x[i + h]);
                }
            }
        }
    }
}
