#include "../tiles/scalar.h"

/* One run of decoded tiles, sixteen channels wide: tile n holds tokens 4n .. 4n+3. */
static void add_wide(const int16_t (*value)[4][KV_LANES], uint32_t tiles, const int16_t *w, int32_t *out) {
  int32_t sum[KV_LANES];
  kv_copy(sum, out, sizeof sum);
  for (uint32_t n = 0; n < tiles; n++, w += 4)
    for (uint32_t s = 0; s < 4; s++)
      for (uint32_t lane = 0; lane < KV_LANES; lane++) sum[lane] += w[s] * value[n][s][lane];
  kv_copy(out, sum, sizeof sum);
}

/* Eight channels wide: lanes 8-15 hold the next four tokens of the same channels. */
static void add_narrow(const int16_t (*value)[4][KV_LANES], uint32_t tiles, const int16_t *w, int32_t *out) {
  for (uint32_t n = 0; n < tiles; n++, w += 8)
    for (uint32_t s = 0; s < 4; s++)
      for (uint32_t lane = 0; lane < 8; lane++)
        out[lane] += w[s] * value[n][s][lane] + w[s + 4] * value[n][s][lane + 8];
}

void kv_valuesum_scalar(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                        int32_t *out, uint32_t stride, uint32_t *ran) {
  int16_t value[KV_TILE_RUN][4][KV_LANES];
  KV_RAN_SCALAR(ran);
  for (uint32_t r = 0; r < rows; r++) kv_fill(out + r * stride, 0, span->channels * sizeof *out);
  for (uint32_t c = 0; c < span->channels; c += KV_LANES) {
    const int narrow = span->channels - c < KV_LANES;
    const uint32_t per_tile = narrow ? 8 : 4, total = tokens / per_tile;
    for (uint32_t n = 0; n < total; n += KV_TILE_RUN) {
      const uint32_t count = total - n < KV_TILE_RUN ? total - n : KV_TILE_RUN;
      for (uint32_t k = 0; k < count; k++, tiles += kv_tile_bytes(span->bits))
        kv_tile_decode(tiles, span->bits, span->book->table, value[k]);
      for (uint32_t r = 0; r < rows; r++)
        (narrow ? add_narrow : add_wide)(value, count, w + r * tokens + n * per_tile, out + r * stride + c);
    }
  }
}
