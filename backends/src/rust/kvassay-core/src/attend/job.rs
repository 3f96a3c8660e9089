//! The rows of one KV head of a call, and what is known of them.

use super::Worker;
use crate::kernels::Kernels;
use crate::layout::Part;
use crate::plan::Plan;
use crate::rows::Rows;

/// Rows (queries and query heads of one KV head) that are worked on together.
pub const MOST_ROWS: usize = 32;

/// Sealed pages in order.
pub trait Pages: Sync {
    /// Page i, counted from the first that is held.
    fn page(&self, i: usize) -> &[u8];
}

/// The stored state of one layer.
#[derive(Clone, Copy)]
pub struct State<'a> {
    /// Tokens appended, retired ones included.
    pub length: u64,
    /// Sealed pages that are held.
    pub pages: &'a dyn Pages,
    /// Number of the first of them.
    pub first_page: u64,
    /// Min(length, sinks) tokens.
    pub sink_keys: Rows<'a>,
    /// Likewise.
    pub sink_values: Rows<'a>,
    /// All tokens after the last sealed page.
    pub residual_keys: Rows<'a>,
    /// Likewise.
    pub residual_values: Rows<'a>,
    /// Frozen mean `[kv_heads][d]`, empty where there is none.
    pub key_mean: &'a [u8],
    /// Likewise.
    pub value_mean: &'a [u8],
}

/// One call: what every job of it reads.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub plan: &'a Plan,
    pub state: State<'a>,
    pub sealed: u64,
    pub q: &'a [f32],
    pub queries: u64,
}

impl<'a> Call<'a> {
    /// Visible length of a query.
    pub fn visible(&self, query: u64) -> u64 {
        self.state.length - self.queries + 1 + query
    }

    /// First token after the sinks that a visible length may attend.
    pub fn start(&self, visible: u64) -> u64 {
        if self.plan.spec.span == 0 { 0 } else { visible.saturating_sub(u64::from(self.plan.spec.span)) }
    }

    /// Page by its number in the layer.
    pub fn page(&self, number: u64) -> &'a [u8] {
        self.state.pages.page((number - self.state.first_page) as usize)
    }

    /// The first token of a page.
    pub fn page_start(&self, number: u64) -> u64 {
        u64::from(self.plan.spec.sinks) + number * u64::from(self.plan.spec.page_tokens)
    }

    /// Number of the page with the first token that any query needs.
    pub fn first_needed(&self, visible: u64) -> u64 {
        self.plan.spec.first_reached(visible)
    }
}

/// A maximum and a sum of weights; the maximum is absent before there was a token.
#[derive(Clone, Copy, Default)]
pub(crate) struct Softmax {
    pub m: Option<f32>,
    pub l: f32,
}

/// What is known of one row.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    pub query: u64,
    pub head: usize,
    pub visible: u64,
    /// First token after the sinks that it attends.
    pub start: u64,
    /// Scales of the integer queries of the keys and of the signs.
    pub qs: [f32; 2],
    /// Product with the frozen mean.
    pub bias: f32,
    pub recent: Softmax,
    pub chunk: Softmax,
    pub touched: bool,
    pub total: Softmax,
}

pub(crate) struct Job<'a, 'c, 'w> {
    pub call: &'a Call<'c>,
    pub kernels: &'static Kernels,
    pub head: usize,
    pub count: usize,
    pub rows: [Row; MOST_ROWS],
    pub worker: &'a mut Worker<'w>,
    pub scanned: u64,
}

/// A row that takes part in a page: what it was, what is added.
#[derive(Clone, Copy, Default)]
pub(crate) struct Active {
    pub row: usize,
    pub al: f32,
    pub be: f32,
}

/// `const(1/16383)`.
pub(crate) const WEIGHT: f32 = (1.0 / 16383.0f64) as f32;

impl Job<'_, '_, '_> {
    /// The head's part of a stream.
    pub fn part<'p>(&self, page: &'p [u8], part: Part) -> &'p [u8] {
        &page[self.call.plan.layout.range(part, self.head)]
    }

    /// Integer weights of all active rows; their largest.
    pub fn weigh(&mut self, count: usize) -> [f32; MOST_ROWS] {
        let (tokens, stride) = (self.call.plan.page_tokens(), self.worker.t_stride());
        let mut largest = [0.0; MOST_ROWS];
        for (i, largest) in largest.iter_mut().enumerate().take(count) {
            let worker = &mut *self.worker;
            let (p, iw) = (&worker.t[i * stride..][..tokens], &mut worker.w[i * tokens..][..tokens]);
            *largest = self.kernels.weigh(p, &worker.scale[..tokens], iw);
        }
        largest
    }

    /// Which tokens of a page a row attends.
    pub fn attended(&self, r: usize, page: u64) -> (usize, usize) {
        let first = self.call.page_start(page);
        let tokens = u64::from(self.call.plan.spec.page_tokens);
        let row = &self.rows[r];
        let from = row.start.saturating_sub(first).min(tokens);
        let to = row.visible.saturating_sub(first).min(tokens);
        (from as usize, to.max(from) as usize)
    }
}
