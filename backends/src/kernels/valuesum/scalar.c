#include "kernels/tiles/scalar.h"

/* One run of decoded tiles, sixteen channels wide: tile n holds tokens 4n .. 4n+3. */
static void add_wide(const int16_t (*value)[4][KV_LANES], uint32_t tiles, const int16_t *w, int32_t *out) {
  const int16_t(*summand)[KV_LANES] = value[0];
  int32_t sum[KV_LANES] = {0};
  for (uint32_t n = 0; n < 4 * tiles; n++)
    for (uint32_t i = 0; i < KV_LANES; i++) sum[i] += w[n] * summand[n][i];
  kv_add_lanes(sum, out);
}

/* Eight channels wide: lanes 8-15, places 2 and 3 of each four, hold the next four tokens of the same channels. */
static void add_narrow(const int16_t (*value)[4][KV_LANES], uint32_t tiles, const int16_t *w, int32_t *out) {
  int32_t sum[KV_LANES] = {0}, lanes[KV_LANES] = {0};
  for (uint32_t n = 0; n < tiles; n++, w += 8)
    for (uint32_t s = 0; s < 4; s++)
      for (uint32_t i = 0; i < KV_LANES; i++) sum[i] += w[s + (i & 2) * 2] * value[n][s][i];
  kv_add_lanes(sum, lanes);
  for (uint32_t lane = 0; lane < 8; lane++) out[lane] += lanes[lane] + lanes[lane + 8];
}

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                        int32_t *out, uint32_t stride, uint32_t *ran) {
  int16_t value[KV_TILE_RUN][4][KV_LANES];
  kv_lut lut;
  KV_RAN(ran);
  kv_lut_make(span, &lut);
  for (uint32_t r = 0; r < rows; r++) kv_fill(out + r * stride, 0, span->channels * sizeof *out);
  for (uint32_t c = 0; c < span->channels; c += KV_LANES) {
    const int narrow = span->channels - c < KV_LANES;
    const uint32_t per_tile = narrow ? 8 : 4, total = tokens / per_tile;
    for (uint32_t n = 0; n < total; n += KV_TILE_RUN) {
      const uint32_t count = total - n < KV_TILE_RUN ? total - n : KV_TILE_RUN;
      for (uint32_t k = 0; k < count; k++, tiles += kv_tile_bytes(span->bits))
        kv_tile_decode(tiles, &lut, value[k]);
      for (uint32_t r = 0; r < rows; r++)
        (narrow ? add_narrow : add_wide)(value, count, w + r * tokens + n * per_tile, out + r * stride + c);
    }
  }
}
