/* Lane = channel, summand = token. 14-bit weights and u as 16-bit integers, vpmaddwd; what u is short of the integers,
 * times the sum of the weights, is added at the start. 1024 * 16383 * 124 is below 2^31. */
#include "kernels/tiles/avx2.h"

typedef struct weights {
  int16_t w[KV_ROWS_AVX2][KV_MAX_PAGE]; /* arranged */
  int32_t offset[KV_ROWS_AVX2];
} weights;

/* One group of 16 channels, or of 8: then lanes 8-15 are the same channels of tokens that are 4 `ahead`. */
KV_INLINE void group(const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x, int32_t *out,
                     uint32_t stride, uint32_t ahead, uint32_t bits, uint32_t rows) {
  const kv_masks *m = kv_masks_avx2();
  const int16_t *w = x->w[0];
  __m256i acc[KV_ROWS_AVX2][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    acc[r][0] = _mm256_set1_epi32(x->offset[r]);
    acc[r][1] = ahead ? _mm256_setzero_si256() : acc[r][0];
  }
  kv_tile8 next = kv_decode_avx2(tiles, bits, table, m);
  for (uint32_t left = tokens / (4 + ahead); --left; w += 4 + ahead) {
    kv_tile8 t = next;
    next = kv_decode_avx2(tiles += 8 * bits, bits, table, m);
    kv_in_order(&t, &next);
    kv_add_tile16(t, w, w + ahead, KV_MAX_PAGE, rows, m, acc);
  }
  kv_add_tile16(next, w, w + ahead, KV_MAX_PAGE, rows, m, acc);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, out += stride) {
    if (ahead) {
      _mm256_storeu_si256((__m256i *)out, _mm256_add_epi32(acc[r][0], acc[r][1]));
    } else {
      _mm256_storeu_si256((__m256i *)out, acc[r][0]);
      _mm256_storeu_si256((__m256i *)(out + 8), acc[r][1]);
    }
  }
}

/* All channels of a span. */
KV_INLINE void sums(const kv_span *span, const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x,
                    int32_t *out, uint32_t stride, uint32_t bits, uint32_t rows) {
  uint32_t c = 0;
  for (; c + 16 <= span->channels; c += 16, tiles += 2ull * tokens * bits)
    group(tiles, tokens, table, x, out + c, stride, 0, bits, rows);
  if (c < span->channels) group(tiles, tokens, table, x, out + c, stride, 4, bits, rows);
}
KV_INSTANCES(sums,
             (const kv_span *span, const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x,
              int32_t *out, uint32_t stride),
             span, tiles, tokens, table, x, out, stride)

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                      int32_t *out, uint32_t stride, uint32_t *ran) {
  const __m256i table = kv_table_avx2(span);
  weights x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2, w += KV_ROWS_AVX2 * tokens, out += KV_ROWS_AVX2 * stride) {
    const uint32_t count = rows - r < KV_ROWS_AVX2 ? rows - r : KV_ROWS_AVX2;
    for (uint32_t i = 0; i < count; i++) {
      kv_arrange(w + i * tokens, tokens, x.w[i]);
      x.offset[i] = kv_smallest(span) * kv_sum16(w + i * tokens, tokens);
    }
    sums_of[span->bits - 1][count - 1](span, tiles, tokens, table, &x, out, stride);
  }
}
