/* Token stores: the fp16 tokens of a layer that are not in pages. */
#include "cache.h"

#include <string.h>

#include "core/base/bits.h"

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

static int write_stream(const kv_kernels *kernels, const kv_layer_spec *spec, const kv_store *store, int values,
                        const float *input, uint64_t tokens, uint32_t *ran) {
  const uint64_t width = (uint64_t)spec->kv_heads * spec->head_dim, stride = store->capacity * spec->head_dim;
  uint16_t *to = store->data + row(spec, store, values, 0, store->count);
  int refused = 0;
  for (uint64_t token = 0; token < tokens; token++, input += width, to += spec->head_dim)
    refused |= kernels->narrow(input, spec->kv_heads, spec->head_dim, to, stride, ran);
  return refused;
}

int kv_store_write(const kv_plan *plan, const kv_store *store, const float *keys, const float *values, uint64_t tokens,
                   uint32_t *ran) {
  int refused = write_stream(plan->kernels, &plan->spec, store, 0, keys, tokens, ran);
  return refused | write_stream(plan->kernels, &plan->spec, store, 1, values, tokens, ran);
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

void kv_store_put_before(const kv_layer_spec *spec, kv_store *store, const kv_store *from, uint64_t first,
                         uint64_t count) {
  size_t own = (size_t)store->count * spec->head_dim * sizeof(uint16_t);
  size_t more = (size_t)count * spec->head_dim * sizeof(uint16_t);
  for (int values = 0; values < 2; values++)
    for (uint32_t head = 0; head < spec->kv_heads; head++) {
      uint16_t *start = store->data + row(spec, store, values, head, 0);
      if (own != 0) memmove(start + count * spec->head_dim, start, own);
      if (more != 0) memcpy(start, from->data + row(spec, from, values, head, first), more);
    }
  store->count += count;
}
