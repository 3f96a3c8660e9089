/* Lane = channel, summand = token; a tile is one register, four row sums of two registers each. */
#include "kernels/tiles/avx512.h"

typedef struct weights {
  kv_multipliers w[KV_ROWS_AVX512];
  int32_t offset[KV_ROWS_AVX512]; /* -64 * their sum */
} weights;

/* One group of 16 channels, or of 8: then lanes 8-15 are the same channels of tokens that are 4 `ahead`. */
KV_INLINE void group(const uint8_t *tiles, uint32_t tokens, kv_tables tables, const weights *x, int32_t *out,
                     uint32_t stride, uint32_t ahead, uint32_t bits, uint32_t rows) {
  __m512i sum[KV_ROWS_AVX512][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
  for (uint32_t j = 0; j < tokens; j += 4 + ahead, tiles += 8 * bits) {
    const __m512i u = kv_decode_avx512(tiles, bits, tables);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) kv_add_tile16(u, &x->w[r], j, j + ahead, sum[r]);
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, out += stride) {
    const __m512i all = kv_joined(sum[r]);
    if (ahead) {
      const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
      _mm256_storeu_si256((__m256i *)out, _mm256_add_epi32(eight, _mm256_set1_epi32(x->offset[r])));
    } else {
      _mm512_storeu_si512(out, _mm512_add_epi32(all, _mm512_set1_epi32(x->offset[r])));
    }
  }
}

KV_INLINE void wide(const uint8_t *tiles, uint32_t tokens, kv_tables tables, const weights *x, int32_t *out,
                    uint32_t stride, uint32_t bits, uint32_t rows) {
  group(tiles, tokens, tables, x, out, stride, 0, bits, rows);
}

KV_INLINE void narrow(const uint8_t *tiles, uint32_t tokens, kv_tables tables, const weights *x, int32_t *out,
                      uint32_t stride, uint32_t bits, uint32_t rows) {
  group(tiles, tokens, tables, x, out, stride, 4, bits, rows);
}

#define PARAMETERS \
  (const uint8_t *tiles, uint32_t tokens, kv_tables tables, const weights *x, int32_t *out, uint32_t stride)
KV_INSTANCES(wide, PARAMETERS, tiles, tokens, tables, x, out, stride)
KV_INSTANCES(narrow, PARAMETERS, tiles, tokens, tables, x, out, stride)

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                         int32_t *out, uint32_t stride, uint32_t *ran) {
  const kv_tables tables = kv_tables_avx512(span);
  weights x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX512, w += KV_ROWS_AVX512 * tokens, out += KV_ROWS_AVX512 * stride) {
    const uint32_t count = rows - r < KV_ROWS_AVX512 ? rows - r : KV_ROWS_AVX512;
    const uint8_t *next = tiles;
    for (uint32_t i = 0; i < count; i++) {
      kv_prepare(w + i * tokens, tokens, &x.w[i]);
      x.offset[i] = -KV_OFFSET * kv_sum16(w + i * tokens, tokens);
    }
    for (uint32_t c = 0; c < span->channels; c += 16) {
      (span->channels - c < 16 ? narrow_of : wide_of)[span->bits - 1][count - 1](next, tokens, tables, &x, out + c,
                                                                                 stride);
      next += 2ull * tokens * span->bits;
    }
  }
}
