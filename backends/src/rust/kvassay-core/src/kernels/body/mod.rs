//! The kernels as plain Rust, inlined into each variant: compiled there with its instruction set, they keep the bits,
//! since Rust neither contracts nor reorders.

mod attend;
mod store;

pub use attend::*;
pub use store::*;
