/* Lane = token, summand = channel; sixteen tokens at a time.
 *
 * 7-bit queries take vpmaddubsw: two products of u fit 16 bits (124 * 127 * 2). So does the sum over a window of tiles
 * once smallest * query is added, though not before: 16-bit sums wrap on the way and come out right. One vpmaddwd then
 * widens the window. Two tiles always fit; how many more depends on the magnitudes of the query. */
#include "kernels/tiles/avx2.h"

#define LONG 256u /* tokens from which on one row's windows are measured */

/* One span: its tiles lie in runs of one block of sixteen tokens, `block_bytes` from one to the next. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint64_t block_bytes; /* of all spans */
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
  __m256i table;
} part;

/* Two to four rows lie side by side, four places a tile, so that a tile's multipliers, and a window's offsets, are
 * neighbours. One row stays where it is, and its windows are two tiles unless so many tokens are scanned that measuring
 * them costs less than it saves. */
typedef struct rows7 {
  const int8_t *q;                      /* four bytes a place */
  __m128i places[KV_MAX_DIM / 4];       /* those of rows that there are not are 0 */
  __m128i offset[2][KV_MAX_DIM / 8];    /* two words a place and window of a span: -smallest * query over it */
  uint32_t window[2];                   /* tiles of a window of a span */
} rows7;

typedef struct rows15 {
  int16_t q[KV_ROWS_AVX2][KV_MAX_DIM]; /* arranged */
  int32_t offset[KV_ROWS_AVX2];        /* smallest * query over all channels */
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

/* Sums over windows of that many tiles, of times * query and of its magnitudes. */
static void measure(const __m128i *q, uint32_t tiles, uint32_t window, __m128i times, __m128i *offset,
                    __m128i *magnitude) {
  const __m128i one = _mm_set1_epi8(1);
  for (uint32_t left = tiles; left;) {
    __m128i sum = _mm_setzero_si128(), size = sum;
    const uint32_t count = left < window ? left : window;
#pragma GCC unroll 2
    for (uint32_t i = 0; i < count; i += 2, q += 2) {
      const __m128i both = _mm_add_epi8(_mm_abs_epi8(q[0]), _mm_abs_epi8(q[1])); /* at most 254 */
      sum = _mm_add_epi16(sum, _mm_add_epi16(_mm_maddubs_epi16(times, q[0]), _mm_maddubs_epi16(times, q[1])));
      size = _mm_add_epi16(size, _mm_maddubs_epi16(both, one));
    }
    *offset++ = sum, *magnitude++ = size;
    left -= count;
  }
}

/* Twice as long windows, n of them so far. */
static void merge(__m128i *x, uint32_t n) {
  for (uint32_t i = 0; i + 1 < n; i += 2) x[i / 2] = _mm_add_epi16(x[i], x[i + 1]);
  if (n % 2) x[n / 2] = x[n - 1];
}

static int fits(const __m128i *magnitude, uint32_t n, int32_t top) {
  __m128i most = magnitude[0];
  for (uint32_t i = 1; i < n; i++) most = _mm_max_epi16(most, magnitude[i]);
  const __m128i over = _mm_cmpgt_epi16(most, _mm_set1_epi16((int16_t)(INT16_MAX / top)));
  return _mm_testz_si128(over, over);
}

/* Offsets of windows of eight tiles if their magnitudes times the largest centroid fit 16 bits, else of four, else of
 * two. */
static void offsets(rows7 *x, const kv_span *span, uint32_t which) {
  const __m128i *q = x->places + span->first / 4, times = _mm_set1_epi8((char)-kv_smallest(span));
  __m128i magnitude[KV_MAX_DIM / 8], *offset = x->offset[which];
  const uint32_t tiles = span->channels / 4u, fours = (tiles + 3) / 4;
  measure(q, tiles, 4, times, offset, magnitude);
  if (!fits(magnitude, fours, kv_top(span))) {
    measure(q, tiles, 2, times, offset, magnitude);
    x->window[which] = 2;
    return;
  }
  x->window[which] = 4;
  merge(magnitude, fours);
  if (!fits(magnitude, (fours + 1) / 2, kv_top(span))) return;
  merge(offset, fours);
  x->window[which] = 8;
}

/* Sum of the four pairs of words, in each of them. */
static inline __m128i all_pairs(__m128i x) {
  x = _mm_add_epi16(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_add_epi16(x, _mm_shuffle_epi32(x, 0xb1));
}

/* Of one row, for windows of four tiles, two words each; 0 if their sums would not fit. */
static int offsets_of_four(rows7 *x, const kv_span *span, uint32_t which) {
  const __m128i times = _mm_set1_epi8((char)-kv_smallest(span)), one = _mm_set1_epi8(1);
  uint8_t *offset = (uint8_t *)x->offset[which];
  __m128i magnitude = _mm_setzero_si128();
  if (span->channels % 16) return 0;
  for (uint32_t c = 0; c < span->channels; c += 16, offset += 4) {
    const __m128i q = _mm_loadu_si128((const __m128i *)(x->q + span->first + c));
    const __m128i sum = all_pairs(_mm_maddubs_epi16(times, q));
    magnitude = _mm_max_epi16(magnitude, all_pairs(_mm_maddubs_epi16(_mm_abs_epi8(q), one)));
    _mm_storeu_si32(offset, sum);
  }
  x->window[which] = 4;
  return fits(&magnitude, 1, kv_top(span));
}

/* Of one row, at every second place: sixteen channels are two windows. */
static void offsets_of_one(rows7 *x, const kv_span *span, uint32_t which, uint32_t tokens) {
  if (tokens >= LONG && offsets_of_four(x, span, which)) return;
  x->window[which] = 2;
  const __m128i times = _mm_set1_epi8((char)-kv_smallest(span));
  const int8_t *q = x->q + span->first;
  for (uint32_t c = 0; c < span->channels; c += 16) {
    const __m128i *from = (const __m128i *)(q + c);
    __m128i sum = _mm_maddubs_epi16(times, span->channels - c < 16 ? _mm_loadl_epi64(from) : _mm_loadu_si128(from));
    x->offset[which][c / 16] = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
  }
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

/* `count` tiles, and what is left of them to the sums. */
KV_INLINE void window7(const uint8_t *tiles, uint32_t count, const int8_t *q, const int16_t *offset, __m256i table,
                       const kv_masks *m, __m256i (*total)[2], uint32_t bits, uint32_t rows) {
  __m256i sum[KV_ROWS_AVX2][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = kv_each(offset + 2 * r);
  for (; count; count--, q += rows == 1 ? 4 : 16, tiles += 8 * bits) {
    const kv_tile8 t = kv_decode_avx2(tiles, bits, table, m);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      const __m256i each = kv_each(q + 4 * r);
      sum[r][0] = _mm256_sub_epi16(sum[r][0], _mm256_maddubs_epi16(t.low, each));
      sum[r][1] = _mm256_sub_epi16(sum[r][1], _mm256_maddubs_epi16(t.high, each));
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
      total[r][half] = _mm256_add_epi32(_mm256_madd_epi16(sum[r][half], kv_mask(m->minus_one)), total[r][half]);
}

KV_INLINE void span7(const part *p, const rows7 *x, uint32_t bits, uint32_t rows) {
  const kv_masks *m = kv_masks_avx2();
  const uint32_t which = p->span->first != 0, window = x->window[which];
  const uint8_t *block = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16, block += p->block_bytes) {
    const int8_t *q = x->q + p->span->first * (rows == 1 ? 1u : 4u);
    const int16_t *offset = (const int16_t *)x->offset[which];
    const uint8_t *tiles = block;
    __m256i total[KV_ROWS_AVX2][2];
    load_sums(p, token, 0, total, rows);
    if (rows == 1 && window == 4)
      for (uint32_t left = p->span->channels; left; left -= 16, q += 16, tiles += 32 * bits, offset += 2)
        window7(tiles, 4, q, offset, p->table, m, total, bits, rows);
    else if (rows == 1)
      for (uint32_t left = p->span->channels; left; left -= 8, q += 8, tiles += 16 * bits, offset += 4)
        window7(tiles, 2, q, offset, p->table, m, total, bits, rows);
    else
      for (uint32_t left = p->span->channels / 4u, count; left; left -= count) {
        count = left < window ? left : window;
        window7(tiles, count, q, offset, p->table, m, total, bits, rows);
        q += 16 * count, tiles += 8 * bits * count, offset += 8;
      }
    store_sums(p, token, total, rows);
  }
}
KV_INSTANCES(span7, (const part *p, const rows7 *x), p, x)

KV_INLINE void span15(const part *p, const rows15 *x, uint32_t bits, uint32_t rows) {
  const kv_masks *m = kv_masks_avx2();
  const uint8_t *block = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16, block += p->block_bytes) {
    const int16_t *q = x->q[0] + p->span->first;
    const uint8_t *tiles = block;
    __m256i sum[KV_ROWS_AVX2][2];
    load_sums(p, token, x->offset, sum, rows);
    kv_tile8 next = kv_decode_avx2(tiles, bits, p->table, m);
    for (uint32_t left = p->span->channels / 4u; left; left--, q += 4) {
      kv_tile8 t = next;
      tiles += left > 1 ? 8 * bits : 0; /* the last tile once more: leaving it out was slower */
      next = kv_decode_avx2(tiles, bits, p->table, m);
      kv_in_order(&t, &next);
      kv_add_tile16(t, q, q, KV_MAX_DIM, rows, m, sum);
    }
    store_sums(p, token, sum, rows);
  }
}
KV_INSTANCES(span15, (const part *p, const rows15 *x), p, x)

static uint32_t rows_of(uint32_t left) { return left < KV_ROWS_AVX2 ? left : KV_ROWS_AVX2; }

/* Span i, for rows whose sums are at out. */
static part part_of(const kv_codec *codec, uint32_t i, const uint8_t *tiles, uint32_t tokens, int32_t *out,
                    uint32_t stride) {
  const kv_span *span = &codec->span[i];
  const uint64_t all = kv_code_bytes(codec, 16);
  if (i) tiles += all - 2ull * span->channels * span->bits;
  return (part){span, tiles, all, tokens, out, stride, kv_table_avx2(span)};
}

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                     uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  rows7 x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2) {
    const uint32_t count = rows_of(rows - r);
    x.q = q + r * d;
    if (count > 1) {
      interleave(x.q, d, count, x.places);
      x.q = (const int8_t *)x.places;
    }
    for (uint32_t i = 0; i < codec->spans; i++) {
      const part p = part_of(codec, i, tiles, tokens, out + r * stride, stride);
      if (count > 1) offsets(&x, p.span, i);
      else offsets_of_one(&x, p.span, i, tokens);
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
      kv_arrange(row, d, x.q[i]);
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
