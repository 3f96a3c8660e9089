/* Sixty-four codes to a tile. */
#ifndef KV_PACK_AVX2_TILE_H
#define KV_PACK_AVX2_TILE_H

#include "kernels/avx2.h"

/* The 64 codes of a tile, in order. */
typedef struct codes64 {
  __m128i part[4];
} codes64;

/* The highest bit of each byte after a shift that brings bit `bit` there. */
static inline uint64_t plane(const codes64 *c, int bit) {
  uint64_t bits = 0;
  for (int i = 0; i < 4; i++)
    bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_sll_epi16(c->part[i], _mm_cvtsi32_si128(7 - bit))) << 16 * i;
  return bits;
}

static inline void store(uint8_t *p, __m128i x) { _mm_storeu_si128((__m128i *)p, x); }

static inline uint8_t *pack_tile(const codes64 *c, uint32_t bits, uint8_t *tile) {
  const __m128i mask = _mm_set1_epi8(bits == 4 ? 15 : 3);
  __m128i x[4];
  if (bits == 1) {
    kv_store64(tile, plane(c, 0));
    return tile + 8;
  }
  for (int i = 0; i < 4; i++) x[i] = _mm_and_si128(c->part[i], mask);
  if (bits == 4) {
    store(tile, _mm_or_si128(x[0], _mm_slli_epi16(x[2], 4)));
    store(tile + 16, _mm_or_si128(x[1], _mm_slli_epi16(x[3], 4)));
    return tile + 32;
  }
  const __m128i low = _mm_or_si128(x[0], _mm_slli_epi16(x[1], 2));
  store(tile, _mm_or_si128(low, _mm_or_si128(_mm_slli_epi16(x[2], 4), _mm_slli_epi16(x[3], 6))));
  if (bits == 2) return tile + 16;
  kv_store64(tile + 16, plane(c, 2));
  return tile + 24;
}

#endif
