//! What the library says of itself.

use std::ffi::{CStr, c_char};
use std::ptr::null;

use kvassay_core::cache::DUMP_VERSION;
use kvassay_core::page::PAGE_VERSION;
use kvassay_core::plan::Plan;
use kvassay_core::spec::RESERVED_AT;
use kvassay_core::{Error, Kind, LayerSpec, Result, Variant};

use crate::abi::{ABI_VERSION, CONTRACT_VERSION, FLAG_CACHE, FLAG_EXACT, KvInfo};
use crate::fail::{self, argument, exported};

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

exported! {
    /// Whether this CPU runs it.
    fn kv_variant_runs(variant: u32) {
        let found = Variant::ALL.get(variant as usize);
        let found = found.ok_or_else(|| Error::new(Kind::Variant, format!("variant: no number {variant}")))?;
        found.kernels().map(drop)
    }

    /// Whether the spec is executed.
    fn kv_supports(spec: *const LayerSpec) {
        Plan::new(layer_spec(spec)?, Variant::Scalar).map(drop)
    }
}

/// The spec at a pointer.
pub unsafe fn layer_spec<'a>(spec: *const LayerSpec) -> Result<&'a LayerSpec> {
    // SAFETY: the caller's pointer, as the header says.
    let given = unsafe { fail::one("spec", spec) }?;
    // SAFETY: within the struct, where the caller has a field and Rust none.
    let reserved = unsafe { spec.byte_add(RESERVED_AT).cast::<u16>().read() };
    if reserved != 0 {
        return Err(argument(format!("spec: reserved is {reserved}, not 0")));
    }
    Ok(given)
}
