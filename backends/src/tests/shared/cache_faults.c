/* An encode that fails. This program is linked against the shared library and its kv_page_encode takes the place of
 * the library's own (ELF interposition), so that a call of its choice can fail. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../cache_support.h"

typedef int32_t encode_function(const void *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                                const uint16_t *key_mean, const uint16_t *value_mean, void *page, uint64_t page_bytes,
                                void *scratch, uint64_t scratch_bytes, kv_error *error);

static int CALLS, FAIL_AT;

KV_EXPORT encode_function kv_page_encode;
int32_t kv_page_encode(const void *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                       const uint16_t *key_mean, const uint16_t *value_mean, void *page, uint64_t page_bytes,
                       void *scratch, uint64_t scratch_bytes, kv_error *error) {
  encode_function *own;
  void *symbol = dlsym(RTLD_NEXT, "kv_page_encode");
  CHECK(symbol != NULL);
  if (++CALLS == FAIL_AT) return KV_E_SPEC;
  memcpy(&own, &symbol, sizeof own);
  return own(plan, id, keys, values, key_mean, value_mean, page, page_bytes, scratch, scratch_bytes, error);
}

static tokens DATA;

int main(void) {
  counter count = {0};
  kv_allocator allocator = counting(&count);
  kv_layer_spec spec = turbo_spec(8, 4, 40);
  kv_cache_config config = configure(&spec, 1, &allocator);
  kv_error error = {0};
  kv_cache *cache = NULL;
  bytes empty, before, after;
  fill_tokens(&DATA, 1);
  OK(kv_cache_create(&config, &cache, &error));
  empty = dump(cache);

  for (uint32_t first = 0; first <= 100; first += 100) {
    uint64_t held;
    OK(kv_cache_reset(cache, &error));
    if (first > 0) append(cache, 0, &DATA, 0, first);
    before = dump(cache);
    held = stats_of(cache).pages_encoded;

    /* The first page of an append: nothing has changed, and the same append works afterwards. */
    FAIL_AT = CALLS + 1;
    CHECK(kv_cache_append(cache, 0, DATA.keys + first * ROW, DATA.values + first * ROW, 80, &error) == KV_E_SPEC);
    CHECK(CALLS == FAIL_AT && holds(cache, before) && stats_of(cache).pages_encoded == held);
    CHECK(stats_of(cache).allocated == atomic_load(&count.bytes));
    append(cache, 0, &DATA, first, 80);
    after = dump(cache);
    OK(kv_cache_reset(cache, &error));
    append(cache, 0, &DATA, 0, first + 80);
    CHECK(holds(cache, after));
    free(before.data);
    free(after.data);
  }

  /* A later page: the tokens it would have taken are gone. Every call says so until a reset. */
  FAIL_AT = CALLS + 2;
  CHECK(kv_cache_append(cache, 0, DATA.keys, DATA.values, 60, &error) == KV_E_SPEC && CALLS == FAIL_AT);
  CHECK(kv_cache_append(cache, 0, DATA.keys, DATA.values, 1, &error) == KV_E_STATE);
  CHECK(kv_cache_truncate(cache, 0, &error) == KV_E_STATE);
  CHECK(strstr(error.message, "reset") != NULL);
  CHECK(stats_of(cache).allocated == atomic_load(&count.bytes));
  OK(kv_cache_reset(cache, &error));
  CHECK(holds(cache, empty));
  append(cache, 0, &DATA, 0, 60);
  kv_cache_destroy(cache);
  CHECK(atomic_load(&count.blocks) == 0);
  free(empty.data);
  return 0;
}
