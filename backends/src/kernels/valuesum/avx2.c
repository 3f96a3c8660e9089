/* Lane = channel, summand = token. 14-bit weights and u as 16-bit integers, vpmaddwd; what u is short of the integers,
 * times the sum of the weights, is added at the start. 1024 * 16383 * 124 is below 2^31. */
#include "../tiles/avx2.h"

#define TOKENS 128u /* of one pass: their weights stay in the first-level cache */

/* Some tokens of one span for up to four rows. */
typedef struct part {
  const uint8_t *tiles; /* of the first group of channels */
  uint64_t group_bytes; /* of 16 channels */
  uint32_t first, tokens, channels;
  __m256i table;
  kv_pairs w[TOKENS / 4 * KV_ROWS_AVX2]; /* [tokens / 4][rows] */
  int32_t offset[KV_ROWS_AVX2];
  int32_t *out; /* [rows][stride]; added to unless these are the first tokens */
  uint32_t stride;
} part;

/* One group of 16 channels, or of 8: then lanes 8-15 are the same channels of tokens that are one tile `ahead`. */
KV_INLINE void group(const part *p, const uint8_t *tiles, int32_t *out, uint32_t ahead, uint32_t bits, uint32_t rows) {
  const kv_masks *m = kv_masks_avx2();
  const kv_pairs *w = p->w, *end = w + p->tokens / 4 * rows;
  __m256i acc[KV_ROWS_AVX2][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    acc[r][0] = _mm256_set1_epi32(p->offset[r]);
    acc[r][1] = ahead ? _mm256_setzero_si256() : acc[r][0];
  }
  for (; w < end; w += (1 + ahead) * rows, tiles += 8 * bits)
    kv_add_tile16(kv_widen(kv_decode_avx2(tiles, bits, p->table, m), m), w, kv_apart(w + ahead * rows), rows, acc);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, out += p->stride) {
    __m256i *to = (__m256i *)out;
    if (ahead) acc[r][0] = _mm256_add_epi32(acc[r][0], acc[r][1]);
    if (p->first) acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_loadu_si256(to));
    _mm256_storeu_si256(to, acc[r][0]);
    if (ahead) continue;
    if (p->first) acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_loadu_si256(to + 1));
    _mm256_storeu_si256(to + 1, acc[r][1]);
  }
}

KV_INLINE void sums(const part *p, uint32_t bits, uint32_t rows) {
  const uint8_t *tiles = p->tiles + 2ull * bits * p->first;
  uint32_t c = 0;
  for (; c + 16 <= p->channels; c += 16, tiles += p->group_bytes) group(p, tiles, p->out + c, 0, bits, rows);
  if (c < p->channels) group(p, tiles - 1ull * bits * p->first, p->out + c, 1, bits, rows);
}
KV_INSTANCES(sums, (const part *p), p)

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                      int32_t *out, uint32_t stride, uint32_t *ran) {
  part p;
  KV_RAN(ran);
  p.tiles = tiles, p.group_bytes = 2ull * tokens * span->bits, p.channels = span->channels;
  p.table = kv_table_avx2(span), p.stride = stride;
  for (uint32_t r = 0; r < rows; r += KV_ROWS_AVX2)
    for (p.first = 0; p.first < tokens; p.first += TOKENS) {
      const uint32_t count = rows - r < KV_ROWS_AVX2 ? rows - r : KV_ROWS_AVX2;
      p.tokens = tokens - p.first < TOKENS ? tokens - p.first : TOKENS;
      p.out = out + r * stride;
      for (uint32_t i = 0; i < count; i++) {
        const int16_t *row = w + (r + i) * tokens + p.first;
        kv_pair(row, p.tokens, count, p.w + i);
        p.offset[i] = kv_smallest(span) * kv_sum16(row, p.tokens);
      }
      sums_of[span->bits - 1][count - 1](&p);
    }
}
