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

use super::{Kernels, avx2};

/// The kernels without VNNI or with it; what is not here is done by AVX2.
pub const fn kernels<const VNNI: bool>() -> Kernels {
    Kernels {
        prepare: scan::prepare::<VNNI>,
        query15: if VNNI { avx2::WITH_PLANES.query15 } else { avx2::KERNELS.query15 },
        weigh: if VNNI { avx2::WITH_PLANES.weigh } else { avx2::KERNELS.weigh },
        keyscan: scan::keyscan::<VNNI>,
        keyscan15: scan::keyscan15::<VNNI>,
        valuesum: scan::valuesum::<VNNI>,
        arranged: |_| 0,
        arrange: |_, _, _, _| {},
        ..avx2::KERNELS
    }
}
