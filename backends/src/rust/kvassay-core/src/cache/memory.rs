//! Memory that may be refused.

use crate::attend::{Sizes, Worker};
use crate::encode::Workspace;
use crate::error::{Error, Kind, Result};
use crate::plan::Plan;

pub(super) fn refused<T>(_: T) -> Error {
    Error::new(Kind::Memory, "memory: the allocator refused; the cache is as it was")
}

/// An empty vector with room for exactly n.
pub(super) fn vector<T>(n: usize) -> Result<Vec<T>> {
    let mut made = Vec::new();
    made.try_reserve_exact(n).map_err(refused)?;
    Ok(made)
}

/// A copy, or the allocator refused.
pub(super) fn copy_of(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut made = vector(bytes.len())?;
    made.extend_from_slice(bytes);
    Ok(made)
}

/// n zeros.
pub(super) fn zeros(n: usize) -> Result<Vec<u8>> {
    let mut made = vector(n)?;
    made.resize(n, 0);
    Ok(made)
}

/// Working memory that is kept between calls, at its largest.
#[derive(Default)]
pub(super) struct Scratch {
    floats: Vec<f32>,
    ints: Vec<i32>,
    words: Vec<i16>,
    bytes: Vec<i8>,
    codes: Vec<u8>,
}

fn grow<T: Clone + Default>(memory: &mut Vec<T>, n: usize) -> Result<u64> {
    if memory.len() >= n {
        return Ok(0);
    }
    memory.try_reserve_exact(n - memory.len()).map_err(refused)?;
    memory.resize(n, T::default());
    Ok(1)
}

impl Scratch {
    /// Room for these sizes; the result is how many allocations were made.
    pub fn reserve(&mut self, sizes: Sizes) -> Result<u64> {
        Ok(grow(&mut self.floats, sizes.floats())?
            + grow(&mut self.ints, sizes.ints())?
            + grow(&mut self.words, sizes.words())?
            + grow(&mut self.bytes, sizes.bytes())?)
    }

    /// The reserved memory, cut.
    pub fn worker(&mut self, sizes: Sizes) -> Worker<'_> {
        Worker::new(sizes, &mut self.floats, &mut self.ints, &mut self.words, &mut self.bytes)
    }

    /// Room for the encoding of a page.
    pub fn reserve_encoding(&mut self, plan: &Plan) -> Result<u64> {
        let (d, tokens) = (plan.d(), plan.page_tokens());
        Ok(grow(&mut self.floats, tokens * (d + 2))? + grow(&mut self.codes, tokens * d)?)
    }

    /// The reserved memory for that.
    pub fn workspace(&mut self, plan: &Plan) -> Workspace<'_> {
        let (d, tokens) = (plan.d(), plan.page_tokens());
        let (y, rest) = self.floats.split_at_mut(tokens * d);
        let (scales, rest) = rest.split_at_mut(tokens);
        Workspace { y, scales, norms: &mut rest[..tokens], codes: &mut self.codes[..tokens * d] }
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        4 * (self.floats.capacity() + self.ints.capacity())
            + 2 * self.words.capacity()
            + self.bytes.capacity()
            + self.codes.capacity()
    }
}
