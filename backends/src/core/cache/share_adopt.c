/* Prefixes: an empty layer that begins with another cache's sealed pages. */
#include <string.h>

#include "kvassay_share.h"
#include "cache.h"

static int32_t check(const kv_cache *cache, uint32_t layer, const kv_cache *donor, uint32_t pages, uint64_t tokens,
                     kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *from;
  if (donor == NULL || donor == cache || donor->shared != cache->shared)
    return kv_fail(error, KV_E_ARGUMENT, "adopt: the donor must be another cache of the same pool, or a fork");
  from = &donor->layers[layer];
  if (cache->layers[layer].length != 0)
    return kv_fail(error, KV_E_STATE, "adopt: layer %u holds %l tokens already; only an empty one can adopt", layer,
                   cache->layers[layer].length);
  if (pages == 0 || from->first_page != 0 || pages > from->page_count)
    return kv_fail(error, KV_E_STATE, "adopt: layer %u of the donor has pages %u .. %u, not the first %u", layer,
                   from->first_page, from->first_page + from->page_count, pages);
  if (tokens < spec->window)
    return kv_fail(error, KV_E_STATE, "adopt: %l tokens after the pages; layer %u needs its window of %u at least",
                   tokens, layer, spec->window);
  return KV_OK;
}

/* Back to empty; memory that the layer did not have before is given back. */
static void clear(kv_cache *cache, uint32_t layer, const kv_layer *before) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  kv_layer_keep_pages(cache, layer, 0);
  at->sinks.count = at->residual.count = at->length = 0;
  if (before->sinks.capacity != at->sinks.capacity) kv_store_give_back(cache, spec, &at->sinks);
  if (before->residual.capacity != at->residual.capacity) kv_store_give_back(cache, spec, &at->residual);
  if (before->page_capacity == at->page_capacity) return;
  kv_cache_give_back(cache, at->pages, kv_index_bytes(at->page_capacity));
  at->pages = NULL;
  at->page_capacity = 0;
}

static int32_t take_sinks(kv_cache *cache, uint32_t layer, const kv_layer *from, kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  if (spec->sinks == 0) return KV_OK;
  if (at->sinks.capacity < spec->sinks) {
    kv_store room;
    int32_t code = kv_store_take(cache, spec, spec->sinks, &room, error);
    if (code != KV_OK) return code;
    kv_store_give_back(cache, spec, &at->sinks);
    at->sinks = room;
  }
  kv_store_copy(spec, &at->sinks, &from->sinks);
  at->length = spec->sinks;
  return KV_OK;
}

static int32_t take_pages(kv_cache *cache, uint32_t layer, const kv_layer *from, uint32_t pages, kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  size_t mean = (size_t)spec->kv_heads * spec->head_dim * sizeof(uint16_t);
  if (at->page_capacity < pages) {
    void **index = kv_cache_take(cache, kv_index_bytes(pages));
    if (index == NULL) return kv_fail(error, KV_E_MEMORY, "adopt: the allocator refused the page index");
    kv_cache_give_back(cache, at->pages, kv_index_bytes(at->page_capacity));
    at->pages = index;
    at->page_capacity = pages;
  }
  for (; at->page_count < pages; at->page_count++) {
    at->pages[at->page_count] = from->pages[at->page_count];
    kv_page_hold(cache, layer, at->pages[at->page_count]);
  }
  if (at->key_mean != NULL) memcpy(at->key_mean, from->key_mean, mean);
  if (at->value_mean != NULL) memcpy(at->value_mean, from->value_mean, mean);
  at->length += (uint64_t)pages * spec->page_tokens;
  return KV_OK;
}

/* Retires nothing: in one append of all tokens there would have been nothing to retire. */
static int32_t append_rest(kv_cache *cache, uint32_t layer, const float *keys, const float *values, uint64_t tokens,
                           kv_error *error) {
  kv_mark hold = {.below = cache->mark};
  int32_t code;
  cache->mark = &hold;
  code = kv_cache_append(cache, layer, keys, values, tokens, error);
  cache->mark = hold.below;
  cache->layers[layer].retire_to = 0;
  return code;
}

/* The window goes in as the tokens after the sinks, which is what they are once the pages lie before them. */
KV_EXPORT int32_t kv_cache_adopt(kv_cache *cache, uint32_t layer, const kv_cache *donor, uint32_t pages,
                                 const float *keys, const float *values, uint64_t tokens, kv_error *error) {
  int32_t code = kv_usable_layer(cache, layer, error);
  const kv_layer_spec *spec;
  kv_layer before;
  size_t width;
  if (code != KV_OK) return code;
  code = check(cache, layer, donor, pages, tokens, error);
  if (code != KV_OK) return kv_at_layer(code, layer, error);
  spec = &cache->shared->specs[layer];
  if (tokens != 0 && (keys == NULL || values == NULL))
    return kv_fail(error, KV_E_ARGUMENT, "adopt: keys or values are NULL");
  code = kv_check_values(spec, layer, keys, values, tokens, error);
  if (code != KV_OK) return kv_at_layer(code, layer, error);
  width = (size_t)spec->kv_heads * spec->head_dim;
  before = cache->layers[layer];
  code = take_sinks(cache, layer, &donor->layers[layer], error);
  if (code == KV_OK) code = kv_cache_append(cache, layer, keys, values, spec->window, error);
  if (code == KV_OK) code = take_pages(cache, layer, &donor->layers[layer], pages, error);
  if (code == KV_OK && tokens > spec->window) {
    size_t done = spec->window * width;
    code = append_rest(cache, layer, keys + done, values + done, tokens - spec->window, error);
  }
  if (code == KV_OK) return kv_success(error);
  clear(cache, layer, &before);
  return kv_at_layer(code, layer, error);
}
