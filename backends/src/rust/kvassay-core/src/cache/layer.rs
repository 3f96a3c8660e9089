//! The stored state of one layer.

use std::ops::Range;
use std::sync::Arc;

use super::memory;
use crate::attend::{Pages, State};
use crate::error::Result;
use crate::plan::Plan;
use crate::rows::Rows;

/// A sealed page; it never changes and forks share it.
pub(super) type Page = Arc<Vec<u8>>;

/// fp16 tokens in order, `[token][kv_heads][head_dim]`: a part of memory that is cleared once.
#[derive(Default)]
pub(super) struct Tokens {
    memory: Vec<u8>,
    used: Range<usize>,
}

impl Tokens {
    /// The bytes in use.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.used.clone()]
    }

    /// Makes room for `more` bytes; true if memory was allocated. Where it must be, twice what is held is taken, at most
    /// `most`.
    pub fn reserve(&mut self, more: usize, most: usize) -> Result<bool> {
        let used = self.used.len();
        if self.memory.len() - used >= more {
            return Ok(false);
        }
        let size = (2 * self.memory.len()).min(most).max(used + more);
        let mut grown = memory::vector(size)?;
        grown.extend_from_slice(self.bytes());
        grown.resize(size, 0);
        *self = Self { memory: grown, used: 0..used };
        Ok(true)
    }

    /// New bytes at the end, to be written; room for them was reserved.
    pub fn extend(&mut self, bytes: usize) -> &mut [u8] {
        if self.memory.len() - self.used.end < bytes {
            self.memory.copy_within(self.used.clone(), 0);
            self.used = 0..self.used.len();
        }
        let from = self.used.end;
        self.used.end += bytes;
        &mut self.memory[from..self.used.end]
    }

    /// Drops the first bytes.
    pub fn drop_front(&mut self, bytes: usize) {
        self.used.start += bytes;
        if self.used.is_empty() {
            self.clear();
        }
    }

    /// Keeps the first bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.used.end = self.used.end.min(self.used.start + bytes);
    }

    pub fn clear(&mut self) {
        self.used = 0..0;
    }

    pub fn held(&self) -> usize {
        self.memory.capacity()
    }

    pub fn copy(&self) -> Result<Self> {
        let memory = memory::copy_of(self.bytes())?;
        Ok(Self { used: 0..memory.len(), memory })
    }
}

pub(super) struct Layer {
    pub plan: Arc<Plan>,
    pub length: u64,
    /// Number of the first page held.
    pub first_page: u64,
    pub pages: Vec<Page>,
    pub sinks: [Tokens; 2],
    pub residual: [Tokens; 2],
    /// Frozen means of keys and values, empty before the first page is sealed or where not used.
    pub means: [Vec<u8>; 2],
}

impl Pages for Vec<Page> {
    fn page(&self, i: usize) -> &[u8] {
        self[i].as_slice()
    }
}

impl Layer {
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            length: 0,
            first_page: 0,
            pages: Vec::new(),
            sinks: Default::default(),
            residual: Default::default(),
            means: Default::default(),
        }
    }

    pub fn clear(&mut self) {
        self.length = 0;
        self.first_page = 0;
        self.pages.clear();
        self.sinks.iter_mut().chain(&mut self.residual).for_each(Tokens::clear);
        self.means.iter_mut().for_each(Vec::clear);
    }

    pub fn fork(&self) -> Result<Self> {
        let mut pages = memory::vector(self.pages.len())?;
        pages.extend(self.pages.iter().cloned());
        let [sinks, residual] = [&self.sinks, &self.residual];
        Ok(Self {
            plan: self.plan.clone(),
            length: self.length,
            first_page: self.first_page,
            pages,
            sinks: [sinks[0].copy()?, sinks[1].copy()?],
            residual: [residual[0].copy()?, residual[1].copy()?],
            means: [memory::copy_of(&self.means[0])?, memory::copy_of(&self.means[1])?],
        })
    }

    /// Pages sealed so far, retired ones included.
    pub fn sealed(&self) -> u64 {
        self.plan.spec.sealed(self.length)
    }

    /// The pages that a later query can reach.
    pub fn live(&self) -> &[Page] {
        &self.pages[(self.plan.spec.first_live(self.length) - self.first_page) as usize..]
    }

    fn rows<'a>(&self, tokens: &'a Tokens) -> Rows<'a> {
        let bytes = tokens.bytes();
        let token_stride = self.plan.spec.token_bytes();
        Rows { data: bytes, token_stride, head_stride: 2 * self.plan.d(), count: bytes.len() / token_stride }
    }

    /// Keys (0) or values (1) of the residual.
    pub fn residual_rows(&self, stream: usize) -> Rows<'_> {
        self.rows(&self.residual[stream])
    }

    pub fn state(&self) -> State<'_> {
        State {
            length: self.length,
            pages: &self.pages,
            first_page: self.first_page,
            sink_keys: self.rows(&self.sinks[0]),
            sink_values: self.rows(&self.sinks[1]),
            residual_keys: self.rows(&self.residual[0]),
            residual_values: self.rows(&self.residual[1]),
            key_mean: &self.means[0],
            value_mean: &self.means[1],
        }
    }
}
