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
  int32_t offset[KV_ROWS_AVX2];        /* -64 * their sum */
} rows15;

/* One span of some tokens whose tiles lie one after the other: all tokens if it is the only span, else sixteen. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
} part;

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

KV_INLINE void start(const part *p, uint32_t token, const int32_t *offset, __m256i (*sum)[2], uint32_t rows) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    const int32_t *out = p->out + r * p->stride + token;
    sum[r][0] = p->span->first ? _mm256_loadu_si256((const __m256i *)out) : _mm256_set1_epi32(offset[r]);
    sum[r][1] = p->span->first ? _mm256_loadu_si256((const __m256i *)(out + 8)) : sum[r][0];
  }
}

KV_INLINE void finish(const part *p, uint32_t token, __m256i (*sum)[2], uint32_t rows) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    int32_t *out = p->out + r * p->stride + token;
    _mm256_storeu_si256((__m256i *)out, sum[r][0]);
    _mm256_storeu_si256((__m256i *)(out + 8), sum[r][1]);
  }
}

KV_INLINE void span7(const part *p, const rows7 *x, uint32_t bits, uint32_t rows) {
  static const int32_t zeros[KV_ROWS_AVX2];
  const __m256i table = kv_table_avx2(p->span), ones = _mm256_set1_epi16(1);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *tiles = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16) {
    __m256i sum[KV_ROWS_AVX2][2];
    start(p, token, zeros, sum, rows);
    for (uint32_t c = p->span->first; c < end; c += 8, tiles += 16 * bits) {
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
    finish(p, token, sum, rows);
  }
}
KV_INSTANCES(span7, (const part *p, const rows7 *x), p, x)

KV_INLINE void span15(const part *p, const rows15 *x, uint32_t bits, uint32_t rows) {
  const __m256i table = kv_table_avx2(p->span);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *tiles = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16) {
    __m256i sum[KV_ROWS_AVX2][2];
    start(p, token, x->offset, sum, rows);
    for (uint32_t c = p->span->first; c < end; c += 4, tiles += 8 * bits)
      kv_add_tile16(kv_decode_avx2(tiles, bits, table), x->q[0] + c, x->q[0] + c, KV_MAX_DIM, rows, sum);
    finish(p, token, sum, rows);
  }
}
KV_INSTANCES(span15, (const part *p, const rows15 *x), p, x)

static uint32_t rows_of(uint32_t left) { return left < KV_ROWS_AVX2 ? left : KV_ROWS_AVX2; }

/* In the order of the stream: memory is read once, forwards. */
#define EACH_PART(codec, all, p, call)                                         \
  for (uint32_t token = 0; token < (all); token += (p).tokens)                 \
    for (uint32_t i = 0; i < (codec)->spans; i++) {                            \
      (p).span = &(codec)->span[i];                                            \
      call;                                                                    \
      (p).tiles += (p).tokens / 8 * (p).span->channels * (p).span->bits;       \
      if (i + 1 == (codec)->spans) (p).out += (p).tokens;                      \
    }

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                     uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows7 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2, q += KV_ROWS_AVX2 * d, out += KV_ROWS_AVX2 * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows_of(rows - r);
    x.q = q, x.d = d;
    offsets(&x, count);
    EACH_PART(codec, tokens, p, span7_of[p.span->bits - 1][count - 1](&p, &x))
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                       uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows15 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2, q += KV_ROWS_AVX2 * d, out += KV_ROWS_AVX2 * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows_of(rows - r);
    for (uint32_t i = 0; i < count; i++) {
      kv_arrange(q + i * d, d, x.q[i]);
      x.offset[i] = -KV_OFFSET * kv_sum16(q + i * d, d);
    }
    EACH_PART(codec, tokens, p, span15_of[p.span->bits - 1][count - 1](&p, &x))
  }
}
