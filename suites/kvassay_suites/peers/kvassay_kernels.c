/* Kernels alone, which the library does not export: compiled together with its sources. 4-bit keys, two rounds. */
#include <stdlib.h>
#include <string.h>

#include "core/dispatch/variants.h"

enum { ROUNDS = 2, MODE = 0x18 };

static _Alignas(64) uint8_t tables[1 << 14];
static const kv_kernels *kernels;
static uint32_t dim, expected, ran;
static kv_codec codec;

int32_t kernels_begin(const char *variant, uint32_t d) {
  kv_error error;
  uint32_t index = 0;
  if (kv_transform_bytes(d) > sizeof tables || !kv_codec_of(MODE, d, 1, &codec)) return KV_E_SPEC;
  kv_transform_make(0, KV_STREAM_KEYS, d, ROUNDS, tables);
  int32_t code = kv_variant_find(variant, &index, &error);
  if (code) return code;
  kernels = kv_variants[index].kernels, dim = d, expected = 1u << index, ran = 0;
  return KV_OK;
}

/* Whether nothing but the variant that was asked for ran. */
int32_t kernels_proven(void) { return ran == expected; }

/* y [rows][d] = T x, with its gain. Kernels work in place, so the copy is part of the time. */
void kernels_transform(const float *x, uint32_t rows, float *y) {
  const kv_transform t = kv_transform_view(tables, dim, ROUNDS);
  memcpy(y, x, 4ull * rows * dim);
  kernels->forward(&t, y, rows, &ran);
}

/* keys [tokens][d], tokens a multiple of 16, to tiles and scales; they are overwritten. */
int32_t kernels_encode(float *keys, uint32_t tokens, uint8_t *tiles, float *scales) {
  const kv_transform t = kv_transform_view(tables, dim, ROUNDS);
  uint8_t *codes = malloc((uint64_t)tokens * dim);
  if (!codes) return KV_E_MEMORY;
  kernels->forward(&t, keys, tokens, &ran);
  kernels->quantize(&codec, dim, 1, keys, tokens, codes, scales, &ran);
  kernels->pack_keys(&codec, dim, codes, tokens, tiles, &ran);
  free(codes);
  return KV_OK;
}

/* q [d] transformed, to integers; their scale. */
float kernels_query(const float *z, int8_t *q) { return kernels->query8(z, dim, q, &ran); }

void kernels_scan(const uint8_t *tiles, uint32_t tokens, const int8_t *q, int32_t *out) {
  kernels->keyscan(&codec, dim, tiles, tokens, q, 1, out, tokens, &ran);
}
