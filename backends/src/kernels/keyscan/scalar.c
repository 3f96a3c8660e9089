#include "kernels/tiles/scalar.h"

/* The query rows of one call: 7 bits or 15 bits, the other NULL. */
typedef struct queries {
  const int8_t *q7;
  const int16_t *q15;
  uint32_t d, rows;
} queries;

/* Four products of a 7-bit query and a centroid of at most 63 fit 16 bits (32004): half the work of 32. */
static void add_tiles7(const int16_t (*value)[4][KV_LANES], uint32_t tiles, const int8_t *x, int32_t *out) {
  int32_t sum[KV_LANES] = {0};
  for (uint32_t n = 0; n < tiles; n++, x += 4)
    for (uint32_t i = 0; i < KV_LANES; i++) {
      int16_t four =
          (int16_t)(x[0] * value[n][0][i] + x[1] * value[n][1][i] + x[2] * value[n][2][i] + x[3] * value[n][3][i]);
      sum[i] += four;
    }
  kv_add_lanes(sum, out);
}

static void add_tiles15(const int16_t (*value)[4][KV_LANES], uint32_t tiles, const int16_t *x, int32_t *out) {
  const int16_t(*summand)[KV_LANES] = value[0];
  int32_t sum[KV_LANES] = {0};
  for (uint32_t n = 0; n < 4 * tiles; n++)
    for (uint32_t i = 0; i < KV_LANES; i++) sum[i] += x[n] * summand[n][i];
  kv_add_lanes(sum, out);
}

static const uint8_t *scan_span(const kv_span *span, const kv_lut *lut, const uint8_t *tiles, const queries *q,
                                int32_t *out, uint32_t stride) {
  int16_t value[KV_TILE_RUN][4][KV_LANES];
  const uint32_t total = span->channels / 4u;
  for (uint32_t n = 0; n < total; n += KV_TILE_RUN) {
    const uint32_t count = total - n < KV_TILE_RUN ? total - n : KV_TILE_RUN, c = span->first + 4 * n;
    for (uint32_t k = 0; k < count; k++, tiles += kv_tile_bytes(span->bits)) kv_tile_decode(tiles, lut, value[k]);
    for (uint32_t r = 0; r < q->rows; r++) {
      if (q->q7) add_tiles7(value, count, q->q7 + r * q->d + c, out + r * stride);
      else add_tiles15(value, count, q->q15 + r * q->d + c, out + r * stride);
    }
  }
  return tiles;
}

static void scan(const kv_codec *codec, const uint8_t *tiles, uint32_t tokens, const queries *q, int32_t *out,
                 uint32_t stride) {
  kv_lut luts[2];
  for (uint32_t i = 0; i < codec->spans; i++) kv_lut_make(&codec->span[i], &luts[i]);
  for (uint32_t r = 0; r < q->rows; r++) kv_fill(out + r * stride, 0, tokens * sizeof *out);
  for (uint32_t block = 0; block < tokens; block += KV_LANES)
    for (uint32_t i = 0; i < codec->spans; i++)
      tiles = scan_span(&codec->span[i], &luts[i], tiles, q, out + block, stride);
}

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                       uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  queries queries = {q, 0, d, rows};
  KV_RAN(ran);
  scan(codec, tiles, tokens, &queries, out, stride);
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                         uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  queries queries = {0, q, d, rows};
  KV_RAN(ran);
  scan(codec, tiles, tokens, &queries, out, stride);
}
