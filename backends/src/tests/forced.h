/* The implementation that a test of kernels is given: in turn each variant that runs here. One that the test then never
 * ran is a failure, and so is one that is required and does not run. */
#ifndef KVASSAY_TESTS_FORCED_H
#define KVASSAY_TESTS_FORCED_H

#include "core/base/fpenv.h"
#include "core/dispatch/variants.h"

static struct {
  const char *name;
  const kv_kernels *kernels;
  uint32_t bit; /* of *ran */
  unsigned long long runs;
} forced __attribute__((unused));

/* Whether *ran says that this implementation ran and no other. */
static inline int is_forced(uint32_t ran) {
  forced.runs += ran == forced.bit;
  return ran == forced.bit;
}

/* Whether KVASSAY_REQUIRE_VARIANTS, names separated by commas, has this one. */
static inline int required(const char *name) {
  const char *list = getenv("KVASSAY_REQUIRE_VARIANTS");
  const size_t length = strlen(name);
  for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (strcspn(at, ",") == length && memcmp(at, name, length) == 0) return 1;
  return 0;
}

static inline void test_forced(const char *name, const kv_kernels *kernels, uint32_t bit, void (*test)(void)) {
  forced.name = name, forced.kernels = kernels, forced.bit = bit, forced.runs = 0;
  const kv_fpenv saved = kv_fpenv_enter();
  test();
  kv_fpenv_leave(saved);
  CHECK(forced.runs > 0);
}

/* From variant `first` on, slowest first; 77, which is no pass, where none of them runs. */
static inline int for_each_variant(const char *program, uint32_t first, void (*test)(void)) {
  uint32_t tested = 0, refused = 0;
  for (uint32_t v = first; v < KV_VARIANTS; v++) {
    const char *missing = kv_variants[v].missing();
    if (missing) {
      printf("%s: variant %s not run: this CPU lacks %s\n", program, kv_variants[v].name, missing);
      refused += (uint32_t)required(kv_variants[v].name);
      continue;
    }
    test_forced(kv_variants[v].name, kv_variants[v].kernels, 1u << v, test);
    printf("%s: variant %s ran\n", program, kv_variants[v].name);
    tested++;
  }
  if (!tested) printf("%s: not run: scalar is the only variant that runs here\n", program);
  return refused ? 1 : tested ? closing(program) : 77;
}

#endif
