/* Making, destroying and reading a cache. */
#include "cache.h"

#include <string.h>

/* ---- making ---- */

static uint64_t mean_elements(const kv_layer_spec *spec, int values) {
  int frozen = (values ? spec->value_centre : spec->key_centre) == KV_CENTRE_FROZEN;
  return frozen ? (uint64_t)spec->kv_heads * spec->head_dim : 0;
}

static uint64_t all_means_bytes(const kv_shared *shared) {
  uint64_t elements = 0;
  for (uint32_t layer = 0; layer < shared->layers; layer++)
    elements += mean_elements(&shared->specs[layer], 0) + mean_elements(&shared->specs[layer], 1);
  return elements * sizeof(uint16_t);
}

static void place_means(kv_cache *cache, uint16_t *room) {
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) {
    const kv_layer_spec *spec = &cache->shared->specs[layer];
    uint64_t keys = mean_elements(spec, 0), values = mean_elements(spec, 1);
    if (keys != 0) cache->layers[layer].key_mean = room;
    if (values != 0) cache->layers[layer].value_mean = room + keys;
    room += keys + values;
  }
}

static int32_t make_scratch(kv_cache *cache, kv_error *error) {
  const kv_shared *shared = cache->shared;
  if (shared->threads > 1) {
    kv_pool *pool = kv_cache_take(cache, kv_pool_bytes(shared->threads));
    if (pool == NULL) return kv_fail(error, KV_E_MEMORY, "create: the allocator refused the thread pool");
    kv_pool_init(pool, shared->threads);
    cache->pool = pool;
  }
  cache->scratch = kv_cache_take(cache, shared->scratch_bytes);
  if (cache->scratch == NULL)
    return kv_fail(error, KV_E_MEMORY, "create: the allocator refused %l bytes of scratch",
                     shared->scratch_bytes);
  kv_scratch_init(cache->scratch, shared->scratch_bytes);
  return KV_OK;
}

int32_t kv_cache_new(kv_shared *shared, kv_cache **out, kv_error *error) {
  uint64_t fixed = kv_align_up(sizeof(kv_cache) + shared->layers * sizeof(kv_layer), 64);
  uint64_t means = all_means_bytes(shared);
  kv_cache *cache = kv_take(&shared->allocator, fixed + means);
  int32_t code;
  if (cache == NULL)
    return kv_fail(error, KV_E_MEMORY, "create: the allocator refused %l bytes of bookkeeping",
                     fixed + means);
  memset(cache, 0, fixed + means);
  cache->shared = shared;
  cache->block_bytes = fixed + means;
  cache->means_bytes = means;
  cache->allocations = 1;
  kv_cache_count(cache, cache->block_bytes + shared->bytes);
  place_means(cache, (uint16_t *)((uint8_t *)cache + fixed));
  kv_shared_hold(shared);
  code = make_scratch(cache, error);
  if (code != KV_OK) {
    kv_cache_destroy(cache);
    return code;
  }
  *out = cache;
  return KV_OK;
}

KV_EXPORT int32_t kv_cache_create(const kv_cache_config *config, kv_cache **cache, kv_error *error) {
  kv_shared *shared = NULL;
  int32_t code;
  if (cache == NULL) return kv_fail(error, KV_E_ARGUMENT, "create: nowhere to put the cache");
  *cache = NULL;
  code = kv_shared_create(config, &shared, error);
  if (code != KV_OK) return code;
  code = kv_cache_new(shared, cache, error);
  if (code == KV_OK) (*cache)->allocations++; /* the shared block */
  kv_shared_release(shared);
  return code == KV_OK ? kv_success(error) : code;
}

KV_EXPORT void kv_cache_destroy(kv_cache *cache) {
  kv_shared *shared;
  kv_allocator allocator;
  if (cache == NULL) return;
  shared = cache->shared;
  kv_cache_forget_marks(cache);
  for (uint32_t layer = 0; layer < shared->layers; layer++) {
    kv_layer *at = &cache->layers[layer];
    kv_layer_keep_pages(cache, layer, 0);
    kv_cache_give_back(cache, at->pages, kv_index_bytes(at->page_capacity));
    kv_store_give_back(cache, &shared->specs[layer], &at->sinks);
    kv_store_give_back(cache, &shared->specs[layer], &at->residual);
  }
  kv_cache_give_back(cache, cache->scratch, shared->scratch_bytes);
  if (cache->pool != NULL) kv_pool_stop(cache->pool);
  kv_cache_give_back(cache, cache->pool, kv_pool_bytes(shared->threads));
  allocator = shared->allocator;
  allocator.release(allocator.context, cache, cache->block_bytes);
  kv_shared_release(shared);
}

/* ---- reading ---- */

/* Pages that a query of this visible length reads. */
static uint64_t pages_read(const kv_layer_spec *spec, uint64_t visible, uint64_t sealed) {
  uint64_t first, end = 0;
  if (visible > spec->sinks) end = (visible - spec->sinks + spec->page_tokens - 1) / spec->page_tokens;
  if (end > sealed) end = sealed;
  first = spec->span != 0 && visible > (uint64_t)spec->sinks + spec->span
              ? (visible - spec->sinks - spec->span) / spec->page_tokens
              : 0;
  return first < end ? end - first : 0;
}

static int32_t after_read(kv_cache *cache, uint32_t layer, uint32_t queries, int32_t code, kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  if (code != KV_OK) return kv_at_layer(code, layer, error);
  for (uint64_t query = 0; query < queries; query++)
    cache->pages_scanned += spec->kv_heads * pages_read(spec, at->length - query, at->first_page + at->page_count);
  return kv_success(error);
}

static kv_parallel parallel(const kv_cache *cache) {
  return (kv_parallel){.context = cache->pool, .threads = cache->shared->threads, .run = kv_pool_run};
}

KV_EXPORT int32_t kv_cache_attend(kv_cache *cache, uint32_t layer, const float *q, uint32_t n, float *out,
                                  kv_error *error) {
  int32_t code = kv_usable_layer(cache, layer, error);
  kv_state state;
  kv_parallel threads;
  if (code != KV_OK) return code;
  state = kv_layer_state(cache, layer);
  threads = parallel(cache);
  code = kv_attend(cache->shared->plans[layer], &state, q, n, out, cache->scratch, cache->shared->scratch_bytes,
                   cache->pool != NULL ? &threads : NULL, error);
  return after_read(cache, layer, n, code, error);
}

KV_EXPORT int32_t kv_cache_scores(kv_cache *cache, uint32_t layer, const float *q, float *out, uint64_t out_floats,
                                  kv_error *error) {
  int32_t code = kv_usable_layer(cache, layer, error);
  kv_state state;
  kv_parallel threads;
  if (code != KV_OK) return code;
  state = kv_layer_state(cache, layer);
  threads = parallel(cache);
  code = kv_scores(cache->shared->plans[layer], &state, q, out, out_floats, cache->scratch,
                   cache->shared->scratch_bytes, cache->pool != NULL ? &threads : NULL, error);
  return after_read(cache, layer, 1, code, error);
}

KV_EXPORT uint64_t kv_cache_length(const kv_cache *cache, uint32_t layer) {
  return cache != NULL && layer < cache->shared->layers ? cache->layers[layer].length : 0;
}

/* Pages that are held but no longer live come before the live ones. */
static uint32_t not_live(const kv_cache *cache, uint32_t layer) {
  const kv_layer *at = &cache->layers[layer];
  return (uint32_t)kv_first_live(&cache->shared->specs[layer], at->length) - at->first_page;
}

KV_EXPORT uint32_t kv_cache_page_count(const kv_cache *cache, uint32_t layer) {
  if (cache == NULL || layer >= cache->shared->layers) return 0;
  return cache->layers[layer].page_count - not_live(cache, layer);
}

KV_EXPORT int32_t kv_cache_page(const kv_cache *cache, uint32_t layer, uint32_t index, const void **page,
                                uint64_t *bytes, kv_error *error) {
  int32_t code = kv_usable_layer(cache, layer, error);
  if (code != KV_OK) return code;
  if (page == NULL || bytes == NULL) return kv_fail(error, KV_E_ARGUMENT, "page: nowhere to put it");
  if (index >= kv_cache_page_count(cache, layer))
    return kv_fail(error, KV_E_ARGUMENT, "page %u: layer %u has %u live pages", index, layer,
                     kv_cache_page_count(cache, layer));
  *page = cache->layers[layer].pages[not_live(cache, layer) + index];
  *bytes = kv_plan_page_bytes(cache->shared->plans[layer]);
  return kv_success(error);
}
