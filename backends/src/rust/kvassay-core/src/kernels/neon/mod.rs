//! NEON of ARMv8.0, with the dot product of ARMv8.2 as a variant of its own, and the CRC instructions where the CPU has
//! them. Never a fused multiply-add. What has no intrinsics here is `body`, compiled for these instructions.
#![allow(unsafe_code)]

mod crc;
mod isa;
mod scan;
mod tiles;

use super::{Fp16Rows, Kernels, Queries, Turbo, Workspace, compiled, each_kernel};
use crate::codec::{Codec, Span};
use crate::transform::Transform;

/// The kernels without the dot product or with it.
pub const fn kernels<const DOT: bool>() -> Kernels {
    Kernels {
        keyscan: scan::keyscan::<DOT>,
        keyscan15: scan::keyscan15::<DOT>,
        valuesum: scan::valuesum::<DOT>,
        crc32: crc::crc32,
        ..each_kernel!(compiled isa::Neon, [target_feature(enable = "neon")])
    }
}
