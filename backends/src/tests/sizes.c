/* Sizes and positions far beyond what a test can allocate: nothing wraps, what does not fit stays too large. */
#include "core/cache/cache.h"

#include "cache_support.h"
#include "core/plan/layout.h"

#define HUGE_LENGTH ((uint64_t)KV_MAX_LENGTH)

static kv_layer_spec largest_spec(void) {
  kv_layer_spec spec = turbo_spec(4096, 1024, 0);
  spec.kv_heads = 4096;
  spec.query_heads = 4096;
  spec.head_dim = 576;
  spec.page_tokens = 1024;
  spec.key_mode = spec.value_mode = KV_MODE_FP16;
  spec.key_centre = spec.value_centre = KV_CENTRE_NONE;
  return spec;
}

static void saturation(void) {
  CHECK(kv_add(UINT64_MAX, 1) == UINT64_MAX && kv_add(UINT64_MAX - 1, 1) == UINT64_MAX && kv_add(2, 3) == 5);
  CHECK(kv_mul(1ull << 32, 1ull << 32) == UINT64_MAX && kv_mul(1ull << 32, 1ull << 31) == 1ull << 63);
  CHECK(kv_mul(0, UINT64_MAX) == 0 && kv_mul(UINT64_MAX, 0) == 0);
  CHECK(kv_align_up(UINT64_MAX - 3, 64) == UINT64_MAX && kv_align_up(65, 64) == 128);
  CHECK(kv_take(&kv_default_allocator, UINT64_MAX) == NULL);
  CHECK(kv_index_bytes(HUGE_LENGTH) == HUGE_LENGTH * sizeof(void *));
  CHECK(kv_index_bytes(UINT64_MAX) == UINT64_MAX);
}

/* One page of many large heads is larger than 4 GiB. */
static void page(void) {
  const kv_layer_spec spec = largest_spec();
  const uint64_t stream = 4096ull * 1024 * 576 * 2;
  kv_layout layout;
  kv_layout_of(&spec, &layout);
  CHECK(layout.bytes == 64 + 2 * stream && layout.offset[KV_VALUE_CODES] == 64 + stream);
  const uint8_t *base = (const uint8_t *)64;
  CHECK((uint64_t)(kv_stream(&layout, base, KV_VALUE_CODES, 4095) - base) == 64 + stream + stream / 4096 * 4095);
}

static void store(void) {
  const kv_layer_spec spec = largest_spec();
  const kv_store at = {(uint16_t *)64, HUGE_LENGTH, HUGE_LENGTH};
  CHECK(kv_store_bytes(&spec, 1 << 20) == (1ull << 20) * 2 * 4096 * 576 * 2);
  CHECK(kv_store_bytes(&spec, UINT64_MAX / 2) == UINT64_MAX);
  const kv_rows values = kv_store_rows(&spec, &at, 1);
  CHECK(values.head_stride == HUGE_LENGTH * 576);
  CHECK((uint64_t)(values.data - at.data) == 4096 * HUGE_LENGTH * 576);
}

static void rules(void) {
  kv_layer_spec spec = turbo_spec(128, 4, 0);
  CHECK(kv_pages_sealed(&spec, HUGE_LENGTH) == (HUGE_LENGTH - 132) / 16);
  CHECK(kv_pages_sealed(&spec, 1ull << 40) == ((1ull << 40) - 132) / 16);
  CHECK(kv_first_live(&spec, HUGE_LENGTH) == 0);
  spec.span = 4096;
  CHECK(kv_first_live(&spec, HUGE_LENGTH) == (HUGE_LENGTH - 4100) / 16);
  spec.span = UINT32_MAX;
  CHECK(kv_first_live(&spec, HUGE_LENGTH) == 0);
  CHECK(kv_first_live(&spec, 1ull << 33) == ((1ull << 33) - 4 - UINT32_MAX) / 16);
}

/* The position of a token has 32 bits in a page: an append beyond is refused before its input is read. */
static void appends(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_cache_config config = configure(&spec, 1, NULL);
  kv_cache *cache = NULL;
  kv_error error = {0};
  const float x = 0;
  OK(kv_cache_create(&config, &cache, &error));
  CHECK(kv_cache_append(cache, 0, &x, &x, HUGE_LENGTH + 1, &error) == KV_E_ARGUMENT);
  CHECK(strstr(error.message, "2^32 - 1") != NULL);
  CHECK(kv_cache_append(cache, 0, &x, &x, UINT64_MAX, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_length(cache, 0) == 0);
  kv_cache_destroy(cache);
}

/* Working memory grows with threads, linearly, and not with the length. */
static void scratch(void) {
  kv_layer_spec spec = turbo_spec(128, 4, 0);
  uint64_t bytes, needed[3];
  kv_error error = {0};
  OK(kv_plan_bytes(&spec, &bytes, &error));
  void *plan = aligned_alloc(64, (bytes + 63) / 64 * 64);
  CHECK(plan != NULL);
  OK(kv_plan_init(&spec, "scalar", plan, bytes, &error));
  for (uint32_t i = 0; i < 3; i++) needed[i] = kv_plan_scratch_bytes(plan, 1u << (16 + i));
  CHECK(needed[1] - needed[0] == (needed[2] - needed[1]) / 2 && needed[2] > UINT32_MAX);
  free(plan);
}

int main(void) {
  saturation();
  page();
  store();
  rules();
  appends();
  scratch();
  return 0;
}
