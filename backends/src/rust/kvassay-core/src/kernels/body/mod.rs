//! The kernels over an instruction set, inlined into each variant: compiled there with its instructions, they keep the
//! bits, since Rust neither contracts nor reorders.

mod affine;
mod combine;
mod query;
mod rows;
mod scan;
mod store;
mod transform;

pub use affine::*;
pub use combine::*;
pub use query::*;
pub use rows::*;
pub use scan::*;
pub use store::*;
pub use transform::*;

use super::isa::Isa;

/// The longest row of `dots`: the channels of a token, or the tokens of a page.
pub const MOST_ROW: usize = 1024;
