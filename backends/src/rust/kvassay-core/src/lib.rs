//! A quantized KV cache for transformers on a CPU, bit-exact to the kvassay numeric contract.
//!
//! Written from `docs/numeric-contract.md`, `docs/page-format.md` and `docs/lifecycle.md` alone; the standard library
//! is its only dependency. Unsafe code is allowed in `kernels` alone, where instructions are named.
#![deny(unsafe_code)]

pub mod arith;
pub mod attend;
pub mod cache;
pub mod codec;
pub mod crc;
pub mod encode;
pub mod error;
mod family;
pub mod half;
pub mod kernels;
pub mod layout;
pub mod page;
pub mod plan;
pub mod rows;
pub mod scale;
pub mod spec;
pub mod transform;

pub use cache::{Cache, Config};
pub use error::{Error, Kind, Result};
pub use kernels::Variant;
pub use spec::LayerSpec;
