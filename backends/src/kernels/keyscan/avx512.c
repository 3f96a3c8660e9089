/* Lane = token, summand = channel; a tile is one register. 7-bit queries: one vpdpbusd a tile and row; without VNNI
 * the vpmaddubsw pairs of avx2.c. */
#ifndef KV_ISA
#define KV_ISA avx512
#define KV_ISA_BIT KV_VARIANT_AVX512
#endif
#include "../tiles/avx512.h"

typedef struct rows7 {
  const int8_t *q;
  uint32_t d;
  int32_t offset[KV_ROWS_AVX512];                 /* -64 * sum of the query */
  int16_t pairs[KV_ROWS_AVX512][KV_MAX_DIM / 2];  /* the same, two words a tile, of it and its neighbour */
} rows7;

typedef struct rows15 {
  kv_multipliers q[KV_ROWS_AVX512];
  int32_t offset[KV_ROWS_AVX512];
} rows15;

/* One span of some tokens whose tiles lie one after the other: all tokens if it is the only span, else sixteen. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
} part;

static void prepare7(rows7 *x, uint32_t rows) {
  for (uint32_t r = 0; r < rows; r++) {
    const int8_t *q = x->q + r * x->d;
    int32_t sum = 0;
    for (uint32_t c = 0; c < x->d; c += 8) {
      const int32_t even = q[c] + q[c + 1] + q[c + 4] + q[c + 5], odd = q[c + 2] + q[c + 3] + q[c + 6] + q[c + 7];
      x->pairs[r][c / 2] = (int16_t)(-KV_OFFSET * even);
      x->pairs[r][c / 2 + 1] = (int16_t)(-KV_OFFSET * odd);
      sum += even + odd;
    }
    x->offset[r] = KV_VNNI ? -KV_OFFSET * sum : 0;
  }
}

KV_INLINE __m512i start(const part *p, uint32_t token, uint32_t r, int32_t offset) {
  return p->span->first ? _mm512_loadu_si512(p->out + r * p->stride + token) : _mm512_set1_epi32(offset);
}

/* Two neighbouring tiles: two sums a row hide the latency. */
KV_INLINE void add_pair7(__m512i a, __m512i b, const rows7 *x, uint32_t r, uint32_t c, __m512i sum[2]) {
  const __m512i qa = kv_each(x->q + r * x->d + c), qb = kv_each(x->q + r * x->d + c + 4);
#if KV_VNNI
  sum[0] = _mm512_dpbusd_epi32(sum[0], a, qa);
  sum[1] = _mm512_dpbusd_epi32(sum[1], b, qb);
#else
  __m512i four = _mm512_add_epi16(_mm512_maddubs_epi16(a, qa), kv_each(x->pairs[r] + c / 2));
  four = _mm512_add_epi16(four, _mm512_maddubs_epi16(b, qb));
  sum[0] = _mm512_add_epi32(sum[0], _mm512_madd_epi16(four, _mm512_set1_epi16(1)));
#endif
}

KV_INLINE void span7(const part *p, const rows7 *x, uint32_t bits, uint32_t rows) {
  const kv_tables tables = kv_tables_avx512(p->span);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *tiles = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16) {
    __m512i sum[KV_ROWS_AVX512][2];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      sum[r][0] = start(p, token, r, x->offset[r]);
      sum[r][1] = _mm512_setzero_si512();
    }
    for (uint32_t c = p->span->first; c < end; c += 8, tiles += 16 * bits) {
      const __m512i a = kv_decode_avx512(tiles, bits, tables), b = kv_decode_avx512(tiles + 8 * bits, bits, tables);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; r++) add_pair7(a, b, x, r, c, sum[r]);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++)
      _mm512_storeu_si512(p->out + r * p->stride + token, _mm512_add_epi32(sum[r][0], sum[r][1]));
  }
}
KV_INSTANCES(span7, (const part *p, const rows7 *x), p, x)

KV_INLINE void span15(const part *p, const rows15 *x, uint32_t bits, uint32_t rows) {
  const kv_tables tables = kv_tables_avx512(p->span);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *tiles = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16) {
    __m512i sum[KV_ROWS_AVX512][2];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      sum[r][0] = start(p, token, r, x->offset[r]);
      sum[r][1] = _mm512_setzero_si512();
    }
    for (uint32_t c = p->span->first; c < end; c += 4, tiles += 8 * bits) {
      const __m512i u = kv_decode_avx512(tiles, bits, tables);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; r++) kv_add_tile16(u, &x->q[r], c, c, sum[r]);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++)
      _mm512_storeu_si512(p->out + r * p->stride + token, kv_joined(sum[r]));
  }
}
KV_INSTANCES(span15, (const part *p, const rows15 *x), p, x)

static uint32_t rows_of(uint32_t left) { return left < KV_ROWS_AVX512 ? left : KV_ROWS_AVX512; }

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
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX512, q += KV_ROWS_AVX512 * d, out += KV_ROWS_AVX512 * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows_of(rows - r);
    x.q = q, x.d = d;
    prepare7(&x, count);
    EACH_PART(codec, tokens, p, span7_of[p.span->bits - 1][count - 1](&p, &x))
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                          uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows15 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX512, q += KV_ROWS_AVX512 * d, out += KV_ROWS_AVX512 * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows_of(rows - r);
    for (uint32_t i = 0; i < count; i++) {
      kv_prepare(q + i * d, d, &x.q[i]);
      x.offset[i] = -KV_OFFSET * kv_sum16(q + i * d, d);
    }
    EACH_PART(codec, tokens, p, span15_of[p.span->bits - 1][count - 1](&p, &x))
  }
}
