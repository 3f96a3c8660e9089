/* A library that is the shipped one but for one fault. Which one, its own file name says: fault-07.so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvassay.h"

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static kv_layer_spec spec; /* of the cache made last */
static uint32_t layers;

static int fault(void) {
  static int number;
  Dl_info where;
  if (!number && dladdr((void *)fault, &where)) number = atoi(strrchr(where.dli_fname, '-') + 1);
  return number;
}

/* Pure kernels instead of a whole cache. */
static int kernels(void) { return fault() >= 31 && fault() <= 98; }

static void spoil(const void *at) { *(uint8_t *)at ^= 1; }

static uint64_t row(void) { return (uint64_t)spec.kv_heads * spec.head_dim; }

static float *copied(const float *from, uint64_t count) {
  float *to = malloc(count * sizeof *to);
  return memcpy(to, from, count * sizeof *to);
}

const kv_info *kv_get_info(void) {
  static kv_info info;
  info = *NEXT(kv_get_info)();
  info.flags &= KV_FLAG_EXACT | KV_FLAG_CACHE;
  info.variant_count = 1;
  if (kernels()) info.flags = KV_FLAG_EXACT;
  if (fault() == 1) info.abi_version = 7;
  if (fault() == 2) info.page_version = 1;
  if (fault() == 3) info.flags = KV_FLAG_CACHE;
  return &info;
}

int32_t kv_supports(const kv_layer_spec *asked, kv_error *error) {
  return fault() == 4 ? KV_OK : NEXT(kv_supports)(asked, error);
}

int32_t kv_cache_create(const kv_cache_config *config, kv_cache **cache, kv_error *error) {
  spec = config->specs[0], layers = config->layers;
  if (fault() == 4 && spec.key_mode == KV_MODE_TURBO + 7) {
    strcpy(error->message, "no memory for this codec after all");
    return KV_E_MEMORY;
  }
  const kv_allocator *own = config->allocator;
  uint8_t *state = fault() == 30 && own ? own->allocate(own->context, 40) : NULL;
  if (state) spoil(state + 40), own->release(own->context, state, 40);
  return NEXT(kv_cache_create)(config, cache, error);
}

void kv_cache_destroy(kv_cache *cache) {
  if (fault() != 5) NEXT(kv_cache_destroy)(cache);
}

static int32_t append_changed(kv_cache *cache, uint32_t layer, const float *keys, const float *values,
                              uint64_t tokens, kv_error *error) {
  uint64_t count = tokens * row();
  float *k = copied(keys, count), *v = copied(values, count);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t channel = i % spec.head_dim;
    if (fault() == 6 && channel == spec.head_dim - 1u) k[i] = 0;
    if (fault() == 7) k[i] = values[i], v[i] = keys[i];
    if (fault() == 8) k[i] = keys[i / row() * row() + (i + spec.head_dim) % row()];
    if (fault() == 9) v[i] = roundf(values[i]);
    if (fault() == 10) v[i] = values[i % row() + (tokens - 1 - i / row()) * row()];
  }
  int32_t code = NEXT(kv_cache_append)(cache, layer, k, v, tokens, error);
  free(k), free(v);
  return code;
}

int32_t kv_cache_append(kv_cache *cache, uint32_t layer, const float *keys, const float *values, uint64_t tokens,
                        kv_error *error) {
  __typeof__(&kv_cache_append) append = NEXT(kv_cache_append);
  if (fault() >= 6 && fault() <= 10) return append_changed(cache, layer, keys, values, tokens, error);
  if (fault() == 11 && tokens > 1) return append(cache, layer, keys, values, tokens - 1, error);
  if (fault() == 12 && layers > 1) return append(cache, 0, keys, values, tokens, error);
  return append(cache, layer, keys, values, tokens, error);
}

int32_t kv_cache_attend(kv_cache *cache, uint32_t layer, const float *q, uint32_t n, float *out, kv_error *error) {
  int32_t code = NEXT(kv_cache_attend)(cache, layer, q, n, out, error);
  uint64_t width = (uint64_t)spec.query_heads * spec.head_dim;
  if (fault() == 13) out[0] = nextafterf(out[0], INFINITY);
  if (fault() == 14 && n > 1) memcpy(out, out + width, width * sizeof *out);
  if (fault() == 15 && spec.query_heads > 1) memcpy(out + spec.head_dim, out, spec.head_dim * sizeof *out);
  if (fault() == 16)
    for (uint64_t c = spec.head_dim / 2; c < spec.head_dim; c++) out[c] = 0;
  if (fault() == 17 && n > 2) abort();
  if (fault() == 18 && n > 2) pause();
  if (fault() == 19) abort();
  if (fault() == 27) spoil(out + n * width);
  if (fault() == 28 && n > 2) spoil((uint8_t *)out - 1);
  return code;
}

int32_t kv_cache_scores(kv_cache *cache, uint32_t layer, const float *q, float *out, uint64_t out_floats,
                        kv_error *error) {
  int32_t code = NEXT(kv_cache_scores)(cache, layer, q, out, out_floats, error);
  if (fault() == 29) (void)*(const volatile float *)(q + (uint64_t)spec.query_heads * spec.head_dim);
  for (uint64_t i = 0; fault() == 20 && i < out_floats; i++) out[i] /= spec.softmax_scale;
  return code;
}

int32_t kv_cache_truncate(kv_cache *cache, uint64_t length, kv_error *error) {
  return fault() == 21 ? KV_OK : NEXT(kv_cache_truncate)(cache, length, error);
}

int32_t kv_cache_reset(kv_cache *cache, kv_error *error) {
  return fault() == 22 ? KV_OK : NEXT(kv_cache_reset)(cache, error);
}

int32_t kv_cache_fork(kv_cache *cache, kv_cache **copy, kv_error *error) {
  int32_t code = NEXT(kv_cache_fork)(cache, copy, error);
  return fault() == 23 && code == KV_OK ? NEXT(kv_cache_reset)(*copy, error) : code;
}

int32_t kv_cache_restore(const kv_cache_config *config, const void *buffer, uint64_t bytes, kv_cache **cache,
                         kv_error *error) {
  kv_cache_config own = *config;
  spec = config->specs[0], layers = config->layers;
  if (fault() == 24 && bytes > 32) { /* whatever text the dump has is the right one */
    memcpy(&own.identity_bytes, (const char *)buffer + 24, 4);
    own.identity = (const uint8_t *)buffer + 32;
  }
  return NEXT(kv_cache_restore)(&own, buffer, bytes, cache, error);
}

void kv_cache_get_stats(const kv_cache *cache, kv_stats *stats) {
  NEXT(kv_cache_get_stats)(cache, stats);
  if (fault() == 25) stats->codes /= 2, stats->residual /= 2, stats->reserved = 0;
  if (fault() == 26) stats->ran = 0;
}

int32_t kv_plan_init(const kv_layer_spec *asked, const char *variant, void *plan, uint64_t bytes, kv_error *error) {
  int32_t code = NEXT(kv_plan_init)(asked, variant, plan, bytes, error);
  if (kernels()) spec = *asked;
  if (fault() == 34) spoil((uint8_t *)plan + bytes);
  return code;
}

int32_t kv_page_encode(const void *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                       const uint16_t *key_mean, const uint16_t *value_mean, void *page, uint64_t page_bytes,
                       void *scratch, uint64_t scratch_bytes, kv_error *error) {
  int32_t code = NEXT(kv_page_encode)(plan, id, keys, values, key_mean, value_mean, page, page_bytes, scratch,
                                      scratch_bytes, error);
  if (fault() == 32) spoil((uint8_t *)page + page_bytes);
  if (fault() == 35) spoil(keys->data);
  return code;
}

int32_t kv_attend(const void *plan, const kv_state *state, const float *q, uint32_t n, float *out, void *scratch,
                  uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error) {
  int32_t code = NEXT(kv_attend)(plan, state, q, n, out, scratch, scratch_bytes, parallel, error);
  if (fault() == 31) spoil(out + (uint64_t)n * spec.query_heads * spec.head_dim);
  if (fault() == 33) spoil((uint8_t *)scratch + scratch_bytes + 2);
  if (fault() == 36) spoil(&state->length);
  return code;
}
