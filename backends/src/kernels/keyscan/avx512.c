/* Lane = token, summand = channel; a tile is one register. 7-bit queries: one vpdpbusd a tile and row; without VNNI
 * the vpmaddubsw pairs of avx2.c. */
#include "kernels/tiles/avx512.h"

typedef struct rows7 {
  const int8_t *q;
  uint32_t d;
#if KV_VNNI
  int32_t offset[KV_ROWS_AVX512]; /* -64 * sum of the query */
#else
  int16_t pairs[KV_ROWS_AVX512][KV_MAX_DIM / 2]; /* -64 * query, two words a tile, of it and its neighbour */
#endif
} rows7;

typedef struct rows15 {
  kv_multipliers q[KV_ROWS_AVX512];
  int32_t offset[KV_ROWS_AVX512];
} rows15;

/* One span: its tiles lie in runs of one block of sixteen tokens, `block_bytes` from one to the next. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint64_t block_bytes; /* of all spans */
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
  kv_tables tables;
} part;

#if KV_VNNI
static void prepare7(rows7 *x, uint32_t rows) {
  for (uint32_t r = 0; r < rows; r++) {
    __m128i sum = _mm_setzero_si128();
    for (uint32_t c = 0; c < x->d; c += 16) {
      const __m128i q = _mm_loadu_si128((const __m128i *)(x->q + r * x->d + c));
      const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(KV_OFFSET), q);
      sum = _mm_sub_epi32(sum, _mm_madd_epi16(pairs, _mm_set1_epi16(1)));
    }
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    x->offset[r] = _mm_cvtsi128_si32(sum);
  }
}

static int32_t offset_of(const rows7 *x, uint32_t r) { return x->offset[r]; }
#else
static void prepare7(rows7 *x, uint32_t rows) {
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t c = 0; c < x->d; c += 16) {
      const __m128i q = _mm_loadu_si128((const __m128i *)(x->q + r * x->d + c));
      __m128i sum = _mm_maddubs_epi16(_mm_set1_epi8(KV_OFFSET), q);
      sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
      _mm_storeu_si128((__m128i *)(x->pairs[r] + c / 2), _mm_sub_epi16(_mm_setzero_si128(), sum));
    }
}

static int32_t offset_of(const rows7 *x, uint32_t r) { return (void)x, (void)r, 0; }
#endif

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
  const kv_tables tables = p->tables;
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *block = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16, block += p->block_bytes) {
    const uint8_t *tiles = block;
    __m512i sum[KV_ROWS_AVX512][2];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      sum[r][0] = start(p, token, r, offset_of(x, r));
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
  const kv_tables tables = p->tables;
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *block = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16, block += p->block_bytes) {
    const uint8_t *tiles = block;
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

/* Span i, for rows whose sums are at out. */
static part part_of(const kv_codec *codec, uint32_t i, const uint8_t *tiles, uint32_t tokens, int32_t *out,
                    uint32_t stride) {
  const kv_span *span = &codec->span[i];
  const uint64_t all = kv_code_bytes(codec, 16);
  if (i) tiles += all - 2ull * span->channels * span->bits;
  return (part){span, tiles, all, tokens, out, stride, kv_tables_avx512(span)};
}

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                        uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows7 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX512) {
    const uint32_t count = rows_of(rows - r);
    x.q = q + r * d, x.d = d;
    prepare7(&x, count);
    for (uint32_t i = 0; i < codec->spans; i++) {
      const part p = part_of(codec, i, tiles, tokens, out + r * stride, stride);
      span7_of[p.span->bits - 1][count - 1](&p, &x);
    }
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                          uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows15 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX512) {
    const uint32_t count = rows_of(rows - r);
    for (uint32_t i = 0; i < count; i++) {
      kv_prepare(q + (r + i) * d, d, &x.q[i]);
      x.offset[i] = -KV_OFFSET * kv_sum16(q + (r + i) * d, d);
    }
    for (uint32_t i = 0; i < codec->spans; i++) {
      const part p = part_of(codec, i, tiles, tokens, out + r * stride, stride);
      span15_of[p.span->bits - 1][count - 1](&p, &x);
    }
  }
}
