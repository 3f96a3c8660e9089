/* Append: check everything, reserve everything, then write. */
#include "cache.h"

#include <string.h>

#include "bits.h"

/* ---- 1. check ---- */

static int32_t bad_value(const kv_layer_spec *spec, uint32_t layer, const char *stream, uint64_t index,
                         uint32_t magnitude, kv_error *error) {
  uint64_t token = index / spec->head_dim / spec->kv_heads;
  uint32_t head = (uint32_t)(index / spec->head_dim % spec->kv_heads);
  uint32_t channel = (uint32_t)(index % spec->head_dim);
  const char *found = magnitude > 0x7f800000 ? "NaN" : magnitude == 0x7f800000 ? "infinite" : "beyond 65504";
  kv_fail(error, KV_E_VALUE, "append: %s is %s at layer %u, token %l, head %u, channel %u; fp16 cannot hold it",
          stream, found, layer, token, head, channel);
  if (error != NULL) {
    error->layer = (int32_t)layer;
    error->token = (int64_t)token;
    error->head = (int32_t)head;
    error->channel = (int32_t)channel;
  }
  return KV_E_VALUE;
}

static int32_t check_stream(const kv_layer_spec *spec, uint32_t layer, const char *stream, const float *input,
                            uint64_t tokens, kv_error *error) {
  uint64_t count = tokens * spec->kv_heads * spec->head_dim;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t magnitude = kv_bits(input[i]) & 0x7fffffff;
    if (magnitude > 0x477fe000) return bad_value(spec, layer, stream, i, magnitude, error); /* 65504 */
  }
  return KV_OK;
}

static int32_t check(const kv_cache *cache, uint32_t layer, const float *keys, const float *values, uint64_t tokens,
                     kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  uint64_t length = cache->layers[layer].length;
  int32_t code;
  if (keys == NULL || values == NULL) return kv_fail(error, KV_E_ARGUMENT, "append: keys or values are NULL");
  if (tokens > KV_MAX_LENGTH - length)
    return kv_fail(error, KV_E_ARGUMENT, "append: %l tokens and %l more exceed 2^32 - 1", length, tokens);
  code = check_stream(spec, layer, "key", keys, tokens, error);
  return code != KV_OK ? code : check_stream(spec, layer, "value", values, tokens, error);
}

/* ---- 2. reserve ---- */

/* What an append needs beyond what the layer has. Stores without data need not grow. */
typedef struct reservation {
  kv_store sinks;
  kv_store residual;
  void **index; /* the layer's own, or a larger one */
  uint32_t index_capacity;
  uint32_t fresh; /* pages taken so far, at index[page_count ..] */
} reservation;

/* Doubles, but never beyond `most`, what the layer can ever use. */
static uint64_t grown(uint64_t capacity, uint64_t needed, uint64_t most) {
  uint64_t doubled = 2 * capacity;
  if (doubled < needed) doubled = needed;
  return doubled < most ? doubled : most;
}

static int32_t reserve_store(kv_cache *cache, const kv_layer_spec *spec, const kv_store *old, uint64_t needed,
                             uint64_t most, kv_store *larger, kv_error *error) {
  if (needed > most) needed = most;
  if (needed <= old->capacity) return KV_OK;
  return kv_store_take(cache, spec, grown(old->capacity, needed, most), larger, error);
}

static int32_t reserve_pages(kv_cache *cache, uint32_t layer, uint64_t count, reservation *out, kv_error *error) {
  kv_layer *at = &cache->layers[layer];
  uint64_t needed = at->page_count + count;
  out->index = at->pages;
  out->index_capacity = at->page_capacity;
  if (needed > at->page_capacity) {
    uint64_t capacity = grown(at->page_capacity, needed < 8 ? 8 : needed, KV_MAX_LENGTH);
    out->index = kv_cache_take(cache, kv_index_bytes(capacity));
    if (out->index == NULL) return kv_fail(error, KV_E_MEMORY, "append: the allocator refused the page index");
    out->index_capacity = (uint32_t)capacity;
  }
  for (; out->fresh < count; out->fresh++) {
    void *page = kv_page_take(cache, layer);
    if (page == NULL)
      return kv_fail(error, KV_E_MEMORY, "append: the allocator refused %l bytes for page %u of %l",
                     kv_page_allocation(cache, layer), out->fresh + 1, count);
    out->index[at->page_count + out->fresh] = page;
  }
  return KV_OK;
}

static int32_t reserve(kv_cache *cache, uint32_t layer, uint64_t tokens, reservation *out, kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  uint64_t end = at->length + tokens;
  uint64_t sinks = end < spec->sinks ? end : spec->sinks;
  uint64_t beyond = tokens - (sinks - at->sinks.count);
  int32_t code = reserve_store(cache, spec, &at->sinks, sinks, spec->sinks, &out->sinks, error);
  if (code == KV_OK)
    code = reserve_store(cache, spec, &at->residual, at->residual.count + beyond,
                         (uint64_t)spec->window + spec->page_tokens, &out->residual, error);
  if (code == KV_OK)
    code = reserve_pages(cache, layer, kv_pages_sealed(spec, end) - kv_pages_sealed(spec, at->length), out, error);
  return code;
}

static void give_back(kv_cache *cache, uint32_t layer, reservation *from) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  while (from->fresh > 0) kv_page_drop(cache, layer, from->index[at->page_count + --from->fresh]);
  if (from->index != at->pages) kv_cache_give_back(cache, from->index, kv_index_bytes(from->index_capacity));
  kv_store_give_back(cache, spec, &from->residual);
  kv_store_give_back(cache, spec, &from->sinks);
}

static void use_store(kv_cache *cache, const kv_layer_spec *spec, kv_store *store, kv_store *larger) {
  if (larger->data == NULL) return;
  kv_store_copy(spec, larger, store);
  kv_store_give_back(cache, spec, store);
  *store = *larger;
}

static void use(kv_cache *cache, uint32_t layer, reservation *from) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  use_store(cache, spec, &at->sinks, &from->sinks);
  use_store(cache, spec, &at->residual, &from->residual);
  if (from->index == at->pages) return;
  if (at->page_count != 0) memcpy(from->index, at->pages, at->page_count * sizeof(void *));
  kv_cache_give_back(cache, at->pages, kv_index_bytes(at->page_capacity));
  at->pages = from->index;
  at->page_capacity = from->index_capacity;
}

/* ---- 3. write: from here on nothing is refused ---- */

/* Encodes the oldest page_tokens of the residual into the next reserved page. */
static int32_t seal(kv_cache *cache, uint32_t layer, kv_error *error) {
  const kv_shared *shared = cache->shared;
  const kv_layer_spec *spec = &shared->specs[layer];
  const void *plan = shared->plans[layer];
  kv_layer *at = &cache->layers[layer];
  uint32_t number = at->first_page + at->page_count;
  kv_rows keys = kv_store_rows(spec, &at->residual, 0), values = kv_store_rows(spec, &at->residual, 1);
  kv_page_id id = shared->id;
  int32_t code = KV_OK;
  id.layer = layer;
  id.token_start = spec->sinks + number * spec->page_tokens;
  if (number == 0 && at->key_mean != NULL) code = kv_page_mean(plan, &keys, at->key_mean, error);
  if (code == KV_OK && number == 0 && at->value_mean != NULL)
    code = kv_page_mean(plan, &values, at->value_mean, error);
  if (code == KV_OK)
    code = kv_page_encode(plan, &id, &keys, &values, at->key_mean, at->value_mean, at->pages[at->page_count],
                          kv_plan_page_bytes(plan), cache->scratch, shared->scratch_bytes, error);
  if (code != KV_OK) return code;
  at->page_count++;
  cache->pages_encoded++;
  kv_store_drop_oldest(spec, &at->residual, spec->page_tokens);
  return KV_OK;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int32_t write_tokens(kv_cache *cache, uint32_t layer, const float *keys, const float *values, uint64_t tokens,
                     kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  uint64_t width = (uint64_t)spec->kv_heads * spec->head_dim, full = (uint64_t)spec->window + spec->page_tokens;
  uint64_t done = least(tokens, spec->sinks - at->sinks.count);
  if (done > 0) kv_store_append(spec, &at->sinks, keys, values, done);
  while (done < tokens) {
    uint64_t part = least(tokens - done, full - at->residual.count);
    kv_store_append(spec, &at->residual, keys + done * width, values + done * width, part);
    done += part;
    if (at->residual.count == full) {
      int32_t code = seal(cache, layer, error);
      if (code != KV_OK) return code;
    }
  }
  return KV_OK;
}

/* The kernels refuse an encode only for reasons that hold before the first page too: then the tokens just copied are
 * beyond the counts and nothing has changed. A later refusal would be a fault in the kernels; it is kept visible. */
static int32_t undo(kv_cache *cache, uint32_t layer, const kv_layer *before, reservation *reserved, int32_t code) {
  kv_layer *at = &cache->layers[layer];
  reserved->index = at->pages;
  if (at->page_count != before->page_count) cache->damaged = code;
  reserved->fresh -= at->page_count - before->page_count;
  reserved->sinks = reserved->residual = (kv_store){NULL, 0, 0};
  if (cache->damaged == KV_OK) {
    at->sinks.count = before->sinks.count;
    at->residual.count = before->residual.count;
  }
  give_back(cache, layer, reserved);
  return code;
}

KV_EXPORT int32_t kv_cache_append(kv_cache *cache, uint32_t layer, const float *keys, const float *values,
                                  uint64_t tokens, kv_error *error) {
  reservation reserved = {0};
  kv_layer before;
  int32_t code = kv_usable_layer(cache, layer, error);
  if (code != KV_OK) return code;
  if (tokens == 0) return kv_success(error);
  code = check(cache, layer, keys, values, tokens, error);
  if (code != KV_OK) return kv_at_layer(code, layer, error);
  code = reserve(cache, layer, tokens, &reserved, error);
  if (code != KV_OK) {
    give_back(cache, layer, &reserved);
    return kv_at_layer(code, layer, error);
  }
  use(cache, layer, &reserved);
  before = cache->layers[layer];
  code = write_tokens(cache, layer, keys, values, tokens, error);
  if (code != KV_OK) return kv_at_layer(undo(cache, layer, &before, &reserved, code), layer, error);
  kv_layer_retire(cache, layer, kv_first_live(&cache->shared->specs[layer], before.length));
  cache->layers[layer].length += tokens;
  return kv_success(error);
}
