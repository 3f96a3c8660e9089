//! AVX2, F16C and PCLMULQDQ. What has no intrinsics here is `body`, compiled for these instructions.
#![allow(unsafe_code)]

mod crc;
mod encode;
mod isa;
mod lanes;
mod quantize;
mod registers;
mod scan;
mod seven;
mod tiles;

use super::{Fp16Rows, Kernels, Queries, Turbo, Workspace, compiled, each_kernel};
use crate::codec::{Codec, Span};
use crate::transform::Transform;

use isa::Avx2;

/// The variant's kernels.
pub const KERNELS: Kernels = Kernels {
    encode: encode::encode,
    signs: encode::signs,
    arranged: seven::arranged,
    arrange: seven::arrange,
    keyscan: seven::keyscan,
    keyscan15: scan::keyscan15,
    valuesum: scan::valuesum,
    prefetch: scan::prefetch,
    crc32: crc::crc32,
    ..each_kernel!(compiled Avx2<false>, [target_feature(enable = "avx2,f16c,pclmulqdq")])
};

/// The kernels that order words as planes, for who reads them so.
pub const WITH_PLANES: Kernels = each_kernel!(compiled Avx2<true>, [target_feature(enable = "avx2,f16c,pclmulqdq")]);
