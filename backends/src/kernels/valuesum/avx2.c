/* Lane = channel, summand = token. 14-bit weights and u = centroid + 64 as 16-bit integers, vpmaddwd; 64 times the
 * sum of the weights is taken off at the start. 1024 * 16383 * 127 is below 2^31. */
#include "../tiles/avx2.h"

typedef struct weights {
  int16_t w[KV_ROWS_AVX2][KV_MAX_PAGE]; /* arranged */
  int32_t offset[KV_ROWS_AVX2];         /* -64 * their sum */
} weights;

/* One group of 16 channels, or of 8: then lanes 8-15 are the same channels of tokens that are 4 `ahead`. */
KV_INLINE void group(const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x, int32_t *out,
                     uint32_t stride, uint32_t ahead, uint32_t bits, uint32_t rows) {
  __m256i acc[KV_ROWS_AVX2][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    acc[r][0] = _mm256_set1_epi32(x->offset[r]);
    acc[r][1] = ahead ? _mm256_setzero_si256() : acc[r][0];
  }
  for (uint32_t j = 0; j < tokens; j += 4 + ahead, tiles += 8 * bits)
    kv_add_tile16(kv_decode_avx2(tiles, bits, table), x->w[0] + j, x->w[0] + j + ahead, KV_MAX_PAGE, rows, acc);
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

KV_INLINE void wide(const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x, int32_t *out,
                    uint32_t stride, uint32_t bits, uint32_t rows) {
  group(tiles, tokens, table, x, out, stride, 0, bits, rows);
}

KV_INLINE void narrow(const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x, int32_t *out,
                      uint32_t stride, uint32_t bits, uint32_t rows) {
  group(tiles, tokens, table, x, out, stride, 4, bits, rows);
}

#define PARAMETERS \
  (const uint8_t *tiles, uint32_t tokens, __m256i table, const weights *x, int32_t *out, uint32_t stride)
KV_INSTANCES(wide, PARAMETERS, tiles, tokens, table, x, out, stride)
KV_INSTANCES(narrow, PARAMETERS, tiles, tokens, table, x, out, stride)

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                      int32_t *out, uint32_t stride, uint32_t *ran) {
  const __m256i table = kv_table_avx2(span);
  weights x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2, w += KV_ROWS_AVX2 * tokens, out += KV_ROWS_AVX2 * stride) {
    const uint32_t count = rows - r < KV_ROWS_AVX2 ? rows - r : KV_ROWS_AVX2;
    const uint8_t *next = tiles;
    for (uint32_t i = 0; i < count; i++) {
      kv_arrange(w + i * tokens, tokens, x.w[i]);
      x.offset[i] = -KV_OFFSET * kv_sum16(w + i * tokens, tokens);
    }
    for (uint32_t c = 0; c < span->channels; c += 16) {
      (span->channels - c < 16 ? narrow_of : wide_of)[span->bits - 1][count - 1](next, tokens, table, &x, out + c, stride);
      next += 2ull * tokens * span->bits;
    }
  }
}
