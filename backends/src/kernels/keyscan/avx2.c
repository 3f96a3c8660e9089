/* Lane = token, summand = channel; sixteen tokens at a time.
 *
 * 7-bit queries take vpmaddubsw: two products of u fit 16 bits (124 * 127 * 2). So does the sum over a window of tiles
 * once smallest * query is added, though not before: 16-bit sums wrap on the way and come out right. One vpmaddwd then
 * widens the window. Two tiles always fit; how many more depends on the magnitudes of the query. */
#include "../tiles/avx2.h"

#define WIDEST 8u /* tiles of a window: 8 * 4 * 127 fits 16 bits */

/* One span: its tiles lie in runs of one block of sixteen tokens, `block_bytes` from one to the next. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint64_t block_bytes;
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
  __m256i table;
} part;

/* Four rows side by side, so that a tile's multipliers, and a window's offsets, are neighbours. */
typedef struct rows7 {
  __m128i q[KV_MAX_DIM / 4];         /* four bytes a row of each tile; rows that there are not are 0 */
  __m128i offset[2][KV_MAX_DIM / 8]; /* two words a row of each window of a span: -smallest * query over it */
  uint32_t window[2];                /* tiles of a window of a span */
} rows7;

typedef struct rows15 {
  kv_pairs q[KV_MAX_DIM / 4 * KV_ROWS_AVX2]; /* [d / 4][rows] */
  int32_t offset[KV_ROWS_AVX2];              /* smallest * query over all channels */
} rows15;

/* Rows of d bytes to tiles of four rows. */
static void interleave(const int8_t *q, uint32_t d, uint32_t rows, __m128i *tiles) {
  for (uint32_t c = 0; c < d; c += 16, tiles += 4) {
    __m128i x[4];
    x[0] = x[1] = x[2] = x[3] = _mm_setzero_si128();
    switch (rows) {
      default: x[3] = _mm_loadu_si128((const __m128i *)(q + 3 * d + c)); __attribute__((fallthrough));
      case 3: x[2] = _mm_loadu_si128((const __m128i *)(q + 2 * d + c)); __attribute__((fallthrough));
      case 2: x[1] = _mm_loadu_si128((const __m128i *)(q + d + c)); __attribute__((fallthrough));
      case 1: x[0] = _mm_loadu_si128((const __m128i *)(q + c));
    }
    const __m128i a = _mm_unpacklo_epi32(x[0], x[1]), b = _mm_unpacklo_epi32(x[2], x[3]);
    const __m128i e = _mm_unpackhi_epi32(x[0], x[1]), f = _mm_unpackhi_epi32(x[2], x[3]);
    tiles[0] = _mm_unpacklo_epi64(a, b), tiles[1] = _mm_unpackhi_epi64(a, b);
    tiles[2] = _mm_unpacklo_epi64(e, f), tiles[3] = _mm_unpackhi_epi64(e, f);
  }
}

/* Offsets of windows of that many tiles; the result is the largest sum of magnitudes that a 16-bit sum may see. */
static uint32_t measure(const __m128i *q, uint32_t tiles, uint32_t window, __m128i times, __m128i *offset) {
  const __m128i one = _mm_set1_epi8(1);
  __m128i most = _mm_setzero_si128();
  for (uint32_t left = tiles; left; offset++) {
    const uint32_t count = left < window ? left : window;
    __m128i sum = _mm_setzero_si128(), magnitude = sum;
    for (uint32_t i = 0; i < count; i += 2, q += 2) {
      const __m128i high = _mm_add_epi16(_mm_maddubs_epi16(times, q[0]), _mm_maddubs_epi16(times, q[1]));
      const __m128i both = _mm_add_epi8(_mm_abs_epi8(q[0]), _mm_abs_epi8(q[1])); /* at most 254 */
      sum = _mm_add_epi16(sum, high);
      magnitude = _mm_add_epi16(magnitude, _mm_maddubs_epi16(both, one));
    }
    *offset = sum;
    most = _mm_max_epu16(most, magnitude);
    left -= count;
  }
  return 0xffffu - (uint32_t)_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi16(-1))), 0);
}

/* Offsets of the longest windows whose magnitudes times the largest centroid fit 16 bits. */
static void offsets(rows7 *x, const kv_span *span, uint32_t which) {
  const __m128i times = _mm_set1_epi8((char)-kv_smallest(span));
  uint32_t window = WIDEST;
  while (measure(x->q + span->first / 4, span->channels / 4u, window, times, x->offset[which]) *
                 (uint32_t)kv_top(span) > INT16_MAX &&
         window > 2)
    window /= 2;
  x->window[which] = window;
}

/* Sums of sixteen tokens: 0 or `start` for the first span, else those of the span before. */
KV_INLINE void load_sums(const part *p, uint32_t token, const int32_t *start, __m256i (*sum)[2], uint32_t rows) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    const __m256i *out = (const __m256i *)(p->out + r * p->stride + token);
    sum[r][0] = p->span->first ? _mm256_loadu_si256(out) : _mm256_set1_epi32(start ? start[r] : 0);
    sum[r][1] = p->span->first ? _mm256_loadu_si256(out + 1) : sum[r][0];
  }
}

KV_INLINE void store_sums(const part *p, uint32_t token, __m256i (*sum)[2], uint32_t rows) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    __m256i *out = (__m256i *)(p->out + r * p->stride + token);
    _mm256_storeu_si256(out, sum[r][0]);
    _mm256_storeu_si256(out + 1, sum[r][1]);
  }
}

KV_INLINE void span7(const part *p, const rows7 *x, uint32_t bits, uint32_t rows) {
  const kv_masks *m = kv_masks_avx2();
  const uint32_t which = p->span->first != 0, window = x->window[which], all = p->span->channels / 4u;
  const uint8_t *block = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16, block += p->block_bytes) {
    const int8_t *q = (const int8_t *)(x->q + p->span->first / 4);
    const int16_t *offset = (const int16_t *)x->offset[which];
    const uint8_t *tiles = block;
    __m256i total[KV_ROWS_AVX2][2];
    load_sums(p, token, 0, total, rows);
    for (uint32_t left = all; left; offset += 8) {
      uint32_t count = left < window ? left : window;
      __m256i sum[KV_ROWS_AVX2][2];
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = kv_each(offset + 2 * r);
      left -= count;
      do {
        const kv_tile8 t = kv_decode_avx2(tiles, bits, p->table, m);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++) {
          const __m256i each = kv_each(q + 4 * r);
          sum[r][0] = _mm256_sub_epi16(sum[r][0], _mm256_maddubs_epi16(t.low, each));
          sum[r][1] = _mm256_sub_epi16(sum[r][1], _mm256_maddubs_epi16(t.high, each));
        }
        q += 16, tiles += 8 * bits;
      } while (--count);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
          total[r][half] = _mm256_add_epi32(_mm256_madd_epi16(sum[r][half], kv_mask(m->minus_one)), total[r][half]);
    }
    store_sums(p, token, total, rows);
  }
}
KV_INSTANCES(span7, (const part *p, const rows7 *x), p, x)

KV_INLINE void span15(const part *p, const rows15 *x, uint32_t bits, uint32_t rows) {
  const kv_masks *m = kv_masks_avx2();
  const uint8_t *block = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16, block += p->block_bytes) {
    const kv_pairs *q = x->q + p->span->first / 4 * rows, *end = q + p->span->channels / 4 * rows;
    const uint8_t *tiles = block;
    __m256i sum[KV_ROWS_AVX2][2];
    load_sums(p, token, x->offset, sum, rows);
    for (; q < end; q += rows, tiles += 8 * bits)
      kv_add_tile16(kv_widen(kv_decode_avx2(tiles, bits, p->table, m), m), q, kv_apart(q), rows, sum);
    store_sums(p, token, sum, rows);
  }
}
KV_INSTANCES(span15, (const part *p, const rows15 *x), p, x)

static uint32_t rows_of(uint32_t left) { return left < KV_ROWS_AVX2 ? left : KV_ROWS_AVX2; }

/* Span i, for rows whose sums are at out. */
static part part_of(const kv_codec *codec, uint32_t i, const uint8_t *tiles, uint32_t tokens, int32_t *out,
                    uint32_t stride) {
  const kv_span *span = &codec->span[i];
  if (i) tiles += kv_code_bytes(codec, 16) - 2ull * span->channels * span->bits;
  return (part){span, tiles, kv_code_bytes(codec, 16), tokens, out, stride, kv_table_avx2(span)};
}

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                     uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows7 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2) {
    const uint32_t count = rows_of(rows - r);
    interleave(q + r * d, d, count, x.q);
    for (uint32_t i = 0; i < codec->spans; i++) {
      const part p = part_of(codec, i, tiles, tokens, out + r * stride, stride);
      offsets(&x, p.span, i);
      span7_of[p.span->bits - 1][count - 1](&p, &x);
    }
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                       uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows15 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2) {
    const uint32_t count = rows_of(rows - r);
    for (uint32_t i = 0; i < count; i++) {
      const int16_t *row = q + (r + i) * d;
      kv_pair(row, d, count, x.q + i);
      x.offset[i] = 0;
      for (uint32_t k = 0; k < codec->spans; k++)
        x.offset[i] += kv_smallest(&codec->span[k]) * kv_sum16(row + codec->span[k].first, codec->span[k].channels);
    }
    for (uint32_t i = 0; i < codec->spans; i++) {
      const part p = part_of(codec, i, tiles, tokens, out + r * stride, stride);
      span15_of[p.span->bits - 1][count - 1](&p, &x);
    }
  }
}
