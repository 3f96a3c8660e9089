/* The rules of the life cycle and the pages of a layer. */
#include "cache.h"

#include <string.h>

uint64_t kv_pages_sealed(const kv_layer_spec *spec, uint64_t length) {
  uint64_t kept = (uint64_t)spec->sinks + spec->window;
  return length <= kept ? 0 : (length - kept) / spec->page_tokens;
}

uint64_t kv_first_live(const kv_layer_spec *spec, uint64_t length) {
  uint64_t sealed = kv_pages_sealed(spec, length);
  uint64_t unseen = (uint64_t)spec->sinks + spec->span; /* before token length - span, not counting sinks */
  uint64_t first;
  if (spec->span == 0 || length <= unseen) return 0;
  first = (length - unseen) / spec->page_tokens;
  return first < sealed ? first : sealed;
}

int32_t kv_reach(const kv_extent *at, uint64_t n) {
  const kv_layer_spec *spec = at->spec;
  uint64_t sealed = kv_pages_sealed(spec, n), first = kv_first_live(spec, n);
  if (n >= at->length) return KV_OK;
  if (n > spec->sinks && sealed != at->sealed && n != spec->sinks + sealed * spec->page_tokens) return KV_E_TRUNCATE;
  return first < sealed && first < at->first_page ? KV_E_SPAN : KV_OK;
}

uint64_t kv_reach_step(const kv_extent *at, uint64_t n, int up) {
  const kv_layer_spec *spec = at->spec;
  uint64_t page_start = spec->sinks + kv_pages_sealed(spec, n) * spec->page_tokens;
  if (kv_reach(at, n) == KV_E_SPAN) return up ? n + 1 : n - 1;
  if (spec->window == 0) return up ? page_start + spec->page_tokens : page_start;
  return up ? (uint64_t)spec->sinks + spec->window + at->sealed * spec->page_tokens : spec->sinks;
}

kv_state kv_layer_state(const kv_cache *cache, uint32_t layer) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  int frozen = at->first_page + at->page_count > 0;
  return (kv_state){
      .length = at->length,
      .pages = (const void *const *)at->pages,
      .first_page = at->first_page,
      .page_count = at->page_count,
      .sink_keys = kv_store_rows(spec, &at->sinks, 0),
      .sink_values = kv_store_rows(spec, &at->sinks, 1),
      .residual_keys = kv_store_rows(spec, &at->residual, 0),
      .residual_values = kv_store_rows(spec, &at->residual, 1),
      .key_mean = frozen ? at->key_mean : NULL,
      .value_mean = frozen ? at->value_mean : NULL,
  };
}

void kv_layer_retire(kv_cache *cache, uint32_t layer, uint64_t first) {
  kv_layer *at = &cache->layers[layer];
  uint32_t count = 0;
  if (cache->mark != NULL) { /* a rollback may need them: not yet */
    if (first > at->retire_to) at->retire_to = first;
    return;
  }
  while (count < at->page_count && at->first_page + (uint64_t)count < first)
    kv_page_drop(cache, layer, at->pages[count++]);
  if (count == 0) return;
  at->page_count -= count;
  at->first_page += count;
  memmove(at->pages, at->pages + count, at->page_count * sizeof(void *));
}

void kv_layer_keep_pages(kv_cache *cache, uint32_t layer, uint64_t count) {
  kv_layer *at = &cache->layers[layer];
  while (at->page_count > 0 && (uint64_t)at->first_page + at->page_count > count)
    kv_page_drop(cache, layer, at->pages[--at->page_count]);
  if (at->first_page > count) at->first_page = (uint32_t)count;
}
