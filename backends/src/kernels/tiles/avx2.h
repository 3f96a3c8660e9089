/* Tiles decoded to bytes in registers: u = integer - smallest integer of the table, so 0 .. 124, lane by lane. */
#ifndef KV_TILES_AVX2_H
#define KV_TILES_AVX2_H

#include "kernels/avx2.h"
#include "kernels/instances.h"

typedef struct kv_tile8 {
  __m256i low, high; /* lanes 0-7, lanes 8-15; 4 summands each */
} kv_tile8;

/* What u is short of the integer, times the sum of the multipliers, is added to every sum. */
static inline int32_t kv_smallest(const kv_span *span) { return span->book->table[0]; }
static inline int32_t kv_top(const kv_span *span) { return span->book->table[(1u << span->bits) - 1]; }

/* Entries by code. Of a 3-bit table, entry 4 * (code & 3) is that of a code above 3, the one before it that of one
 * below 4: one addition joins the two planes of a tile. Code 0 looks up -1, which gives 0, and its u is 0. */
static inline __m256i kv_table_avx2(const kv_span *span) {
  const __m128i table = _mm_loadu_si128((const __m128i *)span->book->table);
  __m128i u = _mm_sub_epi8(table, _mm_set1_epi8((char)kv_smallest(span)));
  const __m128i planes = _mm_setr_epi8(4, -1, -1, 1, 5, -1, -1, 2, 6, -1, -1, 3, 7, -1, -1, -1);
  if (span->bits == 3) u = _mm_shuffle_epi8(u, planes);
  return _mm256_broadcastsi128_si256(u);
}

/* Constants as full registers in memory, which compilers cannot see through. Sums take the registers; what they then
 * make again in every turn, a byte repeated 32 times, would cost a load and a shuffle. */
typedef struct kv_masks {
  _Alignas(32) uint8_t nibble[32], three[32], twelve[32], one[32];
  uint32_t twos[2][8], threes[2][8]; /* shifts of lanes 0-7 and 8-15 */
  uint8_t byte[32], bit[32];
  uint16_t low_byte[16], minus_one[16];
} kv_masks;

#define KV_4(x) x, x, x, x
#define KV_8(x) KV_4(x), KV_4(x)
#define KV_32(x) KV_8(x), KV_8(x), KV_8(x), KV_8(x)
static const kv_masks KV_MASKS = {
    .nibble = {KV_32(15)},
    .three = {KV_32(3)},
    .twelve = {KV_32(12)},
    .one = {KV_32(1)},
    .twos = {{KV_4(0), KV_4(2)}, {KV_4(4), KV_4(6)}},
    .threes = {{KV_4(2), KV_4(0)}, {KV_4(2), KV_4(4)}},
    .byte = {KV_8(0), KV_8(1), KV_8(2), KV_8(3)},
    .bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
            1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128},
    .low_byte = {KV_8(255), KV_8(255)},
    .minus_one = {KV_8(0xffff), KV_8(0xffff)},
};

KV_INLINE const kv_masks *kv_masks_avx2(void) {
  const kv_masks *m = &KV_MASKS;
  __asm__("" : "+r"(m));
  return m;
}
KV_INLINE __m256i kv_mask(const void *mask) { return _mm256_load_si256((const __m256i *)mask); }

/* 32 bits to 32 bytes: all ones where the bit is clear. */
KV_INLINE __m256i kv_clear32(const uint8_t *bits, const kv_masks *m) {
  const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32((int)kv_load32(bits)), kv_mask(m->byte));
  return _mm256_cmpeq_epi8(_mm256_andnot_si256(x, kv_mask(m->bit)), kv_mask(m->bit));
}

/* Indices into the table. 2-bit codes: byte j has codes j, j+16, j+32, j+48, so a broadcast shifted by 0 and 2 is
 * lanes 0-7. A look-up heeds bits 0-3 and 7 of an index. */
KV_INLINE kv_tile8 kv_indices(const uint8_t *tile, uint32_t bits, const kv_masks *m) {
  kv_tile8 t;
  if (bits == 4) {
    const __m256i x = _mm256_loadu_si256((const __m256i *)tile);
    t.low = _mm256_and_si256(x, kv_mask(m->nibble));
    t.high = _mm256_and_si256(_mm256_srli_epi16(x, 4), kv_mask(m->nibble));
    return t;
  }
  if (bits == 1) {
    t.low = _mm256_add_epi8(kv_clear32(tile, m), kv_mask(m->one));
    t.high = _mm256_add_epi8(kv_clear32(tile + 4, m), kv_mask(m->one));
    return t;
  }
  const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)tile));
  if (bits == 2) {
    t.low = _mm256_and_si256(_mm256_srlv_epi32(x, kv_mask(m->twos[0])), kv_mask(m->three));
    t.high = _mm256_and_si256(_mm256_srlv_epi32(x, kv_mask(m->twos[1])), kv_mask(m->three));
    return t;
  }
  t.low = _mm256_and_si256(_mm256_sllv_epi32(x, kv_mask(m->threes[0])), kv_mask(m->twelve));
  t.high = _mm256_and_si256(_mm256_srlv_epi32(x, kv_mask(m->threes[1])), kv_mask(m->twelve));
  t.low = _mm256_add_epi8(t.low, kv_clear32(tile + 16, m));
  t.high = _mm256_add_epi8(t.high, kv_clear32(tile + 20, m));
  return t;
}

KV_INLINE kv_tile8 kv_decode_avx2(const uint8_t *tile, uint32_t bits, __m256i table, const kv_masks *m) {
  const kv_tile8 t = kv_indices(tile, bits, m);
  return (kv_tile8){_mm256_shuffle_epi8(table, t.low), _mm256_shuffle_epi8(table, t.high)};
}

/* Keeps what comes after from what was before: `next` is decoded while `now` is used, so that neither waits for the
 * other, and compilers would move it to where it is used. */
KV_INLINE void kv_in_order(kv_tile8 *now, kv_tile8 *next) {
  __asm__("" : "+x"(now->low), "+x"(now->high), "+x"(next->low), "+x"(next->high));
}

/* 16-bit multipliers of four summands as (0, 2), (1, 3), in which order vpmaddwd takes them; n a multiple of 8. */
static inline void kv_arrange(const int16_t *x, uint32_t n, int16_t *out) {
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n; i += 8)
    _mm_storeu_si128((__m128i *)(out + i), _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(x + i)), order));
}

/* n a multiple of 8. */
static inline int32_t kv_sum16(const int16_t *x, uint32_t n) {
  __m128i sum = _mm_setzero_si128();
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n; i += 8)
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_loadu_si128((const __m128i *)(x + i)), _mm_set1_epi16(1)));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
}

/* Four bytes or two words, to every lane. */
KV_INLINE __m256i kv_each(const void *p) { return _mm256_set1_epi32((int)kv_load32(p)); }

/* acc += tile times 16-bit multipliers, arranged, for rows of them `stride` apart; `low` and `high` say where those of
 * lanes 0-7 and 8-15 begin. Summands 0 and 2 first, then 1 and 3, so that few registers are in use at once. */
KV_INLINE void kv_add_tile16(kv_tile8 t, const int16_t *low, const int16_t *high, uint32_t stride, uint32_t rows,
                             const kv_masks *m, __m256i (*acc)[2]) {
  const __m256i low0 = _mm256_and_si256(t.low, kv_mask(m->low_byte));
  const __m256i high0 = _mm256_and_si256(t.high, kv_mask(m->low_byte));
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(low0, kv_each(low + r * stride)));
    acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(high0, kv_each(high + r * stride)));
  }
  const __m256i low1 = _mm256_srli_epi16(t.low, 8), high1 = _mm256_srli_epi16(t.high, 8);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(low1, kv_each(low + r * stride + 2)));
    acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(high1, kv_each(high + r * stride + 2)));
  }
}

#define KV_ROWS_AVX2 4u /* rows of one pass: eight sums, the decoded registers and the rest fit sixteen */

#endif
