//! The structs of `kvassay.h`, field by field; `kv_layer_spec`, `kv_page_id` and `kv_stats` are the core's own.
#![allow(missing_docs)]

use std::ffi::{c_char, c_void};

use kvassay_core::LayerSpec;
use kvassay_core::cache::Stats;
use kvassay_core::page::PageId;

pub const ABI_VERSION: u32 = 1;
pub const CONTRACT_VERSION: u32 = 1;
pub const OK: i32 = 0;
pub const FLAG_EXACT: u32 = 1;
pub const FLAG_CACHE: u32 = 2;

#[repr(C)]
pub struct KvError {
    pub code: i32,
    pub layer: i32,
    pub head: i32,
    pub channel: i32,
    pub token: i64,
    pub message: [u8; 232],
}

#[repr(C)]
pub struct KvInfo {
    pub abi_version: u32,
    pub contract_version: u32,
    pub page_version: u32,
    pub dump_version: u32,
    pub flags: u32,
    pub variant_count: u32,
    pub name: *const c_char,
    pub build_id: *const c_char,
}

// SAFETY: it is constant and points to constants.
unsafe impl Sync for KvInfo {}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct KvRows {
    pub data: *const u16,
    pub token_stride: u64,
    pub head_stride: u64,
}

#[repr(C)]
pub struct KvState {
    pub length: u64,
    pub pages: *const *const c_void,
    pub first_page: u32,
    pub page_count: u32,
    pub sink_keys: KvRows,
    pub sink_values: KvRows,
    pub residual_keys: KvRows,
    pub residual_values: KvRows,
    pub key_mean: *const u16,
    pub value_mean: *const u16,
}

/// Not called: everything runs on the caller's thread, which the header allows.
#[repr(C)]
pub struct KvParallel {
    _private: [u8; 0],
}

/// Only whether there is one is looked at.
#[repr(C)]
pub struct KvAllocator {
    _private: [u8; 0],
}

#[repr(C)]
pub struct KvCacheConfig {
    pub layers: u32,
    pub threads: u32,
    pub specs: *const LayerSpec,
    pub variant: *const c_char,
    pub identity: *const u8,
    pub identity_bytes: u64,
    pub model: u64,
    pub tokenizer: u64,
    pub runtime: u64,
    pub allocator: *const KvAllocator,
}

const _: () = {
    assert!(size_of::<KvError>() == 256);
    assert!(size_of::<KvInfo>() == 40);
    assert!(size_of::<LayerSpec>() == 40);
    assert!(size_of::<PageId>() == 32);
    assert!(size_of::<KvState>() == 136);
    assert!(size_of::<KvCacheConfig>() == 72);
    assert!(size_of::<Stats>() == 120);
};
