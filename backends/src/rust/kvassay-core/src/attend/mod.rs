//! Attention and scores over the stored state of one layer (numeric contract, sections 7 to 10).

mod ahead;
pub(crate) mod job;
mod pages;
mod recent;
mod run;
mod worker;

use crate::error::{Error, Kind, Place, Result};
use crate::half;
use crate::plan::Plan;

use job::{Call, Job};
pub use job::{MOST_ROWS, Pages, State};
pub use worker::{Sizes, Worker};

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
            scanned += Job::new(&call, head, first, count, worker).attend(out);
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
            scanned += Job::new(&call, head, first, count, worker).scores(out);
        }
    }
    Ok(scanned)
}
