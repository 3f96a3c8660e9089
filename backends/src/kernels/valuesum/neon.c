/* Lane = channel, summand = token. 14-bit weights are two planes of bytes; their sums stay apart until the end. */
#include "kernels/tiles/neon.h"

typedef struct weights {
  int8_t plane[KV_PLANES][KV_MAX_PAGE];
} weights;

/* One group of 16 channels, or of 8: then lanes 8-15 are the same channels of tokens that are 4 `ahead`. */
KV_INLINE void group(const uint8_t *tiles, uint32_t tokens, int8x16_t table, const weights *x, int32_t *out,
                     uint32_t stride, uint32_t ahead, uint32_t bits, uint32_t rows) {
  const uint32_t step = 4 + ahead;
  int32x4_t sum[KV_PLANES][4];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 2 * rows; i++) sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = vdupq_n_s32(0);
  for (uint32_t j = 0; j < tokens; j += 2 * step, tiles += 16 * bits) {
    const kv_tile16 a = kv_decode_neon(tiles, bits, table), b = kv_decode_neon(tiles + 8 * bits, bits, table);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 2 * rows; i++) {
      const int8_t *w = x->plane[i] + j;
#pragma GCC unroll 4
      for (uint32_t k = 0; k < 4; k++) {
        const uint32_t later = k < 2 ? 0 : ahead;
        sum[i][k] = kv_add_pair(sum[i][k], a.val[k], b.val[k], kv_each(w + later), kv_each(w + step + later));
      }
    }
  }
#pragma GCC unroll 2
  for (uint32_t r = 0; r < rows; r++, out += stride) {
    int32x4_t all[4];
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) all[k] = kv_joined(sum[2 * r][k], sum[2 * r + 1][k]);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < (ahead ? 2 : 4); k++)
      vst1q_s32(out + 4 * k, ahead ? vaddq_s32(all[k], all[k + 2]) : all[k]);
  }
}

KV_INLINE void wide(const uint8_t *tiles, uint32_t tokens, int8x16_t table, const weights *x, int32_t *out,
                    uint32_t stride, uint32_t bits, uint32_t rows) {
  group(tiles, tokens, table, x, out, stride, 0, bits, rows);
}

KV_INLINE void narrow(const uint8_t *tiles, uint32_t tokens, int8x16_t table, const weights *x, int32_t *out,
                      uint32_t stride, uint32_t bits, uint32_t rows) {
  group(tiles, tokens, table, x, out, stride, 4, bits, rows);
}

#define PARAMETERS \
  (const uint8_t *tiles, uint32_t tokens, int8x16_t table, const weights *x, int32_t *out, uint32_t stride)
KV_INSTANCES2(wide, PARAMETERS, tiles, tokens, table, x, out, stride)
KV_INSTANCES2(narrow, PARAMETERS, tiles, tokens, table, x, out, stride)

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                         int32_t *out, uint32_t stride, uint32_t *ran) {
  const int8x16_t table = kv_table_neon(span);
  weights x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += 2, w += 2 * tokens, out += 2 * stride) {
    const uint32_t count = rows - r < 2 ? 1 : 2;
    const uint8_t *next = tiles;
    for (uint32_t i = 0; i < count; i++) kv_split(w + i * tokens, tokens, x.plane[2 * i], x.plane[2 * i + 1]);
    for (uint32_t c = 0; c < span->channels; c += 16) {
      (span->channels - c < 16 ? narrow_of : wide_of)[span->bits - 1][count - 1](next, tokens, table, &x, out + c,
                                                                                stride);
      next += 2ull * tokens * span->bits;
    }
  }
}
