//! The pure kernels: plans, scratch and pages in the caller's memory.

use std::ffi::{c_char, c_void};

use kvassay_core::attend::{self, MOST_ROWS, Pages, Sizes, State, Worker};
use kvassay_core::encode::{self, Workspace};
use kvassay_core::kernels::control::StandardArithmetic;
use kvassay_core::page::{self, PageId};
use kvassay_core::plan::Plan;
use kvassay_core::rows::Rows;
use kvassay_core::{Error, Kind, LayerSpec, Result, Variant};

use crate::abi::{KvParallel, KvRows, KvState};
use crate::fail::{self, argument, exported};
use crate::info::layer_spec;

/// Bytes before working memory: which variants ran.
const HEAD: usize = 64;

exported! {
    /// Bytes of a plan.
    fn kv_plan_bytes(spec: *const LayerSpec, bytes: *mut u64) {
        let (spec, bytes) = (layer_spec(spec)?, fail::one_mut("bytes", bytes)?);
        Plan::new(spec, Variant::Scalar)?;
        *bytes = size_of::<Plan>() as u64;
        Ok(())
    }

    /// Makes a plan in place.
    fn kv_plan_init(spec: *const LayerSpec, variant: *const c_char, plan: *mut c_void, bytes: u64) {
        let made = Plan::new(layer_spec(spec)?, Variant::find(fail::text("variant", variant)?)?)?;
        if bytes < size_of::<Plan>() as u64 {
            let message = format!("plan: {bytes} bytes are not the {} of kv_plan_bytes", size_of::<Plan>());
            return Err(Error::new(Kind::Memory, message));
        }
        if plan.is_null() || !plan.addr().is_multiple_of(64) {
            return Err(argument(format!("plan: {plan:p} is NULL or not aligned to 64")));
        }
        // Aligned and large enough; a plan is plain data, so nothing is left behind when it is dropped.
        plan.cast::<Plan>().write(made);
        Ok(())
    }

    /// Mean of the rows of a page.
    fn kv_page_mean(plan: *const c_void, given: *const KvRows, mean: *mut u16) {
        let _standard = StandardArithmetic::begin();
        let plan = fail::one("plan", plan.cast::<Plan>())?;
        let rows = rows("rows", plan, fail::one("rows", given)?, u64::from(plan.spec.page_tokens))?;
        let out = fail::slice_mut("mean", mean.cast::<u8>(), plan.spec.token_bytes() as u64)?;
        encode::page_mean(plan, &rows, out);
        Ok(())
    }

    /// Seals a page.
    fn kv_page_encode(
        plan: *const c_void, id: *const PageId, keys: *const KvRows, values: *const KvRows, key_mean: *const u16,
        value_mean: *const u16, page: *mut c_void, page_bytes: u64, scratch: *mut c_void, scratch_bytes: u64,
    ) {
        let _standard = StandardArithmetic::begin();
        let mut tools = tools(plan, scratch, scratch_bytes)?;
        let plan = tools.plan;
        let tokens = u64::from(plan.spec.page_tokens);
        let keys = rows("keys", plan, fail::one("keys", keys)?, tokens)?;
        let values = rows("values", plan, fail::one("values", values)?, tokens)?;
        let [frozen_keys, frozen_values] = plan.spec.frozen();
        let means =
            (mean("key_mean", plan, frozen_keys, key_mean)?, mean("value_mean", plan, frozen_values, value_mean)?);
        for (name, frozen, mean) in [("key_mean", frozen_keys, means.0), ("value_mean", frozen_values, means.1)] {
            if frozen && mean.is_empty() {
                return Err(argument(format!("{name}: NULL, but the spec centres by a frozen mean")));
            }
        }
        if page_bytes != plan.layout.bytes() as u64 {
            return Err(argument(format!("page: {page_bytes} bytes, a page has {}", plan.layout.bytes())));
        }
        let page = fail::slice_mut("page", page.cast::<u8>(), page_bytes)?;
        let (d, tokens) = (plan.d(), plan.page_tokens());
        tools.mark();
        let (y, scales, norms) = (tools.take(tokens * d), tools.take(tokens), tools.take(tokens));
        let mut work = Workspace { y, scales, norms, codes: tools.take(tokens * d) };
        encode::encode(plan, fail::one("id", id)?, (&keys, &values), means, page, &mut work);
        Ok(())
    }

    /// Everything that the page format asks of a reader.
    fn kv_page_check(plan: *const c_void, id: *const PageId, page: *const c_void, bytes: u64) {
        let plan = fail::one("plan", plan.cast::<Plan>())?;
        let id = if id.is_null() { None } else { Some(fail::one("id", id)?) };
        page::check(plan, id, fail::slice("page", page.cast::<u8>(), bytes)?)
    }

    /// Attention over a state.
    fn kv_attend(
        plan: *const c_void, given: *const KvState, q: *const f32, n: u32, out: *mut f32, scratch: *mut c_void,
        scratch_bytes: u64, _parallel: *const KvParallel,
    ) {
        let _standard = StandardArithmetic::begin();
        let mut tools = tools(plan, scratch, scratch_bytes)?;
        let (plan, given) = (tools.plan, fail::one("state", given)?);
        let pages = pointers(plan, given)?;
        let state = state(plan, given, &pages)?;
        let numbers = u64::from(n) * u64::from(plan.spec.query_heads) * plan.d() as u64;
        let (q, out) = (fail::slice("q", q, numbers)?, fail::slice_mut("out", out, numbers)?);
        attend::attend(plan, state, q, u64::from(n), out, &mut tools.worker())?;
        tools.mark();
        Ok(())
    }

    /// Scores over a state.
    fn kv_scores(
        plan: *const c_void, given: *const KvState, q: *const f32, out: *mut f32, out_floats: u64,
        scratch: *mut c_void, scratch_bytes: u64, _parallel: *const KvParallel,
    ) {
        let _standard = StandardArithmetic::begin();
        let mut tools = tools(plan, scratch, scratch_bytes)?;
        let (plan, given) = (tools.plan, fail::one("state", given)?);
        let pages = pointers(plan, given)?;
        let state = state(plan, given, &pages)?;
        let q = fail::slice("q", q, u64::from(plan.spec.query_heads) * plan.d() as u64)?;
        attend::scores(plan, state, q, fail::slice_mut("out", out, out_floats)?, &mut tools.worker())?;
        tools.mark();
        Ok(())
    }
}

/// The variant of a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_plan_variant(plan: *const c_void) -> u32 {
    // SAFETY: a plan that kv_plan_init made.
    unsafe { &*plan.cast::<Plan>() }.variant() as u32
}

/// Bytes of a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_plan_page_bytes(plan: *const c_void) -> u64 {
    // SAFETY: a plan that kv_plan_init made.
    unsafe { &*plan.cast::<Plan>() }.layout.bytes() as u64
}

/// Bytes of working memory for any call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_plan_scratch_bytes(plan: *const c_void, _threads: u32) -> u64 {
    // SAFETY: a plan that kv_plan_init made.
    scratch_bytes(unsafe { &*plan.cast::<Plan>() }) as u64
}

fn scratch_bytes(plan: &Plan) -> usize {
    let tokens = plan.page_tokens();
    let encoding = tokens * (5 * plan.d() + 8);
    HEAD + Sizes::new(plan, MOST_ROWS).total().max(encoding)
}

/// Which variants ran with this scratch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_scratch_ran(scratch: *const c_void) -> u32 {
    // SAFETY: scratch that kv_scratch_init made.
    unsafe { *scratch.cast::<u32>() }
}

/// Once, before first use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_scratch_init(scratch: *mut c_void, bytes: u64) {
    // SAFETY: that many bytes of the caller's; numbers that were never written could not be lent out as such.
    unsafe { scratch.cast::<u8>().write_bytes(0, bytes as usize) };
}

/// A plan and scratch as a call needs them.
struct Tools<'a> {
    plan: &'a Plan,
    ran: &'a mut u32,
    memory: &'a mut [u8],
}

unsafe fn tools<'a>(plan: *const c_void, scratch: *mut c_void, bytes: u64) -> Result<Tools<'a>> {
    // SAFETY: the caller's pointers, as the header says; kv_scratch_init has written every byte.
    let plan = unsafe { fail::one("plan", plan.cast::<Plan>()) }?;
    let memory = unsafe { fail::slice_mut("scratch", scratch.cast::<u8>(), bytes) }?;
    if memory.len() < scratch_bytes(plan) || !scratch.addr().is_multiple_of(64) {
        let needed = scratch_bytes(plan);
        return Err(argument(format!("scratch: {bytes} bytes at {scratch:p} are not {needed} aligned to 64")));
    }
    let (head, memory) = memory.split_at_mut(HEAD);
    // SAFETY: four bytes, aligned to 64.
    let ran = unsafe { &mut *head.as_mut_ptr().cast::<u32>() };
    Ok(Tools { plan, ran, memory })
}

impl<'a> Tools<'a> {
    /// The first n numbers of the memory, which any bits are.
    fn take<T: Number>(&mut self, n: usize) -> &'a mut [T] {
        let (taken, rest) = std::mem::take(&mut self.memory).split_at_mut(n * size_of::<T>());
        self.memory = rest;
        assert!(taken.as_ptr().cast::<T>().is_aligned(), "wider numbers are taken first");
        // SAFETY: initialized, aligned, of n numbers, and split off what this call owns.
        unsafe { std::slice::from_raw_parts_mut(taken.as_mut_ptr().cast(), n) }
    }

    fn mark(&mut self) {
        *self.ran |= 1 << self.plan.variant() as u32;
    }

    fn worker(&mut self) -> Worker<'a> {
        let sizes = Sizes::new(self.plan, MOST_ROWS);
        let (floats, ints) = (self.take(sizes.floats()), self.take(sizes.ints()));
        Worker::new(sizes, floats, ints, self.take(sizes.words()), self.take(sizes.bytes()))
    }
}

/// Types of which every pattern of bits is a value.
trait Number {}
impl Number for f32 {}
impl Number for i32 {}
impl Number for i16 {}
impl Number for i8 {}
impl Number for u8 {}

/// Rows of `count` tokens.
unsafe fn rows<'a>(name: &str, plan: &Plan, given: &KvRows, count: u64) -> Result<Rows<'a>> {
    let far = |stride: u64, n: u64| stride.checked_mul(n.saturating_sub(1));
    let last = far(given.token_stride, count)
        .zip(far(given.head_stride, plan.heads() as u64))
        .and_then(|(token, head)| token.checked_add(head)?.checked_add(plan.d() as u64)?.checked_mul(2));
    let bytes = last.ok_or_else(|| argument(format!("{name}: strides beyond memory")))?;
    // SAFETY: the caller's rows, as the header says: the last number of the last row is there.
    let data = unsafe { fail::slice(name, given.data.cast::<u8>(), if count == 0 { 0 } else { bytes }) }?;
    let (token_stride, head_stride) = (2 * given.token_stride as usize, 2 * given.head_stride as usize);
    Ok(Rows { data, token_stride, head_stride, count: count as usize })
}

/// A mean of every head, where the spec has one.
unsafe fn mean<'a>(name: &str, plan: &Plan, frozen: bool, given: *const u16) -> Result<&'a [u8]> {
    if !frozen || given.is_null() {
        return Ok(&[]);
    }
    // SAFETY: `[kv_heads][head_dim]` halves, as the header says.
    unsafe { fail::slice(name, given.cast::<u8>(), plan.spec.token_bytes() as u64) }
}

/// Pages as the caller's pointers.
struct Pointers<'a> {
    pages: &'a [*const c_void],
    bytes: usize,
}

// SAFETY: what they point to is only read.
unsafe impl Sync for Pointers<'_> {}

impl Pages for Pointers<'_> {
    fn page(&self, i: usize) -> &[u8] {
        // SAFETY: a sealed page of this plan, as the header says; NULL was refused.
        unsafe { std::slice::from_raw_parts(self.pages[i].cast(), self.bytes) }
    }
}

unsafe fn pointers<'a>(plan: &Plan, given: &KvState) -> Result<Pointers<'a>> {
    // SAFETY: the caller's pointers, as the header says.
    let pages = unsafe { fail::slice("pages", given.pages, u64::from(given.page_count)) }?;
    if pages.iter().any(|page| page.is_null()) {
        return Err(argument("pages: one is NULL"));
    }
    Ok(Pointers { pages, bytes: plan.layout.bytes() })
}

unsafe fn state<'a>(plan: &Plan, given: &KvState, pages: &'a Pointers<'_>) -> Result<State<'a>> {
    let spec = &plan.spec;
    let sealed = spec.sealed(given.length);
    if u64::from(given.first_page) + u64::from(given.page_count) != sealed {
        let (first, count, length) = (given.first_page, given.page_count, given.length);
        return Err(argument(format!("state: pages {first} and {count} on, but {length} tokens have {sealed}")));
    }
    let sinks = given.length.min(u64::from(spec.sinks));
    let [frozen_keys, frozen_values] = spec.frozen();
    let residual = given.length - sinks - sealed * u64::from(spec.page_tokens);
    // SAFETY: the caller's rows, as the header says.
    unsafe {
        Ok(State {
            length: given.length,
            pages,
            first_page: u64::from(given.first_page),
            sink_keys: rows("sink_keys", plan, &given.sink_keys, sinks)?,
            sink_values: rows("sink_values", plan, &given.sink_values, sinks)?,
            residual_keys: rows("residual_keys", plan, &given.residual_keys, residual)?,
            residual_values: rows("residual_values", plan, &given.residual_values, residual)?,
            key_mean: mean("key_mean", plan, sealed > 0 && frozen_keys, given.key_mean)?,
            value_mean: mean("value_mean", plan, sealed > 0 && frozen_values, given.value_mean)?,
        })
    }
}
