/* What the kernel tests share: checks that are counted and abort with the line, a deterministic stream of
 * numbers, the implementation they are given, plans and scratch in blocks of exactly their size (an address sanitizer sees any step beyond). */
#ifndef KVASSAY_TESTS_KERNELS_SUPPORT_H
#define KVASSAY_TESTS_KERNELS_SUPPORT_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* posix_memalign: include this header first */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bits.h"
#include "core/plan/plan.h"
#include "kvassay.h"

static unsigned long long checks_done;

#define CHECK(condition)                                                            \
  do {                                                                              \
    checks_done++;                                                                  \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      abort();                                                                      \
    }                                                                               \
  } while (0)

/* A test that checked nothing must not pass. */
static inline int closing(const char *name) {
  printf("%s: %llu checks\n", name, checks_done);
  return checks_done == 0;
}

#include "forced.h"

static inline uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

/* Uniform in -1 .. 1. */
static inline float draw_float(uint64_t *state) { return (float)((int32_t)(draw(state) >> 40) - (1 << 23)) * 0x1p-23f; }

static inline void *block(uint64_t bytes) {
  void *pointer = NULL;
  CHECK(posix_memalign(&pointer, 64, bytes) == 0);
  return pointer;
}

static inline kv_layer_spec spec_of(uint8_t key_mode, uint8_t value_mode) {
  kv_layer_spec spec = {.kv_heads = 2,
                        .query_heads = 6,
                        .head_dim = 80,
                        .page_tokens = 16,
                        .key_mode = key_mode,
                        .value_mode = value_mode,
                        .rounds = 2,
                        .window = 5,
                        .sinks = 3,
                        .softmax_scale = 0.11f,
                        .seed = 7};
  return spec;
}

static inline void *plan_of(const kv_layer_spec *spec) {
  kv_error error;
  uint64_t bytes = 0;
  CHECK(kv_plan_bytes(spec, &bytes, &error) == KV_OK);
  void *plan = block(bytes);
  CHECK(kv_plan_init(spec, forced.name, plan, bytes, &error) == KV_OK);
  CHECK(1u << kv_plan_variant(plan) == forced.bit);
  return plan;
}

static inline void *scratch_of(const void *plan, uint32_t threads, uint64_t *bytes) {
  *bytes = kv_plan_scratch_bytes(plan, threads);
  void *scratch = block(*bytes);
  memset(scratch, 0xA5, *bytes);
  kv_scratch_init(scratch, *bytes);
  return scratch;
}

static inline uint16_t *draw_rows(uint64_t *state, uint64_t count) {
  uint16_t *x = block(count * sizeof *x);
  for (uint64_t i = 0; i < count; i++) x[i] = kv_f16(draw_float(state));
  return x;
}

#endif
