//! What the library says of itself.

use std::ffi::{CStr, c_char};
use std::ptr::null;

use kvassay_core::cache::DUMP_VERSION;
use kvassay_core::page::PAGE_VERSION;
use kvassay_core::plan::Plan;
use kvassay_core::{Kind, LayerSpec, Result, Variant};

use crate::abi::{ABI_VERSION, CONTRACT_VERSION, FLAG_CACHE, FLAG_EXACT, KvError, KvInfo, KvLayerSpec};
use crate::fail::{self, argument};

/// The digest that the build gives, with the NUL that ends it.
const BUILD_ID: &str = concat!(env!("KVASSAY_BUILD_ID"), "\0");

const NAMES: [&CStr; Variant::ALL.len()] = names();

const fn names() -> [&'static CStr; Variant::ALL.len()] {
    let mut names = [c""; Variant::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = Variant::ALL[i].c_name();
        i += 1;
    }
    names
}

static INFO: KvInfo = KvInfo {
    abi_version: ABI_VERSION,
    contract_version: CONTRACT_VERSION,
    page_version: PAGE_VERSION as u32,
    dump_version: DUMP_VERSION as u32,
    flags: FLAG_EXACT | FLAG_CACHE,
    variant_count: Variant::ALL.len() as u32,
    name: c"kvassay-rust".as_ptr(),
    build_id: BUILD_ID.as_ptr().cast(),
};

/// Versions, flags, name.
#[unsafe(no_mangle)]
pub extern "C" fn kv_get_info() -> *const KvInfo {
    &INFO
}

/// NULL beyond the last.
#[unsafe(no_mangle)]
pub extern "C" fn kv_variant_name(variant: u32) -> *const c_char {
    NAMES.get(variant as usize).map_or(null(), |name| name.as_ptr())
}

/// Whether this CPU runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_variant_runs(variant: u32, error: *mut KvError) -> i32 {
    let found = Variant::ALL.get(variant as usize);
    let found = found.ok_or_else(|| kvassay_core::Error::new(Kind::Variant, format!("variant: no number {variant}")));
    // SAFETY: the caller's pointer, as the header says.
    unsafe { fail::code(error, found.and_then(|variant| variant.kernels().map(drop))) }
}

/// Whether the spec is executed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_supports(spec: *const KvLayerSpec, error: *mut KvError) -> i32 {
    // SAFETY: the caller's pointers, as the header says.
    unsafe { fail::code(error, layer_spec(spec).and_then(|spec| Plan::new(&spec, Variant::Scalar).map(drop))) }
}

/// The spec at a pointer.
pub unsafe fn layer_spec(spec: *const KvLayerSpec) -> Result<LayerSpec> {
    // SAFETY: the caller's pointer, as the header says.
    let given = unsafe { fail::one("spec", spec) }?;
    if given.reserved != 0 {
        return Err(argument(format!("spec: reserved is {}, not 0", given.reserved)));
    }
    Ok(LayerSpec {
        kv_heads: given.kv_heads,
        query_heads: given.query_heads,
        head_dim: given.head_dim,
        page_tokens: given.page_tokens,
        key_mode: given.key_mode,
        value_mode: given.value_mode,
        key_centre: given.key_centre,
        value_centre: given.value_centre,
        scale_kind: given.scale_kind,
        rounds: given.rounds,
        window: given.window,
        sinks: given.sinks,
        span: given.span,
        softmax_scale: given.softmax_scale,
        seed: given.seed,
    })
}
