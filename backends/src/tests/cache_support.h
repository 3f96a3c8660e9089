/* What the cache tests share: a counting allocator that can be told to fail, a deterministic stream of tokens,
 * specs, and checks that abort with the line. Only kvassay.h is used, so they also link against a built library. */
#ifndef KVASSAY_TESTS_CACHE_SUPPORT_H
#define KVASSAY_TESTS_CACHE_SUPPORT_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvassay.h"

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);       \
      abort();                                                                            \
    }                                                                                     \
  } while (0)

static inline void check_ok(int32_t code, const kv_error *error, int line) {
  if (code == KV_OK) return;
  fprintf(stderr, "line %d: code %d: %s\n", line, (int)code, error->message);
  abort();
}

/* Runs a call whose last argument is `&error`, an error in scope, and insists on success. */
#define OK(call) check_ok((call), &error, __LINE__)

/* ---- allocator ---- */

typedef struct counter {
  atomic_ullong bytes;  /* held now */
  atomic_ullong blocks;
  atomic_ullong calls;
  unsigned long long fail_at; /* number of the call that fails, counted from 1; 0: none */
} counter;

static inline void *counted_allocate(void *context, uint64_t bytes) {
  counter *count = context;
  void *pointer;
  if (atomic_fetch_add(&count->calls, 1) + 1 == count->fail_at) return NULL;
  pointer = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
  CHECK(pointer != NULL);
  memset(pointer, 0xA5, (size_t)bytes); /* what was not written must not be relied on */
  atomic_fetch_add(&count->bytes, bytes);
  atomic_fetch_add(&count->blocks, 1);
  return pointer;
}

static inline void counted_release(void *context, void *pointer, uint64_t bytes) {
  counter *count = context;
  memset(pointer, 0x5A, (size_t)bytes);
  atomic_fetch_sub(&count->bytes, bytes);
  atomic_fetch_sub(&count->blocks, 1);
  free(pointer);
}

static inline kv_allocator counting(counter *count) {
  return (kv_allocator){count, counted_allocate, counted_release};
}

/* ---- specs and tokens ---- */

static inline kv_layer_spec turbo_spec(uint32_t window, uint32_t sinks, uint32_t span) {
  return (kv_layer_spec){
      .kv_heads = 2,
      .query_heads = 4,
      .head_dim = 64,
      .page_tokens = 16,
      .key_mode = KV_MODE_TURBO + 7,
      .value_mode = KV_MODE_TURBO + 6,
      .key_centre = KV_CENTRE_FROZEN,
      .value_centre = KV_CENTRE_FROZEN,
      .scale_kind = KV_SCALE_U8,
      .rounds = 2,
      .window = window,
      .sinks = sinks,
      .span = span,
      .softmax_scale = 0.125f,
      .seed = 7,
  };
}

#define MAX_LAYERS 2
#define MAX_TOKENS 256
#define ROW (2 * 64)

typedef struct tokens {
  float keys[MAX_TOKENS * ROW];
  float values[MAX_TOKENS * ROW];
} tokens;

static inline void fill_tokens(tokens *out, uint32_t seed) {
  uint32_t state = seed * 2654435761u + 1;
  for (int i = 0; i < MAX_TOKENS * ROW; i++) {
    state = state * 1664525u + 1013904223u;
    out->keys[i] = (float)((int32_t)(state >> 8) - (1 << 23)) / (float)(1 << 22);
    state = state * 1664525u + 1013904223u;
    out->values[i] = (float)((int32_t)(state >> 8) - (1 << 23)) / (float)(1 << 22);
  }
}

static inline void append(kv_cache *cache, uint32_t layer, const tokens *from, uint32_t first, uint32_t count) {
  kv_error error = {0};
  OK(kv_cache_append(cache, layer, from->keys + first * ROW, from->values + first * ROW, count, &error));
}

static inline void attend(kv_cache *cache, uint32_t layer, const tokens *from, uint32_t n, float *out) {
  kv_error error = {0};
  OK(kv_cache_attend(cache, layer, from->values, n, out, &error));
}

static inline kv_cache_config configure(const kv_layer_spec *specs, uint32_t layers, const kv_allocator *allocator) {
  static const char identity[] = "{\"test\":1}";
  return (kv_cache_config){
      .layers = layers,
      .threads = 1,
      .specs = specs,
      .identity = (const uint8_t *)identity,
      .identity_bytes = sizeof identity - 1,
      .model = 1,
      .tokenizer = 2,
      .runtime = 3,
      .allocator = allocator,
  };
}

/* ---- state ---- */

typedef struct bytes {
  uint8_t *data;
  uint64_t size;
} bytes;

static inline bytes dump(const kv_cache *cache) {
  kv_error error = {0};
  bytes out = {0};
  OK(kv_cache_dump_bytes(cache, &out.size, &error));
  out.data = malloc((size_t)out.size + 64);
  memset(out.data, 0xA5, (size_t)out.size + 64);
  OK(kv_cache_dump(cache, out.data, out.size, &error));
  for (int i = 0; i < 64; i++) CHECK(out.data[out.size + i] == 0xA5);
  return out;
}

static inline int same(bytes a, bytes b) {
  return a.size == b.size && memcmp(a.data, b.data, (size_t)a.size) == 0;
}

/* Whether the cache's state is these bytes. */
static inline int holds(const kv_cache *cache, bytes expected) {
  bytes now = dump(cache);
  int equal = same(now, expected);
  free(now.data);
  return equal;
}

static inline kv_stats stats_of(const kv_cache *cache) {
  kv_stats stats;
  kv_cache_get_stats(cache, &stats);
  CHECK(stats.codes + stats.scales + stats.means + stats.headers + stats.residual + stats.sinks + stats.scratch +
            stats.staging + stats.reserved ==
        stats.allocated);
  CHECK(stats.peak_allocated >= stats.allocated);
  return stats;
}

#endif
