/* Append: check everything, reserve everything, then write. Tokens that fit behind those in use are checked as they are
 * written there, since nobody sees them before they are counted: one pass over the input instead of two. */
#include "cache.h"

#include <string.h>

#include "core/base/bits.h"
#include "core/base/fpenv.h"
#include "core/page/encode.h"
#include "core/plan/scratch.h"

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

/* Sixteen numbers (a head is a multiple of that) without a branch, which compilers turn into vectors. */
static int beyond16(const float *input) {
  int beyond = 0;
  for (int i = 0; i < 16; i++) beyond |= (int)(kv_bits(input[i]) & 0x7fffffff) > KV_LARGEST_F16;
  return beyond;
}

static int32_t check_stream(const kv_layer_spec *spec, uint32_t layer, const char *stream, const float *input,
                            uint64_t tokens, kv_error *error) {
  uint64_t count = tokens * spec->kv_heads * spec->head_dim, i = 0;
  while (i < count && !beyond16(input + i)) i += 16;
  for (; i < count; i++) {
    uint32_t magnitude = kv_bits(input[i]) & 0x7fffffff;
    if (magnitude > KV_LARGEST_F16) return bad_value(spec, layer, stream, i, magnitude, error);
  }
  return KV_OK;
}

int32_t kv_check_values(const kv_layer_spec *spec, uint32_t layer, const float *keys, const float *values,
                        uint64_t tokens, kv_error *error) {
  int32_t code = check_stream(spec, layer, "key", keys, tokens, error);
  return code != KV_OK ? code : check_stream(spec, layer, "value", values, tokens, error);
}

static int32_t check_arguments(const kv_layer *at, const float *keys, const float *values, uint64_t tokens,
                               kv_error *error) {
  if (keys == NULL || values == NULL) return kv_fail(error, KV_E_ARGUMENT, "append: keys or values are NULL");
  if (tokens > KV_MAX_LENGTH - at->length)
    return kv_fail(error, KV_E_ARGUMENT, "append: %l tokens and %l more exceed 2^32 - 1", at->length, tokens);
  return KV_OK;
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

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* For tokens that are still to be written, and for pages. */
static int32_t reserve(kv_cache *cache, uint32_t layer, uint64_t tokens, uint64_t pages, reservation *out,
                       kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  const uint64_t sinks = least(tokens, spec->sinks - at->sinks.count);
  const uint64_t full = (uint64_t)spec->window + spec->page_tokens;
  int32_t code = reserve_store(cache, spec, &at->sinks, at->sinks.count + sinks, spec->sinks, &out->sinks, error);
  if (code == KV_OK)
    code = reserve_store(cache, spec, &at->residual, at->residual.count + tokens - sinks, full, &out->residual, error);
  return code == KV_OK ? reserve_pages(cache, layer, pages, out, error) : code;
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

static kv_rows rows_from(const kv_layer_spec *spec, const kv_store *store, int values, uint64_t token) {
  kv_rows rows = kv_store_rows(spec, store, values);
  rows.data += token * rows.token_stride;
  return rows;
}

/* Encodes page_tokens of the residual, from token `first` of it on, into the next reserved page. */
static void seal(kv_cache *cache, uint32_t layer, uint64_t first) {
  const kv_shared *shared = cache->shared;
  const kv_layer_spec *spec = &shared->specs[layer];
  const kv_plan *plan = shared->plans[layer];
  kv_layer *at = &cache->layers[layer];
  uint32_t number = at->first_page + at->page_count;
  kv_rows keys = rows_from(spec, &at->residual, 0, first), values = rows_from(spec, &at->residual, 1, first);
  kv_page_id id = shared->id;
  id.layer = layer;
  id.token_start = spec->sinks + number * spec->page_tokens;
  if (number == 0 && at->key_mean != NULL) kv_mean_valid(plan, &keys, at->key_mean);
  if (number == 0 && at->value_mean != NULL) kv_mean_valid(plan, &values, at->value_mean);
  kv_encode_valid(plan, &id, &keys, &values, at->key_mean, at->value_mean, at->pages[at->page_count], cache->scratch);
  at->page_count++;
  cache->pages_encoded++;
}

/* An append on its way: what is left of it. */
typedef struct input {
  const float *keys, *values;
  uint64_t tokens;
} input;

/* The next tokens of the input to a store, behind those in use; not 0 if a number was refused. */
static int take(kv_cache *cache, uint32_t layer, kv_store *store, uint64_t tokens, input *in) {
  const kv_plan *plan = cache->shared->plans[layer];
  const uint64_t width = tokens * plan->spec.kv_heads * plan->spec.head_dim;
  int refused = 0;
  if (tokens == 0) return 0;
  refused = kv_store_write(plan, store, in->keys, in->values, tokens, &((kv_scratch *)cache->scratch)->ran);
  store->count += tokens;
  *in = (input){in->keys + width, in->values + width, in->tokens - tokens};
  return refused;
}

/* All of the input to memory that the layer has, if it fits there. Not 0: it was not taken, or a number was refused and
 * nothing counts. */
static int take_if_it_fits(kv_cache *cache, uint32_t layer, input *in) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  const input all = *in;
  const uint64_t sinks = least(in->tokens, spec->sinks - at->sinks.count), rest = in->tokens - sinks;
  if (sinks > at->sinks.capacity - at->sinks.count || rest > at->residual.capacity - at->residual.count) return 1;
  int refused = take(cache, layer, &at->sinks, sinks, in);
  refused |= take(cache, layer, &at->residual, rest, in);
  if (!refused) return 0;
  *in = all;
  at->sinks.count -= sinks;
  at->residual.count -= rest;
  return 1;
}

/* The rest of the input, and the pages that are due. Tokens that are in a page by now stay at the front of the residual
 * until all are, or until there is no room behind: a long append moves none but its last. */
static void write_and_seal(kv_cache *cache, uint32_t layer, uint64_t pages, input *in) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  uint64_t sealed = 0;
  take(cache, layer, &at->sinks, least(in->tokens, spec->sinks - at->sinks.count), in);
  for (; pages != 0; pages--, sealed += spec->page_tokens) {
    if (sealed == at->residual.count || sealed + spec->page_tokens > at->residual.capacity) {
      kv_store_drop_oldest(spec, &at->residual, sealed);
      sealed = 0;
    }
    const uint64_t end = sealed + spec->page_tokens;
    if (end > at->residual.count) take(cache, layer, &at->residual, end - at->residual.count, in);
    seal(cache, layer, sealed);
  }
  if (sealed != 0) kv_store_drop_oldest(spec, &at->residual, sealed);
  take(cache, layer, &at->residual, in->tokens, in);
}

static KV_NOINLINE int32_t append(kv_cache *cache, uint32_t layer, input in, kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  const uint64_t end = at->length + in.tokens;
  const uint64_t pages = kv_pages_sealed(spec, end) - kv_pages_sealed(spec, at->length);
  const uint64_t sinks = at->sinks.count, residual = at->residual.count;
  reservation reserved = {0};
  int32_t code = KV_OK;
  if (take_if_it_fits(cache, layer, &in) != 0)
    code = kv_check_values(spec, layer, in.keys, in.values, in.tokens, error);
  if (code != KV_OK) return code;
  code = reserve(cache, layer, in.tokens, pages, &reserved, error);
  if (code != KV_OK) {
    give_back(cache, layer, &reserved);
    at->sinks.count = sinks;
    at->residual.count = residual;
    return code;
  }
  use(cache, layer, &reserved);
  write_and_seal(cache, layer, pages, &in);
  kv_layer_retire(cache, layer, kv_first_live(spec, at->length));
  at->length = end;
  return kv_success(error);
}

KV_EXPORT int32_t kv_cache_append(kv_cache *cache, uint32_t layer, const float *keys, const float *values,
                                  uint64_t tokens, kv_error *error) {
  int32_t code = kv_usable_layer(cache, layer, error);
  if (code != KV_OK) return code;
  if (tokens == 0) return kv_success(error);
  code = check_arguments(&cache->layers[layer], keys, values, tokens, error);
  if (code == KV_OK) {
    const kv_fpenv saved = kv_fpenv_enter();
    code = append(cache, layer, (input){keys, values, tokens}, error);
    kv_fpenv_leave(saved);
  }
  return kv_at_layer(code, layer, error);
}
