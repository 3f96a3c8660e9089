/* Token stores: the fp16 tokens of a layer that are not in pages. */
#include "cache.h"

#include <string.h>

#include "bits.h"

static uint64_t row(const kv_layer_spec *spec, const kv_store *store, int values, uint64_t head, uint64_t token) {
  return (((uint64_t)(values != 0) * spec->kv_heads + head) * store->capacity + token) * spec->head_dim;
}

uint64_t kv_store_bytes(const kv_layer_spec *spec, uint64_t tokens) {
  return kv_mul(tokens, (uint64_t)2 * spec->kv_heads * spec->head_dim * sizeof(uint16_t));
}

kv_rows kv_store_rows(const kv_layer_spec *spec, const kv_store *store, int values) {
  kv_rows rows = {NULL, spec->head_dim, store->capacity * spec->head_dim};
  if (store->data != NULL) rows.data = store->data + row(spec, store, values, 0, 0);
  return rows;
}

int32_t kv_store_take(kv_cache *cache, const kv_layer_spec *spec, uint64_t capacity, kv_store *store,
                      kv_error *error) {
  uint64_t bytes = kv_store_bytes(spec, capacity);
  uint16_t *data = kv_cache_take(cache, bytes);
  if (data == NULL)
    return kv_fail(error, KV_E_MEMORY, "the allocator refused %l bytes for %l fp16 tokens",
                     bytes, capacity);
  *store = (kv_store){data, capacity, 0};
  return KV_OK;
}

void kv_store_give_back(kv_cache *cache, const kv_layer_spec *spec, kv_store *store) {
  kv_cache_give_back(cache, store->data, kv_store_bytes(spec, store->capacity));
  *store = (kv_store){NULL, 0, 0};
}

void kv_store_copy(const kv_layer_spec *spec, kv_store *to, const kv_store *from) {
  size_t bytes = (size_t)from->count * spec->head_dim * sizeof(uint16_t);
  to->count = from->count;
  if (bytes == 0) return;
  for (int values = 0; values < 2; values++)
    for (uint32_t head = 0; head < spec->kv_heads; head++)
      memcpy(to->data + row(spec, to, values, head, 0), from->data + row(spec, from, values, head, 0), bytes);
}

static void append_stream(const kv_layer_spec *spec, kv_store *store, int values, const float *input,
                          uint64_t tokens) {
  for (uint64_t token = 0; token < tokens; token++) {
    for (uint32_t head = 0; head < spec->kv_heads; head++) {
      uint16_t *to = store->data + row(spec, store, values, head, store->count + token);
      for (uint32_t channel = 0; channel < spec->head_dim; channel++) to[channel] = kv_f16(*input++);
    }
  }
}

void kv_store_append(const kv_layer_spec *spec, kv_store *store, const float *keys, const float *values,
                     uint64_t tokens) {
  append_stream(spec, store, 0, keys, tokens);
  append_stream(spec, store, 1, values, tokens);
  store->count += tokens;
}

void kv_store_drop_oldest(const kv_layer_spec *spec, kv_store *store, uint64_t tokens) {
  size_t bytes = (size_t)(store->count - tokens) * spec->head_dim * sizeof(uint16_t);
  store->count -= tokens;
  if (bytes == 0) return;
  for (int values = 0; values < 2; values++)
    for (uint32_t head = 0; head < spec->kv_heads; head++)
      memmove(store->data + row(spec, store, values, head, 0), store->data + row(spec, store, values, head, tokens),
              bytes);
}
