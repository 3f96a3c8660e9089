//! Everything that touches many numbers: one implementation of `Kernels` a variant (instruction set).
//!
//! Each gives the bits of the numeric contract. A kernel owns no state and knows nothing of pages, masks or
//! chunks. Rows of several query heads of one KV head go together, so that what is decoded is shared.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod body;
pub mod control;
mod isa;
mod list;
#[cfg(target_arch = "aarch64")]
mod neon;
mod sums;
#[cfg(test)]
mod tests;
mod tiles;

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected as detected;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as detected;
use std::ffi::CStr;

use crate::codec::{Codec, Span};
use crate::error::{Error, Kind, Result};
use crate::transform::Transform;
use list::{compiled, define, each_kernel, for_rows};

each_kernel!(define);

/// Plain Rust, for whatever instruction set the target has.
pub static SCALAR: Kernels = each_kernel!(compiled isa::Plain, [inline]);

/// How a stream of turbo codes is made.
#[derive(Clone, Copy)]
pub struct Turbo<'a> {
    /// Its codes.
    pub codec: &'a Codec,
    /// Its transform.
    pub transform: &'a Transform,
    /// What the codes are of.
    pub role: Role,
}

/// What turbo codes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Keys alone: scales are unbiased.
    Keys,
    /// Keys of which `signs` will be made: scales have least squares, as those of values.
    SignedKeys,
    /// Values.
    Values,
}

/// Working memory of a page's encoding.
pub struct Workspace<'a> {
    /// `[page_tokens][d]`.
    pub y: &'a mut [f32],
    /// `[page_tokens]`.
    pub scales: &'a mut [f32],
    /// `[page_tokens]`.
    pub norms: &'a mut [f32],
    /// `[page_tokens][d]`.
    pub codes: &'a mut [u8],
}

/// Rows that `arrange` puts together.
pub const TOGETHER: usize = 4;

/// Integer queries of 7 bits, and what `prepare` made of each.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// `[rows][d]`.
    pub qi: &'a [i8],
    /// `[rows][d / 8]`.
    pub prepared: &'a [i32],
    /// What `arrange` made of them, from the first on; empty where that is not the first of `TOGETHER`.
    pub arranged: &'a [i32],
}

/// Rows of fp16 of one head, `stride` bytes apart.
#[derive(Clone, Copy)]
pub struct Fp16Rows<'a> {
    /// The first row starts here.
    pub data: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    /// Number of rows.
    pub count: usize,
}

impl<'a> Fp16Rows<'a> {
    /// Row i of d numbers.
    #[inline(always)]
    pub fn row(&self, i: usize, d: usize) -> &'a [u8] {
        &self.data[i * self.stride..][..2 * d]
    }

    /// Rows from ..to.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        // Of no rows there need not be a place where they start.
        let data = if from == to { &[] } else { &self.data[from * self.stride..] };
        Self { data, stride: self.stride, count: to - from }
    }
}

/// The variants beside the portable one: for which machine, kernels, what a CPU that has not all features lacks.
macro_rules! variants {
    ($($(#[doc = $about:literal])* $name:ident for $arch:literal, $text:literal: $kernels:expr, $lacks:literal $features:tt;)*) => {
        /// A variant, from the most portable to the fastest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Variant {
            /// Plain Rust.
            Scalar,
            $($(#[doc = $about])* #[cfg(target_arch = $arch)] $name,)*
        }

        impl Variant {
            /// All that were built for this machine.
            pub const ALL: &'static [Variant] = &[Variant::Scalar, $(#[cfg(target_arch = $arch)] Variant::$name),*];

            /// Its name for C.
            pub const fn c_name(self) -> &'static CStr {
                match self {
                    Self::Scalar => c"scalar",
                    $(#[cfg(target_arch = $arch)] Self::$name => c_text(concat!($text, "\0")),)*
                }
            }

            /// Its kernels; `Kind::Variant` where this CPU cannot run them.
            pub fn kernels(self) -> Result<&'static Kernels> {
                let (kernels, runs, lacks) = match self {
                    Self::Scalar => return Ok(&SCALAR),
                    $(#[cfg(target_arch = $arch)] Self::$name => {
                        static KERNELS: Kernels = $kernels;
                        (&KERNELS, runs!$features, $lacks)
                    })*
                };
                if runs { Ok(kernels) } else { Err(Error::new(Kind::Variant, format!("this CPU has no {lacks}"))) }
            }
        }
    };
}

/// Whether this CPU has all of some features; what is emulated needs none.
macro_rules! runs {
    ($($feature:tt)*) => { true $(&& (cfg!(kvassay_emulate) && $feature.as_bytes().starts_with(b"avx512") || detected!($feature)))* };
}

variants! {
    /// AVX2, F16C and PCLMULQDQ.
    Avx2 for "x86_64", "avx2": avx2::KERNELS, "AVX2, F16C or PCLMULQDQ" ("avx2" "f16c" "pclmulqdq");
    /// AVX-512 F, BW, DQ and VL beside those.
    Avx512 for "x86_64", "avx512": avx512::kernels::<false>(), "AVX-512 F, BW, DQ and VL"
        ("avx2" "f16c" "pclmulqdq" "avx512f" "avx512bw" "avx512dq" "avx512vl");
    /// VNNI beside that.
    Avx512Vnni for "x86_64", "avx512vnni": avx512::kernels::<true>(), "AVX-512 F, BW, DQ, VL and VNNI"
        ("avx2" "f16c" "pclmulqdq" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni");
    /// NEON of ARMv8.0.
    Neon for "aarch64", "neon": neon::kernels::<false>(), "NEON" ("neon");
    /// The dot product of ARMv8.2 beside it.
    NeonDot for "aarch64", "neondot": neon::kernels::<true>(), "dot product (asimddp)" ("dotprod");
}

const fn c_text(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a NUL ends the text"),
    }
}

impl Variant {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().expect("a name in ASCII")
    }

    /// The variant of a name, or the best that runs.
    pub fn find(name: Option<&str>) -> Result<Variant> {
        let Some(name) = name else {
            return Ok(Self::ALL.iter().rev().copied().find(|v| v.kernels().is_ok()).unwrap_or(Self::Scalar));
        };
        let names: Vec<_> = Self::ALL.iter().map(|v| v.name()).collect();
        let found = Self::ALL.iter().copied().find(|v| v.name() == name);
        found.ok_or_else(|| Error::new(Kind::Variant, format!("variant: no {name:?}; there are: {}", names.join(", "))))
    }
}
