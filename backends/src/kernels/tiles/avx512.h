/* Tiles decoded into one register: u = integer + 64, so 1 .. 127, in the order of the codes, lane by lane. */
#ifndef KV_TILES_AVX512_H
#define KV_TILES_AVX512_H

#include "kernels/avx2.h"
#include "kernels/instances.h"

#define KV_OFFSET 64 /* makes every centroid an unsigned byte, as one operand of a byte dot product must be */
#define KV_ROWS_AVX512 4u /* rows of one pass: with two sums each the latency of a dot product is hidden */

/* Entries of codes below 4 or all, and of codes 4 to 7, each repeated over the register. With VBMI a look-up heeds six
 * bits of an index, so whatever lies above a code needs no mask. */
typedef struct kv_tables {
  __m512i low, high;
} kv_tables;

static inline kv_tables kv_tables_avx512(const kv_span *span) {
  const __m128i table = _mm_loadu_si128((const __m128i *)span->book->table);
  const __m128i u = _mm_add_epi8(table, _mm_set1_epi8(KV_OFFSET));
  if (span->bits == 4) return (kv_tables){_mm512_broadcast_i32x4(u), _mm512_setzero_si512()};
  if (span->bits == 1)
    return (kv_tables){_mm512_set1_epi8((char)(span->book->table[0] + KV_OFFSET)),
                       _mm512_set1_epi8((char)(span->book->table[1] + KV_OFFSET))};
  return (kv_tables){_mm512_broadcast_i32x4(_mm_shuffle_epi32(u, 0x00)),
                     _mm512_broadcast_i32x4(_mm_shuffle_epi32(u, 0x55))};
}

#if defined(__AVX512VBMI__) || defined(KV_EMULATE_AVX512VBMI)
#define KV_INDEX(x, mask) (x)
#define KV_LOOKUP(table, index) _mm512_permutexvar_epi8(index, table)
#define KV_LOOKUP_WHERE(from, where, table, index) _mm512_mask_permutexvar_epi8(from, where, index, table)
#else
#define KV_INDEX(x, mask) _mm512_and_si512(x, _mm512_set1_epi8(mask))
#define KV_LOOKUP(table, index) _mm512_shuffle_epi8(table, index)
#define KV_LOOKUP_WHERE(from, where, table, index) _mm512_mask_shuffle_epi8(from, where, table, index)
#endif

/* A broadcast shifted by 0 and 4, or by 0, 2, 4 and 6, has every code at the bottom of its byte. */
KV_INLINE __m512i kv_decode_avx512(const uint8_t *tile, uint32_t bits, kv_tables tables) {
  if (bits == 1) return _mm512_mask_blend_epi8(kv_load64(tile), tables.low, tables.high);
  if (bits == 4) {
    const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(4), 1);
    const __m512i x = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)tile));
    return KV_LOOKUP(tables.low, KV_INDEX(_mm512_srlv_epi32(x, shifts), 15));
  }
  const __m512i shifts = _mm512_set_epi32(6, 6, 6, 6, 4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0);
  const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)tile));
  const __m512i index = KV_INDEX(_mm512_srlv_epi32(x, shifts), 3);
  const __m512i u = KV_LOOKUP(tables.low, index);
  return bits == 2 ? u : KV_LOOKUP_WHERE(u, kv_load64(tile + 16), tables.high, index);
}

/* Four bytes or two words to every lane; or `low` to lanes 0-7 and `high` to lanes 8-15. */
KV_INLINE __m512i kv_each(const void *p) { return _mm512_set1_epi32((int)kv_load32(p)); }
KV_INLINE __m512i kv_halves(const void *low, const void *high) {
  return low == high ? kv_each(low) : _mm512_mask_set1_epi32(kv_each(low), 0xff00, (int)kv_load32(high));
}

static inline int32_t kv_sum16(const int16_t *x, uint32_t n) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

/* 15-bit multipliers of one row, made ready: with VNNI x = 128 * second + first in bytes, two vpdpbusd; without it
 * pairs (0, 2) and (1, 3) of words, two vpmaddwd on u spread to words. */
#define KV_MULTIPLIERS 1024
#if defined(__AVX512VNNI__) || defined(KV_EMULATE_AVX512VNNI)
#define KV_VNNI 1
typedef struct kv_multipliers {
  int8_t first[KV_MULTIPLIERS], second[KV_MULTIPLIERS];
} kv_multipliers;

static inline void kv_prepare(const int16_t *x, uint32_t n, kv_multipliers *m) {
  for (uint32_t i = 0; i < n; i++) {
    m->first[i] = (int8_t)(x[i] & 127);
    m->second[i] = (int8_t)(x[i] >> 7);
  }
}

/* Sums of the two planes stay apart until the end: 1024 * 127 * 127 fits. */
KV_INLINE void kv_add_tile16(__m512i u, const kv_multipliers *m, uint32_t low, uint32_t high, __m512i sum[2]) {
  sum[0] = _mm512_dpbusd_epi32(sum[0], u, kv_halves(m->first + low, m->first + high));
  sum[1] = _mm512_dpbusd_epi32(sum[1], u, kv_halves(m->second + low, m->second + high));
}
KV_INLINE __m512i kv_joined(const __m512i sum[2]) { return _mm512_add_epi32(sum[0], _mm512_slli_epi32(sum[1], 7)); }
#else
#define KV_VNNI 0
typedef struct kv_multipliers {
  int16_t first[KV_MULTIPLIERS]; /* words 4n, 4n + 1: summands 0 and 2; 4n + 2, 4n + 3: 1 and 3 */
} kv_multipliers;

static inline void kv_prepare(const int16_t *x, uint32_t n, kv_multipliers *m) {
  for (uint32_t i = 0; i < n; i += 4) {
    m->first[i] = x[i], m->first[i + 1] = x[i + 2];
    m->first[i + 2] = x[i + 1], m->first[i + 3] = x[i + 3];
  }
}

KV_INLINE void kv_add_tile16(__m512i u, const kv_multipliers *m, uint32_t low, uint32_t high, __m512i sum[2]) {
  const __m512i even = _mm512_and_si512(u, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(u, 8);
  sum[0] = _mm512_add_epi32(sum[0], _mm512_madd_epi16(even, kv_halves(m->first + low, m->first + high)));
  sum[1] = _mm512_add_epi32(sum[1], _mm512_madd_epi16(odd, kv_halves(m->first + low + 2, m->first + high + 2)));
}
KV_INLINE __m512i kv_joined(const __m512i sum[2]) { return _mm512_add_epi32(sum[0], sum[1]); }
#endif

#endif
