//! NEON of ARMv8.0, with the dot product of ARMv8.2 as a variant of its own, and the CRC instructions where the CPU has
//! them. Never a fused multiply-add. What has no intrinsics here is the plain Rust of `body`, which the compiler makes
//! NEON of, since every aarch64 has it.
#![allow(unsafe_code)]

mod affine;
mod codes;
mod crc;
mod lanes;
mod query;
mod rows;
mod scan;
mod tiles;
mod wide;

use std::arch::is_aarch64_feature_detected;

use super::{Fp16Rows, Kernels, Queries, body};
use crate::codec::{Codec, Span};
use crate::transform::Transform;

/// The variant without the dot product, or with it, of which there is one only where the CPU has the instruction.
pub struct Neon<const DOT: bool>(());

impl Neon<false> {
    /// Every aarch64 runs it.
    pub fn get() -> &'static Self {
        &Neon(())
    }
}

impl Neon<true> {
    /// The variant if this CPU runs it.
    pub fn find() -> Option<&'static Self> {
        is_aarch64_feature_detected!("dotprod").then_some(&Neon(()))
    }
}

/// Methods that are the function of the same name.
macro_rules! with_neon {
    ($($function:expr => fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[allow(unused_unsafe)] // those of `body` need no instructions
        fn $name(&self, $($arg: $type),*) $(-> $result)? {
            // SAFETY: every aarch64 has NEON, and a Neon<true> is there only where the dot product is.
            unsafe { $function($($arg),*) }
        }
    )*};
}

impl<const DOT: bool> Kernels for Neon<DOT> {
    with_neon! {
        rows::narrow => fn narrow(x: &[f32], out: &mut [u8]) -> bool;
        rows::widen => fn widen(x: &[u8], mean: &[u8], out: &mut [f32]);
        wide::forward => fn forward(t: &Transform, x: &mut [f32]);
        wide::inverse => fn inverse(t: &Transform, x: &mut [f32]);
        codes::quantize => fn quantize(codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]);
        codes::residual => fn residual(codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32;
        affine::affine_keys => fn affine_keys(
            bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]
        );
        affine::affine_values => fn affine_values(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16);
        tiles::pack_keys => fn pack_keys(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        tiles::pack_values => fn pack_values(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        query::query8 => fn query8(z: &[f32], qi: &mut [i8]) -> f32;
        query::query15 => fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32;
        scan::keyscan::<DOT> => fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]);
        scan::keyscan15::<DOT> => fn keyscan15(
            codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]
        );
        scan::valuesum::<DOT> => fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]);
        query::maximum => fn maximum(t: &[f32]) -> f32;
        body::exponentials => fn exponentials(t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize);
        rows::dots => fn dots(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize);
        rows::dot_each => fn dot_each(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]);
        rows::mean => fn mean(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]);
        rows::weighted => fn weighted(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]);
        body::logits => fn logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        body::add_logits => fn add_logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        body::affine_logits => fn affine_logits(sum: &[i32], scale: f32, bias: f32, t: &mut [f32]);
        body::shift => fn shift(t: &mut [f32], bias: f32);
        query::weigh => fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32;
        body::blend => fn blend(acc: &mut [f32], sum: &[i32], al: f32, f: f32);
        body::blend_affine => fn blend_affine(acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32);
        body::blend_rows => fn blend_rows(acc: &mut [f32], x: &[f32], al: f32, be: f32);
        crc::crc32 => fn crc32(crc: u32, data: &[u8]) -> u32;
    }
}
