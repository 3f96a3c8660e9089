/* Sizes, errors and counted allocation. */
#include "cache.h"

#include "core/base/memory.h"

#include <stddef.h>

uint64_t kv_add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t kv_mul(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }

uint64_t kv_align_up(uint64_t bytes, uint64_t multiple) {
  uint64_t sum = kv_add(bytes, multiple - 1);
  return sum == UINT64_MAX ? sum : sum & ~(multiple - 1);
}

int32_t kv_at_layer(int32_t code, uint32_t layer, kv_error *error) {
  if (code != KV_OK && error != NULL) error->layer = (int32_t)layer;
  return code;
}

int32_t kv_usable(const kv_cache *cache, kv_error *error) {
  if (cache == NULL) return kv_fail(error, KV_E_ARGUMENT, "cache is NULL");
  return KV_OK;
}

int32_t kv_usable_layer(const kv_cache *cache, uint32_t layer, kv_error *error) {
  int32_t code = kv_usable(cache, error);
  if (code == KV_OK && layer >= cache->shared->layers)
    code = kv_fail(error, KV_E_ARGUMENT, "layer %u is outside 0 .. %u", layer, cache->shared->layers - 1);
  return code;
}

static void *default_allocate(void *context, uint64_t bytes) {
  (void)context;
  return kv_memory_take(bytes);
}

static void default_release(void *context, void *pointer, uint64_t bytes) {
  (void)context;
  kv_memory_give_back(pointer, bytes);
}

const kv_allocator kv_default_allocator = {NULL, default_allocate, default_release};

void *kv_take(const kv_allocator *allocator, uint64_t bytes) {
  if (bytes > (uint64_t)PTRDIFF_MAX - 64) return NULL;
  return allocator->allocate(allocator->context, bytes);
}

void kv_cache_count(kv_cache *cache, uint64_t bytes) {
  cache->allocated += bytes;
  if (cache->allocated > cache->peak_allocated) cache->peak_allocated = cache->allocated;
}

void *kv_cache_take(kv_cache *cache, uint64_t bytes) {
  void *pointer = kv_take(&cache->shared->allocator, bytes);
  if (pointer == NULL) return NULL;
  cache->allocations++;
  kv_cache_count(cache, bytes);
  return pointer;
}

void kv_cache_give_back(kv_cache *cache, void *pointer, uint64_t bytes) {
  const kv_allocator *allocator = &cache->shared->allocator;
  if (pointer == NULL) return;
  allocator->release(allocator->context, pointer, bytes);
  cache->allocated -= bytes;
}

/* ---- pages ---- */

static uint64_t page_bytes(const kv_cache *cache, uint32_t layer) {
  return kv_plan_page_bytes(cache->shared->plans[layer]);
}

static atomic_uint *page_holders(const kv_cache *cache, uint32_t layer, void *page) {
  return (atomic_uint *)((uint8_t *)page + page_bytes(cache, layer));
}

uint64_t kv_page_allocation(const kv_cache *cache, uint32_t layer) {
  return page_bytes(cache, layer) + sizeof(atomic_uint);
}

void *kv_page_take(kv_cache *cache, uint32_t layer) {
  void *page = kv_cache_take(cache, kv_page_allocation(cache, layer));
  if (page != NULL) atomic_init(page_holders(cache, layer, page), 1);
  return page;
}

void kv_page_hold(kv_cache *cache, uint32_t layer, void *page) {
  atomic_fetch_add_explicit(page_holders(cache, layer, page), 1, memory_order_relaxed);
  kv_cache_count(cache, kv_page_allocation(cache, layer));
}

void kv_page_drop(kv_cache *cache, uint32_t layer, void *page) {
  uint64_t bytes = kv_page_allocation(cache, layer);
  /* Release, so that this cache's reads are over; acquire, so that the last holder sees those of all others. */
  if (atomic_fetch_sub_explicit(page_holders(cache, layer, page), 1, memory_order_acq_rel) == 1)
    cache->shared->allocator.release(cache->shared->allocator.context, page, bytes);
  cache->allocated -= bytes;
}

uint64_t kv_index_bytes(uint64_t pages) { return kv_mul(pages, sizeof(void *)); }
