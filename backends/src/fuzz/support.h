/* What the fuzz targets share: small specs of every codec family, plans made once, checksums that are right again.
 *
 * A target is a libFuzzer entry point over kvassay.h alone. Linked with replay.c it is a plain program that runs saved
 * inputs, against the library as it is shipped or under the sanitizers of any compiler. */
#ifndef KVASSAY_FUZZ_SUPPORT_H
#define KVASSAY_FUZZ_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvassay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      abort();                                                                      \
    }                                                                               \
  } while (0)

/* ---- input ---- */

typedef struct reader {
  const uint8_t *data;
  size_t size;
} reader;

/* The next `bytes` bytes as a number; zeros once the input is used up. */
static inline uint64_t take(reader *from, size_t bytes) {
  uint64_t value = 0;
  size_t have = from->size < bytes ? from->size : bytes;
  memcpy(&value, from->data, have);
  from->data += have;
  from->size -= have;
  return value;
}

/* `bytes` bytes in memory of their own and of that size, so that a sanitizer sees the first one read beyond. */
static inline void *take_block(reader *from, size_t bytes) {
  uint8_t *out = calloc(bytes != 0 ? bytes : 1, 1);
  size_t have = from->size < bytes ? from->size : bytes;
  CHECK(out != NULL);
  if (have != 0) memcpy(out, from->data, have);
  from->data += have;
  from->size -= have;
  return out;
}

static inline uint32_t checksum(const uint8_t *bytes, size_t size) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

/* Makes the checksum at `at` right, so that what lies behind it is reached. */
static inline void mend(uint8_t *bytes, size_t size, size_t at) {
  uint32_t crc;
  if (size < at + 4) return;
  memset(bytes + at, 0, 4);
  crc = checksum(bytes, size);
  memcpy(bytes + at, &crc, 4);
}

#define PAGE_CRC 44
#define DUMP_CRC 16

/* ---- specs ---- */

#define SPECS 8
#define HEADS 2
#define QUERY_HEADS 4
#define MAX_DIM 80
#define MAX_PAGE 32
#define ROW_MAX (HEADS * MAX_DIM)

static inline kv_layer_spec spec_number(uint32_t number) {
  static const uint8_t modes[SPECS][2] = {
      {KV_MODE_TURBO + 7, KV_MODE_TURBO + 6}, {KV_MODE_TURBO_QJL + 6, KV_MODE_TURBO + 8},
      {KV_MODE_KIVI + 4, KV_MODE_KIVI + 4},   {KV_MODE_FP16, KV_MODE_FP16},
      {KV_MODE_KIVI + 6, KV_MODE_TURBO + 5},  {KV_MODE_TURBO + 5, KV_MODE_KIVI + 8},
      {KV_MODE_TURBO + 8, KV_MODE_FP16},      {KV_MODE_TURBO_QJL + 5, KV_MODE_TURBO + 4},
  };
  static const uint16_t dims[SPECS] = {16, 32, 48, 16, 80, 16, 32, 80};
  kv_layer_spec spec = {
      .kv_heads = HEADS,
      .query_heads = QUERY_HEADS,
      .head_dim = dims[number % SPECS],
      .page_tokens = number % 3 == 0 ? 16 : 32,
      .key_mode = modes[number % SPECS][0],
      .value_mode = modes[number % SPECS][1],
      .scale_kind = (uint8_t)(number % 3),
      .rounds = (uint8_t)(1 + number % 2),
      .window = number % 4 * 3,
      .sinks = number % 3,
      .span = number % 5 == 4 ? 40 : 0,
      .softmax_scale = 0.25f,
      .seed = number,
  };
  if (spec.key_mode != KV_MODE_FP16) spec.key_centre = (uint8_t)(number % 3);
  if (spec.value_mode != KV_MODE_FP16) spec.value_centre = (uint8_t)(number % 2);
  return spec;
}

static inline void *aligned(uint64_t bytes) {
  void *out = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
  CHECK(out != NULL);
  return out;
}

/* ---- a plan and its scratch, made once for each spec and kept ---- */

typedef struct kernel {
  kv_layer_spec spec;
  void *plan;
  void *scratch;
  uint64_t scratch_bytes;
  uint64_t page_bytes;
} kernel;

/* variant NULL: the best that runs. */
static inline kernel make_kernel(const kv_layer_spec *spec, const char *variant) {
  kernel out = {.spec = *spec};
  kv_error error;
  uint64_t bytes = 0;
  CHECK(kv_plan_bytes(spec, &bytes, &error) == KV_OK);
  out.plan = aligned(bytes);
  CHECK(kv_plan_init(spec, variant, out.plan, bytes, &error) == KV_OK);
  out.scratch_bytes = kv_plan_scratch_bytes(out.plan, 1);
  out.scratch = aligned(out.scratch_bytes);
  kv_scratch_init(out.scratch, out.scratch_bytes);
  out.page_bytes = kv_plan_page_bytes(out.plan);
  return out;
}

static inline void free_kernel(kernel *used) {
  free(used->plan);
  free(used->scratch);
}

static inline const kernel *kernel_number(uint32_t number, const char *variant) {
  static kernel made[2][SPECS];
  kernel *at = &made[variant != NULL][number % SPECS];
  if (at->plan == NULL) {
    kv_layer_spec spec = spec_number(number % SPECS);
    *at = make_kernel(&spec, variant);
  }
  return at;
}

static inline int finite(const float *numbers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &numbers[i], 4);
    if ((bits & 0x7f800000u) == 0x7f800000u) return 0;
  }
  return 1;
}

/* Bit for bit, but for the sign and payload of NaN. */
static inline int equal(const float *a, const float *b, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (memcmp(&a[i], &b[i], 4) != 0 && !(a[i] != a[i] && b[i] != b[i])) return 0;
  return 1;
}

#endif
