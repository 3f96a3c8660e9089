/* What the tests of the variants share: each one that runs here against scalar, on buffers that end where the next
 * page of memory may not be touched. */
#ifndef KVASSAY_TESTS_VARIANTS_SUPPORT_H
#define KVASSAY_TESTS_VARIANTS_SUPPORT_H

#include "kernels_support.h"

#if !defined(_WIN32)
#include <sys/mman.h>
#include <unistd.h>
#endif

#define GUARDED_BUFFERS 8
#define GUARDED_BYTES (4u << 20)

static uint8_t *guarded_end[GUARDED_BUFFERS];

/* Buffer `which`, `bytes` long, `gap` bytes before memory that may not be touched. */
static inline void *guarded(uint32_t which, uint64_t bytes, uint32_t gap) {
  CHECK(bytes + gap <= GUARDED_BYTES);
  if (!guarded_end[which]) {
#if defined(_WIN32)
    guarded_end[which] = (uint8_t *)malloc(GUARDED_BYTES) + GUARDED_BYTES;
#else
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *memory = mmap(NULL, GUARDED_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + GUARDED_BYTES, page, PROT_NONE) == 0);
    guarded_end[which] = memory + GUARDED_BYTES;
#endif
  }
  memset(guarded_end[which] - gap, 0xA5, gap);
  return guarded_end[which] - gap - bytes;
}

static inline void *guarded_copy(uint32_t which, const void *from, uint64_t bytes, uint32_t gap) {
  return memcpy(guarded(which, bytes, gap), from, bytes);
}

/* What lies in the gap was not written. */
static inline void check_gap(uint32_t which, uint32_t gap) {
  for (uint32_t i = 1; i <= gap; i++) CHECK(guarded_end[which][-(int)i] == 0xA5);
}

static inline uint32_t pick(uint64_t *random, uint32_t below) { return (uint32_t)((draw(random) >> 32) * below >> 32); }

#endif
