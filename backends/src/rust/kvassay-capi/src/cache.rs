//! The cache: a `kv_cache *` is a boxed `Cache`.

use std::ffi::c_void;

use kvassay_core::cache::Stats;
use kvassay_core::{Cache, Config, Error, Kind, Result, Variant};

use crate::abi::KvCacheConfig;
use crate::fail::{self, argument, exported};
use crate::info::layer_spec;

unsafe fn config(given: *const KvCacheConfig) -> Result<Config> {
    // SAFETY: the caller's pointers, as the header says.
    unsafe {
        let given = fail::one("config", given)?;
        if given.threads == 0 {
            return Err(argument("threads: 0, at least 1 is needed"));
        }
        if given.layers == 0 || given.layers > 1 << 16 {
            return Err(argument(format!("layers: {} is not in 1 .. 65536", given.layers)));
        }
        if !given.allocator.is_null() {
            return Err(argument("allocator: this library takes memory from the system alone; give NULL"));
        }
        let specs = fail::slice("specs", given.specs, u64::from(given.layers))?;
        Ok(Config {
            specs: specs.iter().map(|spec| layer_spec(spec).copied()).collect::<Result<_>>()?,
            variant: Variant::find(fail::text("variant", given.variant)?)?,
            identity: fail::slice("identity", given.identity, given.identity_bytes)?.to_vec(),
            model: given.model,
            tokenizer: given.tokenizer,
            runtime: given.runtime,
        })
    }
}

unsafe fn give(out: *mut *mut Cache, made: Result<Cache>) -> Result<()> {
    // SAFETY: the caller's pointer, as the header says.
    let out = unsafe { fail::one_mut("cache", out) }?;
    *out = Box::into_raw(Box::new(made?));
    Ok(())
}

exported! {
    /// A new cache.
    fn kv_cache_create(given: *const KvCacheConfig, cache: *mut *mut Cache) {
        give(cache, config(given).and_then(Cache::new))
    }

    /// Appends tokens.
    fn kv_cache_append(cache: *mut Cache, layer: u32, keys: *const f32, values: *const f32, tokens: u64) {
        let cache = fail::one_mut("cache", cache)?;
        let spec = cache.spec(layer as usize)?;
        let n = numbers(tokens, spec.kv_heads, spec.head_dim)?;
        let (keys, values) = (fail::slice("keys", keys, n)?, fail::slice("values", values, n)?);
        cache.append(layer as usize, keys, values, tokens)
    }

    /// Attention.
    fn kv_cache_attend(cache: *mut Cache, layer: u32, q: *const f32, n: u32, out: *mut f32) {
        let cache = fail::one_mut("cache", cache)?;
        let spec = cache.spec(layer as usize)?;
        let floats = numbers(u64::from(n), spec.query_heads, spec.head_dim)?;
        let (q, out) = (fail::slice("q", q, floats)?, fail::slice_mut("out", out, floats)?);
        cache.attend(layer as usize, q, u64::from(n), out)
    }

    /// Scores.
    fn kv_cache_scores(cache: *mut Cache, layer: u32, q: *const f32, out: *mut f32, out_floats: u64) {
        let cache = fail::one_mut("cache", cache)?;
        let spec = cache.spec(layer as usize)?;
        let q = fail::slice("q", q, numbers(1, spec.query_heads, spec.head_dim)?)?;
        cache.scores(layer as usize, q, fail::slice_mut("out", out, out_floats)?)
    }

    /// A live page.
    fn kv_cache_page(cache: *const Cache, layer: u32, index: u32, page: *mut *const c_void, bytes: *mut u64) {
        let (cache, page, bytes) =
            (fail::one("cache", cache)?, fail::one_mut("page", page)?, fail::one_mut("bytes", bytes)?);
        let mut pages = cache.pages(layer as usize)?;
        let count = pages.len();
        let found = pages.nth(index as usize);
        let found = found.ok_or_else(|| argument(format!("index: {index}, there are {count} live pages")))?;
        *page = found.as_ptr().cast();
        *bytes = found.len() as u64;
        Ok(())
    }

    /// Cuts every layer.
    fn kv_cache_truncate(cache: *mut Cache, length: u64) {
        fail::one_mut("cache", cache)?.truncate(length)
    }

    /// A second cache.
    fn kv_cache_fork(cache: *mut Cache, copy: *mut *mut Cache) {
        give(copy, fail::one("cache", cache).and_then(Cache::fork))
    }

    /// As newly prepared.
    fn kv_cache_reset(cache: *mut Cache) {
        fail::one_mut("cache", cache).map(Cache::reset)
    }

    /// Bytes of a dump.
    fn kv_cache_dump_bytes(cache: *const Cache, bytes: *mut u64) {
        let (cache, bytes) = (fail::one("cache", cache)?, fail::one_mut("bytes", bytes)?);
        *bytes = cache.dump_bytes();
        Ok(())
    }

    /// Writes a dump.
    fn kv_cache_dump(cache: *const Cache, buffer: *mut c_void, bytes: u64) {
        let cache = fail::one("cache", cache)?;
        let total = cache.dump_bytes();
        if bytes < total {
            let message = format!("buffer: {bytes} bytes, the dump takes {total}");
            return Err(Error::new(Kind::Memory, message));
        }
        cache.dump(fail::slice_mut("buffer", buffer.cast::<u8>(), total)?)
    }

    /// The cache of a dump.
    fn kv_cache_restore(given: *const KvCacheConfig, buffer: *const c_void, bytes: u64, cache: *mut *mut Cache) {
        let dump = fail::slice("buffer", buffer.cast::<u8>(), bytes)?;
        give(cache, Cache::restore(config(given)?, dump))
    }
}

/// Releases a cache; NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_cache_destroy(cache: *mut Cache) {
    if !cache.is_null() {
        // SAFETY: made by `give`, and not used any more.
        drop(unsafe { Box::from_raw(cache) });
    }
}

/// Numbers of n tokens of some heads, or an error.
fn numbers(n: u64, heads: u16, d: u16) -> Result<u64> {
    n.checked_mul(u64::from(heads) * u64::from(d)).ok_or_else(|| argument(format!("{n} tokens cannot be in memory")))
}

/// Tokens appended; 0 for a layer that is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_cache_length(cache: *const Cache, layer: u32) -> u64 {
    // SAFETY: a cache of this library.
    unsafe { &*cache }.length(layer as usize).unwrap_or(0)
}

/// Live pages; 0 for a layer that is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_cache_page_count(cache: *const Cache, layer: u32) -> u32 {
    // SAFETY: a cache of this library.
    unsafe { &*cache }.pages(layer as usize).map_or(0, |pages| pages.len() as u32)
}

/// Bytes by part, and counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kv_cache_get_stats(cache: *const Cache, stats: *mut Stats) {
    // SAFETY: a cache of this library, and a kv_stats to fill, as the header says.
    unsafe { stats.write((*cache).stats()) };
}
