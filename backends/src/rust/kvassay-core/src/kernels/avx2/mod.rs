//! AVX2, F16C and PCLMULQDQ. What has no intrinsics here is the plain Rust of `body`, compiled for these instructions.
#![allow(unsafe_code)]

mod affine;
mod crc;
mod encode;
mod lanes;
mod quantize;
mod registers;
mod rows;
mod scan;
mod seven;
mod tiles;
mod wide;

use super::{Fp16Rows, Kernels, Queries, Turbo, Workspace, body};
use crate::codec::{Codec, Span};
use crate::transform::Transform;

/// The variant; there is one only where the CPU has the instructions.
pub struct Avx2(());

impl Avx2 {
    /// The variant if this CPU runs it.
    pub fn find() -> Option<&'static Self> {
        static FOUND: Avx2 = Avx2(());
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("pclmulqdq");
        has.then_some(&FOUND)
    }
}

/// Methods that run the function of the same name with these instructions.
macro_rules! with_avx2 {
    ($($from:path => fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self, $($arg: $type),*) $(-> $result)? {
            #[target_feature(enable = "avx2,f16c,pclmulqdq")]
            fn inside($($arg: $type),*) $(-> $result)? {
                use $from as function;
                function($($arg),*)
            }
            // SAFETY: an Avx2 exists, so the CPU has the instructions.
            unsafe { inside($($arg),*) }
        }
    )*};
}

impl Kernels for Avx2 {
    fn arranged(&self, d: usize) -> usize {
        seven::arranged(d)
    }
    with_avx2! {
        rows::narrow => fn narrow(x: &[f32], out: &mut [u8]) -> bool;
        rows::widen => fn widen(x: &[u8], mean: &[u8], out: &mut [f32]);
        rows::mean => fn mean(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]);
        wide::forward => fn forward(t: &Transform, x: &mut [f32]);
        wide::inverse => fn inverse(t: &Transform, x: &mut [f32]);
        body::quantize => fn quantize(codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]);
        body::residual => fn residual(codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32;
        affine::affine_keys => fn affine_keys(
            bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]
        );
        affine::affine_values => fn affine_values(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16);
        tiles::pack_keys => fn pack_keys(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        tiles::pack_values => fn pack_values(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        encode::encode => fn encode(
            turbo: &Turbo<'_>, rows: Fp16Rows<'_>, mean: &[u8], work: &mut Workspace<'_>, tiles: &mut [u8]
        );
        encode::signs => fn signs(key: &Codec, t: &Transform, work: &mut Workspace<'_>, tiles: &mut [u8]);
        body::query8 => fn query8(z: &[f32], qi: &mut [i8]) -> f32;
        scan::prefetch => fn prefetch(bytes: &[u8]);
        seven::arrange => fn arrange(codec: &Codec, d: usize, qi: &[i8], arranged: &mut [i32]);
        scan::query15 => fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32;
        seven::keyscan => fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]);
        scan::keyscan15 => fn keyscan15(
            codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]
        );
        scan::valuesum => fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]);
        body::maximum => fn maximum(t: &[f32]) -> f32;
        body::exponentials => fn exponentials(t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize);
        rows::dots => fn dots(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize);
        rows::dot_each => fn dot_each(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]);
        rows::weighted => fn weighted(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]);
        body::logits => fn logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        body::add_logits => fn add_logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        body::affine_logits => fn affine_logits(sum: &[i32], scale: f32, bias: f32, t: &mut [f32]);
        body::shift => fn shift(t: &mut [f32], bias: f32);
        scan::weigh => fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32;
        body::blend => fn blend(acc: &mut [f32], sum: &[i32], al: f32, f: f32);
        body::blend_affine => fn blend_affine(acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32);
        crc::crc32 => fn crc32(crc: u32, data: &[u8]) -> u32;
        body::blend_rows => fn blend_rows(acc: &mut [f32], x: &[f32], al: f32, be: f32);
    }
}
