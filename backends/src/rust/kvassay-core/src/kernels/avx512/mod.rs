//! AVX-512 F, BW, DQ and VL, with VNNI as a variant of its own: scans and sums of values with registers of one tile; the
//! rest is that of AVX2.
//!
//! With `--cfg kvassay_emulate` the intrinsics of 512 bits are those of `emulated`, so that the same kernels run, and
//! are compared, on any CPU with AVX2. Such a build is for tests alone.
#![allow(unsafe_code)]

#[cfg(kvassay_emulate)]
mod emulated;
mod scan;
mod tiles;

/// What the kernels are written in.
mod simd {
    #[cfg(kvassay_emulate)]
    pub use super::emulated::*;
    #[cfg(not(kvassay_emulate))]
    pub use std::arch::x86_64::*;
    #[cfg(kvassay_emulate)]
    pub use std::arch::x86_64::{__m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_loadu_si256, _mm256_storeu_si256};
}

use std::sync::OnceLock;

use super::avx2::Avx2;
use super::{Fp16Rows, Kernels, Queries, Turbo, Workspace};
use crate::codec::{Codec, Span};
use crate::transform::Transform;

/// The variant without VNNI or with it; there is one only where the CPU has the instructions. What is not here is done by
/// AVX2.
pub struct Avx512<const VNNI: bool>(&'static Avx2);

impl Avx512<false> {
    /// The variant if this CPU runs it.
    pub fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Avx512<false>>> = OnceLock::new();
        FOUND.get_or_init(|| Avx2::find().filter(|_| cpu_has_it()).map(Self)).as_ref()
    }
}

impl Avx512<true> {
    /// The variant if this CPU runs it.
    pub fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Avx512<true>>> = OnceLock::new();
        let vnni = || cfg!(kvassay_emulate) || is_x86_feature_detected!("avx512vnni");
        FOUND.get_or_init(|| Avx2::find().filter(|_| cpu_has_it() && vnni()).map(Self)).as_ref()
    }
}

fn cpu_has_it() -> bool {
    cfg!(kvassay_emulate)
        || is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
}

/// Methods that are the function of the same name.
macro_rules! with_avx512 {
    ($($function:expr => fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[allow(unused_unsafe)] // some need no instructions
        fn $name(&self, $($arg: $type),*) $(-> $result)? {
            // SAFETY: an Avx512 exists, so the CPU has the instructions.
            unsafe { $function($($arg),*) }
        }
    )*};
}

/// Methods that are those of AVX2.
macro_rules! as_avx2 {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self, $($arg: $type),*) $(-> $result)? {
            self.0.$name($($arg),*)
        }
    )*};
}

impl<const VNNI: bool> Kernels for Avx512<VNNI> {
    with_avx512! {
        scan::prepare::<VNNI> => fn prepare(codec: &Codec, q: &[i8], prepared: &mut [i32]);
        scan::query15::<VNNI> => fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32;
        scan::weigh::<VNNI> => fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32;
        scan::keyscan::<VNNI> => fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]);
        scan::keyscan15::<VNNI> => fn keyscan15(
            codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]
        );
        scan::valuesum::<VNNI> => fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]);
    }
    as_avx2! {
        fn narrow(x: &[f32], out: &mut [u8]) -> bool;
        fn widen(x: &[u8], mean: &[u8], out: &mut [f32]);
        fn mean(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]);
        fn encode(turbo: &Turbo<'_>, rows: Fp16Rows<'_>, mean: &[u8], work: &mut Workspace<'_>, tiles: &mut [u8]);
        fn signs(key: &Codec, t: &Transform, work: &mut Workspace<'_>, tiles: &mut [u8]);
        fn dot_each(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]);
        fn forward(t: &Transform, x: &mut [f32]);
        fn inverse(t: &Transform, x: &mut [f32]);
        fn quantize(codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]);
        fn residual(codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32;
        fn affine_keys(bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]);
        fn affine_values(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16);
        fn pack_keys(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        fn pack_values(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        fn query8(z: &[f32], qi: &mut [i8]) -> f32;
        fn prefetch(bytes: &[u8]);
        fn maximum(t: &[f32]) -> f32;
        fn exponentials(t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize);
        fn dots(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize);
        fn weighted(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]);
        fn logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        fn add_logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        fn affine_logits(sum: &[i32], scale: f32, bias: f32, t: &mut [f32]);
        fn shift(t: &mut [f32], bias: f32);
        fn blend(acc: &mut [f32], sum: &[i32], al: f32, f: f32);
        fn blend_affine(acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32);
        fn blend_rows(acc: &mut [f32], x: &[f32], al: f32, be: f32);
        fn crc32(crc: u32, data: &[u8]) -> u32;
    }
}
