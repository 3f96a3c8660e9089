/* Tiles decoded to bytes: u = integer - smallest integer of the table, so 0 .. 124, lane by lane, lanes 0-7 and 8-15. */
#ifndef KV_TILES_AVX2_H
#define KV_TILES_AVX2_H

#include "../avx2.h"
#include "../instances.h"

typedef struct kv_tile8 {
  __m256i low, high; /* lanes 0-7, lanes 8-15; 4 summands each */
} kv_tile8;

/* What u is short of the integer, times the sum of the multipliers, is added to every sum. */
static inline int32_t kv_smallest(const kv_span *span) { return span->book->table[0]; }
static inline int32_t kv_top(const kv_span *span) { return span->book->table[(1u << span->bits) - 1]; }

/* Entries by code; of a 3-bit table, entry 4 * (code & 3) is that of the code + 4, and one less that of the code. Code 0
 * then looks up -1, which gives 0, and u of code 0 is 0. */
static inline __m256i kv_table_avx2(const kv_span *span) {
  const __m128i table = _mm_loadu_si128((const __m128i *)span->book->table);
  __m128i u = _mm_sub_epi8(table, _mm_set1_epi8((char)kv_smallest(span)));
  if (span->bits == 3) u = _mm_shuffle_epi8(u, _mm_setr_epi8(4, -1, -1, 1, 5, -1, -1, 2, 6, -1, -1, 3, 7, -1, -1, -1));
  return _mm256_broadcastsi128_si256(u);
}

/* As full registers in memory that compilers cannot see through: sums take the registers, and an operand in memory costs
 * nothing where a constant made again in every turn costs an instruction. */
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
  return _mm256_cmpeq_epi8(_mm256_and_si256(x, kv_mask(m->bit)), _mm256_setzero_si256());
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

/* Summands 0 and 2 of each lane, and 1 and 3, as 16-bit integers; with multipliers in the same order vpmaddwd sums both
 * of a lane into its 32 bits. Of lanes 0-7 and 8-15. */
typedef struct kv_tile16 {
  __m256i low[2], high[2];
} kv_tile16;

KV_INLINE kv_tile16 kv_widen(kv_tile8 t, const kv_masks *m) {
  const __m256i byte = kv_mask(m->low_byte);
  return (kv_tile16){{_mm256_and_si256(t.low, byte), _mm256_srli_epi16(t.low, 8)},
                     {_mm256_and_si256(t.high, byte), _mm256_srli_epi16(t.high, 8)}};
}

/* Multipliers of a tile and row as vpmaddwd takes them, in every lane: of summands 0 and 2, of 1 and 3. Prepared in
 * memory once and read many times: four vpmaddwd a tile and row bind, and loads of their own would cost half as much. */
typedef struct kv_pairs {
  __m256i even, odd;
} kv_pairs;

/* x[n], n a multiple of 4, to out[(i / 4) * rows]. */
static inline void kv_pair(const int16_t *x, uint32_t n, uint32_t rows, kv_pairs *out) {
  const __m256i even = _mm256_set1_epi32(0x05040100), odd = _mm256_set1_epi32(0x07060302);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n; i += 4, out += rows) {
    const __m256i four = _mm256_set1_epi64x((long long)kv_load64(x + i));
    out->even = _mm256_shuffle_epi8(four, even);
    out->odd = _mm256_shuffle_epi8(four, odd);
  }
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

/* The same pointer, for all that compilers know another: what is read through both is not kept in a register. */
KV_INLINE const kv_pairs *kv_apart(const kv_pairs *p) {
  __asm__("" : "+r"(p));
  return p;
}

/* acc += tile times multipliers, of `rows` rows one after the other. */
KV_INLINE void kv_add_tile16(kv_tile16 t, const kv_pairs *low, const kv_pairs *high, uint32_t rows,
                             __m256i (*acc)[2]) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(t.low[0], low[r].even));
    acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(t.high[0], high[r].even));
    acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(t.low[1], low[r].odd));
    acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(t.high[1], high[r].odd));
  }
}

#define KV_ROWS_AVX2 4u /* rows of one pass: eight sums, the decoded registers and the rest fit sixteen */

#endif
