/* Lane = channel, summand = token. 14-bit weights and u = centroid + 64 as 16-bit integers; 64 times the sum of the
 * weights is taken off at the start. 1024 * 16383 * 127 is below 2^31. */
#include "kernels/tiles/simd128.h"

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                         int32_t *out, uint32_t stride, uint32_t *ran) {
  v128_t columns[KV_MAX_PAGE / 2]; /* two for four tokens */
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS, w += KV_ROWS * tokens, out += KV_ROWS * stride) {
    const uint32_t count = kv_rows_of(rows - r);
    const uint8_t *next = tiles;
    KV_KERNEL(columns16)(w, tokens, count, columns);
    for (uint32_t i = 0; i < count; i++)
      kv_fill32(out + i * stride, span->channels, -KV_OFFSET * KV_KERNEL(sum16)(w + i * tokens, tokens));
    for (uint32_t c = 0; c < span->channels; c += 16, next += 2ull * tokens * span->bits) {
      /* Eight channels: lanes 8-15 are the same channels of the four tokens after those of lanes 0-7. */
      const int narrow = span->channels - c < 16;
      const uint32_t tiles_here = tokens / (narrow ? 8 : 4);
      const kv_multipliers low = {columns, narrow ? 4 : 2}, high = {columns + (narrow ? 2 : 0), low.step};
      KV_KERNEL(add_tiles)(next, tiles_here, &low, span, out + c, stride, 0, count);
      KV_KERNEL(add_tiles)(next, tiles_here, &high, span, out + c + (narrow ? 0 : 8), stride, 1, count);
    }
  }
}
