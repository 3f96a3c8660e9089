/* Tiles decoded to bytes in registers: u = integer + 64, so 1 .. 127, lane by lane, lanes 0-7 and 8-15. */
#ifndef KV_TILES_AVX2_H
#define KV_TILES_AVX2_H

#include "../avx2.h"
#include "../instances.h"

#define KV_OFFSET 64 /* makes every centroid an unsigned byte, as one operand of vpmaddubsw must be */

typedef struct kv_tile8 {
  __m256i low, high; /* lanes 0-7, lanes 8-15; 4 summands each */
} kv_tile8;

static inline __m256i kv_table_avx2(const kv_span *span) {
  const __m128i table = _mm_loadu_si128((const __m128i *)span->book->table);
  return _mm256_broadcastsi128_si256(_mm_add_epi8(table, _mm_set1_epi8(KV_OFFSET)));
}

/* 32 bits to 32 bytes: all ones where the bit is set. */
KV_INLINE __m256i kv_spread32(const uint8_t *bits) {
  const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
  __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32((int)kv_load32(bits)), byte);
  return _mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit);
}

/* 2-bit codes: byte j has codes j, j+16, j+32, j+48, so a broadcast shifted by 0 and 2 is lanes 0-7. */
KV_INLINE kv_tile8 kv_twos(const uint8_t *tile) {
  const __m256i three = _mm256_set1_epi8(3);
  __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)tile));
  return (kv_tile8){_mm256_and_si256(_mm256_srlv_epi32(x, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2)), three),
                    _mm256_and_si256(_mm256_srlv_epi32(x, _mm256_setr_epi32(4, 4, 4, 4, 6, 6, 6, 6)), three)};
}

KV_INLINE kv_tile8 kv_codes_avx2(const uint8_t *tile, uint32_t bits) {
  kv_tile8 t;
  if (bits == 4) {
    const __m256i x = _mm256_loadu_si256((const __m256i *)tile), nibble = _mm256_set1_epi8(15);
    return (kv_tile8){_mm256_and_si256(x, nibble), _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble)};
  }
  if (bits == 1) {
    const __m256i one = _mm256_set1_epi8(1);
    return (kv_tile8){_mm256_and_si256(kv_spread32(tile), one), _mm256_and_si256(kv_spread32(tile + 4), one)};
  }
  t = kv_twos(tile);
  if (bits == 3) {
    const __m256i four = _mm256_set1_epi8(4);
    t.low = _mm256_or_si256(t.low, _mm256_and_si256(kv_spread32(tile + 16), four));
    t.high = _mm256_or_si256(t.high, _mm256_and_si256(kv_spread32(tile + 20), four));
  }
  return t;
}

KV_INLINE kv_tile8 kv_decode_avx2(const uint8_t *tile, uint32_t bits, __m256i table) {
  kv_tile8 t = kv_codes_avx2(tile, bits);
  return (kv_tile8){_mm256_shuffle_epi8(table, t.low), _mm256_shuffle_epi8(table, t.high)};
}

/* Summands 0 and 2 of each lane, and 1 and 3, as 16-bit integers: with the multipliers in the same order
 * vpmaddwd sums both of a lane into its 32 bits. */
KV_INLINE __m256i kv_even(__m256i u) { return _mm256_and_si256(u, _mm256_set1_epi16(255)); }
KV_INLINE __m256i kv_odd(__m256i u) { return _mm256_srli_epi16(u, 8); }

/* 16-bit multipliers of four summands as (0, 2), (1, 3); n a multiple of 4, of 8 where it is cheaper. */
static inline void kv_arrange(const int16_t *x, uint32_t n, int16_t *out) {
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  for (uint32_t i = 0; i < n; i += 8)
    _mm_storeu_si128((__m128i *)(out + i), _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(x + i)), order));
}

static inline int32_t kv_sum16(const int16_t *x, uint32_t n) {
  __m128i sum = _mm_setzero_si128();
  for (uint32_t i = 0; i < n; i += 8)
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_loadu_si128((const __m128i *)(x + i)), _mm_set1_epi16(1)));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
}

/* Four bytes or two words, to every lane. */
KV_INLINE __m256i kv_each(const void *p) { return _mm256_set1_epi32((int)kv_load32(p)); }

/* acc += tile times 16-bit multipliers, for rows of multipliers `stride` apart; `low` and `high` say where those of
 * lanes 0-7 and 8-15 begin. Four vpmaddwd a tile and row bind, on the two multiply ports. */
KV_INLINE void kv_add_tile16(kv_tile8 t, const int16_t *low, const int16_t *high, uint32_t stride, uint32_t rows,
                             __m256i (*acc)[2]) {
  const __m256i low0 = kv_even(t.low), low1 = kv_odd(t.low), high0 = kv_even(t.high), high1 = kv_odd(t.high);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, low += stride, high += stride) {
    acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(low0, kv_each(low)));
    acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(high0, kv_each(high)));
    acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(low1, kv_each(low + 2)));
    acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(high1, kv_each(high + 2)));
  }
}

#define KV_ROWS_AVX2 4u /* rows of one pass: eight sums, four decoded registers and the rest fit sixteen */

#endif
