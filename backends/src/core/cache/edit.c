/* Truncate, fork, reset. */
#include "cache.h"

#include <string.h>

/* ---- truncate ---- */

static kv_extent extent(const kv_cache *cache, uint32_t layer) {
  const kv_layer *at = &cache->layers[layer];
  return (kv_extent){&cache->shared->specs[layer], at->length, at->first_page, (uint64_t)at->first_page + at->page_count};
}

/* The nearest length on one side of n that every layer accepts; above `most` means there is none. */
static uint64_t nearest(const kv_cache *cache, uint64_t n, int up, uint64_t most) {
  for (uint32_t layer = 0; layer < cache->shared->layers && n <= most;) {
    const kv_extent at = extent(cache, layer);
    if (kv_reach(&at, n) == KV_OK) {
      layer++;
      continue;
    }
    n = kv_reach_step(&at, n, up);
    layer = 0;
  }
  return n;
}

static int32_t refuse(const kv_cache *cache, uint32_t layer, int32_t code, uint64_t n, uint64_t most,
                      kv_error *error) {
  const char *why = code == KV_E_SPAN ? "a page that its span retired" : "fp16 tokens that exist only as codes";
  uint64_t below = nearest(cache, n, 0, most), above = nearest(cache, n, 1, most);
  if (above <= most)
    kv_fail(error, code, "truncate to %l: layer %u needs %s; nearest allowed lengths: %l, %l", n, layer, why, below,
            above);
  else
    kv_fail(error, code, "truncate to %l: layer %u needs %s; nearest allowed lengths: %l", n, layer, why, below);
  return kv_at_layer(code, layer, error);
}

static void cut(kv_cache *cache, uint32_t layer, uint64_t n) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  uint64_t sealed = kv_pages_sealed(spec, n), in_pages = spec->sinks + sealed * spec->page_tokens;
  if (n >= at->length) return;
  kv_layer_keep_pages(cache, layer, sealed);
  if (n < at->sinks.count) at->sinks.count = n;
  at->residual.count = n > in_pages ? n - in_pages : 0;
  at->length = n;
}

KV_EXPORT int32_t kv_cache_truncate(kv_cache *cache, uint64_t length, kv_error *error) {
  int32_t code = kv_usable(cache, error);
  uint64_t most = UINT64_MAX;
  if (code != KV_OK) return code;
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++)
    if (cache->layers[layer].length < most) most = cache->layers[layer].length;
  if (length > most)
    return kv_fail(error, KV_E_STATE, "truncate to %l: every layer holds only %l tokens", length, most);
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) {
    const kv_extent at = extent(cache, layer);
    code = kv_reach(&at, length);
    if (code != KV_OK) return refuse(cache, layer, code, length, most, error);
  }
  kv_cache_forget_marks(cache);
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) cut(cache, layer, length);
  return kv_success(error);
}

/* ---- fork ---- */

static int32_t copy_store(kv_cache *copy, const kv_layer_spec *spec, kv_store *to, const kv_store *from,
                          kv_error *error) {
  int32_t code;
  if (from->count == 0) return KV_OK;
  code = kv_store_take(copy, spec, from->capacity, to, error);
  if (code == KV_OK) kv_store_copy(spec, to, from);
  return code;
}

static int32_t copy_pages(kv_cache *copy, uint32_t layer, const kv_layer *from, kv_error *error) {
  kv_layer *to = &copy->layers[layer];
  to->first_page = from->first_page;
  if (from->page_count == 0) return KV_OK;
  to->pages = kv_cache_take(copy, kv_index_bytes(from->page_capacity));
  if (to->pages == NULL) return kv_fail(error, KV_E_MEMORY, "fork: the allocator refused the page index");
  to->page_capacity = from->page_capacity;
  for (; to->page_count < from->page_count; to->page_count++) {
    to->pages[to->page_count] = from->pages[to->page_count];
    kv_page_hold(copy, layer, to->pages[to->page_count]);
  }
  return KV_OK;
}

static int32_t copy_layer(kv_cache *copy, uint32_t layer, const kv_layer *from, kv_error *error) {
  const kv_layer_spec *spec = &copy->shared->specs[layer];
  kv_layer *to = &copy->layers[layer];
  size_t mean = (size_t)spec->kv_heads * spec->head_dim * sizeof(uint16_t);
  int32_t code = copy_store(copy, spec, &to->sinks, &from->sinks, error);
  if (code == KV_OK) code = copy_store(copy, spec, &to->residual, &from->residual, error);
  if (code == KV_OK) code = copy_pages(copy, layer, from, error);
  if (from->key_mean != NULL) memcpy(to->key_mean, from->key_mean, mean);
  if (from->value_mean != NULL) memcpy(to->value_mean, from->value_mean, mean);
  to->length = from->length;
  return kv_at_layer(code, layer, error);
}

KV_EXPORT int32_t kv_cache_fork(kv_cache *cache, kv_cache **copy, kv_error *error) {
  kv_cache *made = NULL;
  int32_t code = kv_usable(cache, error);
  if (code != KV_OK) return code;
  if (copy == NULL) return kv_fail(error, KV_E_ARGUMENT, "fork: nowhere to put the copy");
  *copy = NULL;
  code = kv_cache_new(cache->shared, &made, error);
  for (uint32_t layer = 0; code == KV_OK && layer < cache->shared->layers; layer++)
    code = copy_layer(made, layer, &cache->layers[layer], error);
  if (code != KV_OK) {
    kv_cache_destroy(made);
    return code;
  }
  *copy = made;
  return kv_success(error);
}

/* ---- reset ---- */

KV_EXPORT int32_t kv_cache_reset(kv_cache *cache, kv_error *error) {
  if (cache == NULL) return kv_fail(error, KV_E_ARGUMENT, "cache is NULL");
  kv_cache_forget_marks(cache);
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) {
    kv_layer *at = &cache->layers[layer];
    kv_layer_keep_pages(cache, layer, 0);
    at->sinks.count = at->residual.count = at->length = 0;
  }
  cache->pages_encoded = cache->pages_scanned = 0;
  cache->peak_allocated = cache->allocated;
  kv_scratch_init(cache->scratch, cache->shared->scratch_bytes); /* forgets which kernels ran */
  return kv_success(error);
}
