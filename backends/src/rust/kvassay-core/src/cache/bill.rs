//! What a cache holds, by part.

use std::mem::size_of;
use std::sync::Arc;

use super::layer::{Layer, Page};
use super::{Cache, Config};
use crate::layout::Holds;
use crate::plan::Plan;
use crate::spec::LayerSpec;

/// Bytes by part (docs/lifecycle.md), whose sum is `allocated`, and counters; in memory as `kv_stats` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Stats {
    pub codes: u64,
    pub scales: u64,
    pub means: u64,
    pub headers: u64,
    pub residual: u64,
    pub sinks: u64,
    pub scratch: u64,
    pub staging: u64,
    pub reserved: u64,
    /// Held by this cache, shared pages included.
    pub allocated: u64,
    pub peak_allocated: u64,
    pub allocations: u64,
    pub pages_encoded: u64,
    /// Pages and KV heads read by attend and scores.
    pub pages_scanned: u64,
    /// Number of the variant.
    pub variant: u32,
    /// `1 << variant` for each variant whose kernels ran.
    pub ran: u32,
}

/// Counts of an `Arc`, which lie before what it holds.
const COUNTS: usize = 2 * size_of::<usize>();

impl Cache {
    /// Bytes by part, and counters.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            headers: self.bookkeeping(),
            scratch: self.scratch.held() as u64,
            peak_allocated: self.counters.peak,
            allocations: self.counters.allocations,
            pages_encoded: self.counters.pages_encoded,
            pages_scanned: self.counters.pages_scanned,
            variant: self.config.variant as u32,
            ran: self.counters.ran,
            ..Stats::default()
        };
        self.layers.iter().for_each(|layer| layer.bill(&mut stats));
        stats.allocated = stats.codes
            + stats.scales
            + stats.means
            + stats.headers
            + stats.residual
            + stats.sinks
            + stats.scratch
            + stats.reserved;
        stats
    }

    fn bookkeeping(&self) -> u64 {
        let mut plans: Vec<*const Plan> = self.layers.iter().map(|layer| Arc::as_ptr(&layer.plan)).collect();
        plans.sort_unstable();
        plans.dedup();
        let config = COUNTS
            + size_of::<Config>()
            + self.config.identity.capacity()
            + self.config.specs.capacity() * size_of::<LayerSpec>();
        let layers = self.layers.capacity() * size_of::<Layer>();
        (size_of::<Self>() + config + layers + plans.len() * (COUNTS + size_of::<Plan>())) as u64
    }

    /// Counts allocations, and the bytes held if they are the most so far.
    pub(super) fn note(&mut self, allocations: u64) {
        self.counters.allocations += allocations;
        if allocations > 0 {
            self.counters.peak = self.counters.peak.max(self.stats().allocated);
        }
    }
}

impl Layer {
    fn bill(&self, stats: &mut Stats) {
        let layout = &self.plan.layout;
        let count = self.pages.len();
        let (codes, means) = (layout.total(Holds::Codes), layout.total(Holds::Mean));
        let scales: usize = [Holds::Scales, Holds::Steps, Holds::Minima, Holds::Maxima]
            .into_iter()
            .map(|holds| layout.total(holds))
            .sum();
        stats.codes += (count * codes) as u64;
        stats.scales += (count * scales) as u64;
        let frozen: usize = self.means.iter().map(Vec::len).sum();
        stats.means += (count * means + frozen) as u64;
        let shell = layout.bytes() - codes - scales - means + COUNTS + size_of::<Vec<u8>>() + size_of::<Page>();
        stats.headers += (count * shell) as u64;
        let used = |tokens: &[super::layer::Tokens; 2]| tokens.iter().map(|t| t.bytes().len()).sum::<usize>();
        let held = |tokens: &[super::layer::Tokens; 2]| tokens.iter().map(|t| t.held()).sum::<usize>();
        stats.residual += used(&self.residual) as u64;
        stats.sinks += used(&self.sinks) as u64;
        let unused = held(&self.residual) - used(&self.residual) + held(&self.sinks) - used(&self.sinks)
            + (self.pages.capacity() - count) * size_of::<Page>()
            + self.means.iter().map(Vec::capacity).sum::<usize>()
            - frozen;
        stats.reserved += unused as u64;
    }
}
