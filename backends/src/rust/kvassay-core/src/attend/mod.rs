//! Attention and scores over the stored state of one layer (numeric contract, sections 7 to 10).

mod job;
mod logits;
mod pages;
mod recent;
mod values;
mod worker;

use crate::error::{Error, Kind, Place, Result};
use crate::half;
use crate::plan::Plan;
use crate::rows::Rows;

pub use worker::{Sizes, Worker};

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
    plan: &'a Plan,
    state: State<'a>,
    sealed: u64,
    q: &'a [f32],
    queries: u64,
}

impl<'a> Call<'a> {
    /// Visible length of a query.
    fn visible(&self, query: u64) -> u64 {
        self.state.length - self.queries + 1 + query
    }

    /// First token after the sinks that a visible length may attend.
    fn start(&self, visible: u64) -> u64 {
        if self.plan.spec.span == 0 { 0 } else { visible.saturating_sub(u64::from(self.plan.spec.span)) }
    }

    /// Page by its number in the layer.
    fn page(&self, number: u64) -> &'a [u8] {
        self.state.pages.page((number - self.state.first_page) as usize)
    }

    /// The first token of a page.
    fn page_start(&self, number: u64) -> u64 {
        u64::from(self.plan.spec.sinks) + number * u64::from(self.plan.spec.page_tokens)
    }

    /// Number of the page with the first token that any query needs.
    fn first_needed(&self, visible: u64) -> u64 {
        self.plan.spec.first_reached(visible)
    }
}

fn begin<'a>(plan: &'a Plan, state: State<'a>, q: &'a [f32], queries: u64) -> Result<Call<'a>> {
    if queries == 0 {
        return Err(Error::new(Kind::Argument, "attend: no query given"));
    }
    if queries > state.length {
        let message = format!("attend: {queries} queries but {} tokens; append before attending", state.length);
        return Err(Error::new(Kind::State, message));
    }
    let d = plan.d();
    let expected = queries as usize * usize::from(plan.spec.query_heads) * d;
    if q.len() != expected {
        return Err(Error::new(Kind::Argument, format!("q: {} numbers, not {expected}", q.len())));
    }
    if let Some(at) = q.iter().position(|x| x.abs() > half::LARGEST || x.is_nan()) {
        let row = at / d;
        let heads = usize::from(plan.spec.query_heads);
        let place =
            Place { layer: None, token: (row / heads) as u64, head: (row % heads) as u32, channel: (at % d) as u32 };
        let (token, head, channel, x) = (place.token, place.head, place.channel, q[at]);
        let message = format!("q: {x} in query {token}, head {head}, channel {channel}: must be finite, at most 65504");
        return Err(Error::at(place, message));
    }
    let call = Call { plan, state, sealed: plan.spec.sealed(state.length), q, queries };
    let needed = call.first_needed(call.visible(0)).min(call.sealed);
    if needed < state.first_page {
        let message =
            format!("attend: needs page {needed}, pages before {} were retired; ask fewer queries", state.first_page);
        return Err(Error::new(Kind::Span, message));
    }
    Ok(call)
}

/// Attention of q `[n][query_heads][d]`, causal over the last n tokens, into `out`, of the same shape. The result is how
/// many pages and KV heads were read.
pub fn attend(
    plan: &Plan,
    state: State<'_>,
    q: &[f32],
    queries: u64,
    out: &mut [f32],
    worker: &mut Worker<'_>,
) -> Result<u64> {
    let call = begin(plan, state, q, queries)?;
    if out.len() != q.len() {
        return Err(Error::new(Kind::Argument, format!("out: {} numbers, not {}", out.len(), q.len())));
    }
    let rows = queries as usize * plan.group();
    let mut scanned = 0;
    for head in 0..plan.heads() {
        for first in (0..rows).step_by(worker.rows()) {
            let count = worker.rows().min(rows - first);
            scanned += job::Job::new(&call, head, first, count, worker).attend(out);
        }
    }
    Ok(scanned)
}

/// Logits of one query q `[query_heads][d]` into `out` `[query_heads][length]`, minus infinity where not attended.
pub fn scores(plan: &Plan, state: State<'_>, q: &[f32], out: &mut [f32], worker: &mut Worker<'_>) -> Result<u64> {
    let call = begin(plan, state, q, 1)?;
    let expected = u64::from(plan.spec.query_heads) * state.length;
    if out.len() as u64 != expected {
        return Err(Error::new(Kind::Argument, format!("out: {} numbers, not {expected}", out.len())));
    }
    out.fill(f32::NEG_INFINITY);
    let mut scanned = 0;
    for head in 0..plan.heads() {
        for first in (0..plan.group()).step_by(worker.rows()) {
            let count = worker.rows().min(plan.group() - first);
            scanned += job::Job::new(&call, head, first, count, worker).scores(out);
        }
    }
    Ok(scanned)
}
