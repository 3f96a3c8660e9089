/* Bytes by part. Every part is computed on its own from layouts and counts; that they add up to what was counted at
 * the allocator is a property to test, not a definition. */
#include "cache.h"

#include <string.h>

static uint64_t code_bytes(const kv_layer_spec *spec, uint8_t mode) {
  uint64_t values = (uint64_t)spec->kv_heads * spec->page_tokens * spec->head_dim;
  uint64_t half_bits = mode == KV_MODE_FP16 ? 32 : mode & 15; /* a mode is 16 * family + 2 * bits */
  return values * half_bits / 16;
}

static int is_turbo(uint8_t mode) { return mode >> 4 == KV_MODE_TURBO >> 4 || mode >> 4 == KV_MODE_TURBO_QJL >> 4; }

/* One scale a vector and, unless it is fp16, one maximum a head. */
static uint64_t vector_scale_bytes(const kv_layer_spec *spec) {
  uint64_t vectors = (uint64_t)spec->kv_heads * spec->page_tokens;
  return spec->scale_kind == KV_SCALE_FP16 ? 2 * vectors : vectors + 4 * (uint64_t)spec->kv_heads;
}

static uint64_t scale_bytes(const kv_layer_spec *spec) {
  uint64_t heads = spec->kv_heads, bytes = 0;
  if (is_turbo(spec->key_mode)) bytes += vector_scale_bytes(spec);
  if (spec->key_mode >> 4 == KV_MODE_TURBO_QJL >> 4) bytes += vector_scale_bytes(spec);
  if (is_turbo(spec->value_mode)) bytes += vector_scale_bytes(spec);
  if (spec->key_mode >> 4 == KV_MODE_KIVI >> 4) bytes += 4 * heads * ((spec->page_tokens + 31u) / 32) * spec->head_dim;
  if (spec->value_mode >> 4 == KV_MODE_KIVI >> 4) bytes += 4 * heads * ((spec->head_dim + 31u) / 32) * spec->page_tokens;
  return bytes;
}

static uint64_t mean_bytes(const kv_layer_spec *spec) { return 2 * (uint64_t)spec->kv_heads * spec->head_dim; }

static void add_pages(const kv_cache *cache, uint32_t layer, kv_stats *stats) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  uint64_t codes = code_bytes(spec, spec->key_mode) + code_bytes(spec, spec->value_mode);
  uint64_t scales = scale_bytes(spec);
  uint64_t means = spec->key_centre == KV_CENTRE_PAGE ? mean_bytes(spec) : 0;
  if (spec->key_mode >> 4 == KV_MODE_TURBO_QJL >> 4)
    codes += (uint64_t)spec->kv_heads * spec->page_tokens * spec->head_dim / 8;
  stats->codes += at->page_count * codes;
  stats->scales += at->page_count * scales;
  stats->means += at->page_count * means;
  stats->headers += at->page_count * (kv_page_allocation(cache, layer) - codes - scales - means);
  stats->headers += kv_index_bytes(at->page_count);
  stats->reserved += kv_index_bytes(at->page_capacity - at->page_count);
}

static void add_layer(const kv_cache *cache, uint32_t layer, kv_stats *stats) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  uint64_t frozen = mean_bytes(spec) * ((at->key_mean != NULL) + (at->value_mean != NULL));
  add_pages(cache, layer, stats);
  stats->sinks += kv_store_bytes(spec, at->sinks.count);
  stats->residual += kv_store_bytes(spec, at->residual.count);
  stats->reserved += kv_store_bytes(spec, at->sinks.capacity - at->sinks.count);
  stats->reserved += kv_store_bytes(spec, at->residual.capacity - at->residual.count);
  if (at->first_page + at->page_count > 0)
    stats->means += frozen;
  else
    stats->reserved += frozen;
}

KV_EXPORT void kv_cache_get_stats(const kv_cache *cache, kv_stats *stats) {
  const kv_shared *shared;
  if (stats == NULL) return;
  memset(stats, 0, sizeof *stats);
  if (cache == NULL) return;
  shared = cache->shared;
  for (uint32_t layer = 0; layer < shared->layers; layer++) add_layer(cache, layer, stats);
  stats->headers += shared->bytes + cache->block_bytes - cache->means_bytes;
  if (cache->pool != NULL) stats->headers += kv_pool_bytes(shared->threads);
  stats->scratch = shared->scratch_bytes;
  for (const kv_mark *mark = cache->mark; mark != NULL; mark = mark->below) stats->staging += mark->bytes;
  stats->allocated = cache->allocated;
  stats->peak_allocated = cache->peak_allocated;
  stats->allocations = cache->allocations;
  stats->pages_encoded = cache->pages_encoded;
  stats->pages_scanned = cache->pages_scanned;
  stats->variant = kv_plan_variant(shared->plans[0]);
  stats->ran = kv_scratch_ran(cache->scratch);
}
