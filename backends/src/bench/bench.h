/* What the benches share: a clock of this thread alone, medians, numbers to draw, room. */
#ifndef KVASSAY_BENCH_H
#define KVASSAY_BENCH_H

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/bits.h"
#include "core/dispatch/variants.h"

static inline double now(void) { /* ns of CPU time */
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(double *times, uint32_t n) {
  qsort(times, n, sizeof *times, ascending);
  return times[n / 2];
}

static uint64_t seed = 1;
static inline uint32_t draw(void) { /* 31 bits */
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 33);
}
static inline float draw_float(void) { return (float)draw() * 0x1p-30f - 1.0f; }
/* Of a rotated query: bell-shaped, the largest of a hundred near 127. */
static inline int8_t draw_query(void) { return (int8_t)(draw() % 85 + draw() % 85 + draw() % 85 - 126); }

static inline void *room(uint64_t bytes) {
  void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
  memset(p, 0, bytes);
  return p;
}

/* The cache of the preset turbo. */
static inline kv_layer_spec turbo_spec(uint16_t kv_heads, uint16_t query_heads, uint16_t d) {
  return (kv_layer_spec){.kv_heads = kv_heads, .query_heads = query_heads, .head_dim = d, .page_tokens = 64,
                         .key_mode = 0x17, .value_mode = 0x16, .key_centre = KV_CENTRE_PAGE,
                         .value_centre = KV_CENTRE_FROZEN, .rounds = 2, .window = 128, .sinks = 4,
                         .softmax_scale = 1 / __builtin_sqrtf(d), .seed = 1};
}

#endif
