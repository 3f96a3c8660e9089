/* Lane = token, summand = channel. 7-bit queries take vpmaddubsw: two products of u = centroid + 64 fit 16 bits
 * (127 * 127 * 2), and so do the four of two tiles once 64 * query is taken off again, though not before:
 * 16-bit sums wrap on the way and come out right. One vpmaddwd then widens two tiles at once. */
#include "../tiles/avx2.h"

typedef struct rows7 {
  const int8_t *q;
  uint32_t d;
  int16_t offset[KV_ROWS_AVX2][KV_MAX_DIM / 2]; /* two words a tile: 64 * query of it and its neighbour, negated */
} rows7;

typedef struct rows15 {
  int16_t q[KV_ROWS_AVX2][KV_MAX_DIM]; /* arranged */
} rows15;

/* d / 4 tiles come in pairs, since spans are multiples of 8 channels. */
static void offsets(rows7 *x, uint32_t rows) {
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t c = 0; c < x->d; c += 16) {
      const __m128i q = _mm_loadu_si128((const __m128i *)(x->q + r * x->d + c));
      __m128i sum = _mm_maddubs_epi16(_mm_set1_epi8(KV_OFFSET), q);
      sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
      _mm_storeu_si128((__m128i *)(x->offset[r] + c / 2), _mm_sub_epi16(_mm_setzero_si128(), sum));
    }
}

KV_INLINE void span7(const kv_span *span, const uint8_t *tiles, const rows7 *x, __m256i (*acc)[2], uint32_t bits,
                     uint32_t rows) {
  const __m256i table = kv_table_avx2(span), ones = _mm256_set1_epi16(1);
  const uint32_t end = span->first + (uint32_t)span->channels;
  __m256i sum[KV_ROWS_AVX2][2]; /* a copy that lives in registers: `acc` itself is in memory */
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) sum[r][0] = acc[r][0], sum[r][1] = acc[r][1];
  for (uint32_t c = span->first; c < end; c += 8, tiles += 16 * bits) {
    const kv_tile8 a = kv_decode_avx2(tiles, bits, table), b = kv_decode_avx2(tiles + 8 * bits, bits, table);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      const __m256i qa = kv_each(x->q + r * x->d + c), qb = kv_each(x->q + r * x->d + c + 4);
      const __m256i offset = kv_each(x->offset[r] + c / 2);
      __m256i low = _mm256_add_epi16(_mm256_maddubs_epi16(a.low, qa), offset);
      __m256i high = _mm256_add_epi16(_mm256_maddubs_epi16(a.high, qa), offset);
      low = _mm256_add_epi16(low, _mm256_maddubs_epi16(b.low, qb));
      high = _mm256_add_epi16(high, _mm256_maddubs_epi16(b.high, qb));
      sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(low, ones));
      sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(high, ones));
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) acc[r][0] = sum[r][0], acc[r][1] = sum[r][1];
}

KV_INLINE void span15(const kv_span *span, const uint8_t *tiles, const rows15 *x, __m256i (*acc)[2], uint32_t bits,
                      uint32_t rows) {
  const __m256i table = kv_table_avx2(span);
  const uint32_t end = span->first + (uint32_t)span->channels;
  __m256i sum[KV_ROWS_AVX2][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) sum[r][0] = acc[r][0], sum[r][1] = acc[r][1];
  for (uint32_t c = span->first; c < end; c += 4, tiles += 8 * bits)
    kv_add_tile16(kv_decode_avx2(tiles, bits, table), x->q[0] + c, x->q[0] + c, KV_MAX_DIM, rows, sum);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) acc[r][0] = sum[r][0], acc[r][1] = sum[r][1];
}

static void span7_any(const kv_span *span, const uint8_t *tiles, const rows7 *x, __m256i (*acc)[2], uint32_t rows) {
  KV_CASE(span->bits, rows, span7, span, tiles, x, acc)
}

static void span15_any(const kv_span *span, const uint8_t *tiles, const rows15 *x, __m256i (*acc)[2], uint32_t rows) {
  KV_CASE(span->bits, rows, span15, span, tiles, x, acc)
}

static void store(__m256i (*acc)[2], uint32_t rows, int32_t *out, uint32_t stride) {
  for (uint32_t r = 0; r < rows; r++, out += stride) {
    _mm256_storeu_si256((__m256i *)out, acc[r][0]);
    _mm256_storeu_si256((__m256i *)(out + 8), acc[r][1]);
  }
}

void kv_keyscan_avx2(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                     uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  KV_RAN_AVX2(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2, q += KV_ROWS_AVX2 * d, out += KV_ROWS_AVX2 * stride) {
    const uint32_t count = rows - r < KV_ROWS_AVX2 ? rows - r : KV_ROWS_AVX2;
    const uint8_t *next = tiles;
    rows7 x;
    x.q = q, x.d = d;
    offsets(&x, count);
    for (uint32_t token = 0; token < tokens; token += 16) {
      __m256i acc[KV_ROWS_AVX2][2] = {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
      for (uint32_t i = 0; i < codec->spans; i++) {
        span7_any(&codec->span[i], next, &x, acc, count);
        next += 2u * codec->span[i].channels * codec->span[i].bits;
      }
      store(acc, count, out + token, stride);
    }
  }
}

void kv_keyscan15_avx2(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                       uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  KV_RAN_AVX2(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2, q += KV_ROWS_AVX2 * d, out += KV_ROWS_AVX2 * stride) {
    const uint32_t count = rows - r < KV_ROWS_AVX2 ? rows - r : KV_ROWS_AVX2;
    const uint8_t *next = tiles;
    __m256i start[KV_ROWS_AVX2];
    rows15 x;
    for (uint32_t i = 0; i < count; i++) {
      kv_arrange(q + i * d, d, x.q[i]);
      start[i] = _mm256_set1_epi32(-KV_OFFSET * kv_sum16(q + i * d, d));
    }
    for (uint32_t token = 0; token < tokens; token += 16) {
      __m256i acc[KV_ROWS_AVX2][2];
      for (uint32_t i = 0; i < count; i++) acc[i][0] = acc[i][1] = start[i];
      for (uint32_t i = 0; i < codec->spans; i++) {
        span15_any(&codec->span[i], next, &x, acc, count);
        next += 2u * codec->span[i].channels * codec->span[i].bits;
      }
      store(acc, count, out + token, stride);
    }
  }
}
