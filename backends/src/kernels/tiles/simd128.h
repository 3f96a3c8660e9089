/* Tiles decoded to bytes in registers: u = integer + 64, so 1 .. 127, four summands a lane. A tile is worked on in
 * halves, lanes 0-7 and lanes 8-15: the sums of four rows then fit the registers. */
#ifndef KV_TILES_SIMD128_H
#define KV_TILES_SIMD128_H

#include "../instances.h"
#include "../simd128.h"

#define KV_OFFSET 64 /* makes every centroid an unsigned byte below 128 */
#define KV_ROWS 4u   /* of one pass */

/* Codes are below 16, so that both swizzles give the same; the relaxed one is a single instruction everywhere. */
#ifdef __wasm_relaxed_simd__
#define KV_LOOK_UP(table, codes) wasm_i8x16_relaxed_swizzle(table, codes)
#else
#define KV_LOOK_UP(table, codes) wasm_i8x16_swizzle(table, codes)
#endif

static inline v128_t kv_table_simd128(const kv_span *span) {
  return wasm_i8x16_add(KV_LOAD(span->book->table), wasm_i8x16_const_splat(KV_OFFSET));
}

/* Bits 16 * quad .. of 64, each to a byte: all ones where it is set. */
KV_ALWAYS v128_t kv_spread(v128_t bits, uint32_t quad) {
  const v128_t bit = wasm_u64x2_const_splat(0x8040201008040201ull);
  v128_t x;
  switch (quad) {
    case 0: x = wasm_i8x16_shuffle(bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1); break;
    case 1: x = wasm_i8x16_shuffle(bits, bits, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3); break;
    case 2: x = wasm_i8x16_shuffle(bits, bits, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5); break;
    default: x = wasm_i8x16_shuffle(bits, bits, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7);
  }
  return wasm_i8x16_eq(wasm_v128_and(x, bit), bit);
}

/* Lanes 4 * quad .. of a tile. */
KV_ALWAYS v128_t kv_codes(const uint8_t *tile, uint32_t bits, uint32_t quad) {
  if (bits == 4) {
    const v128_t x = KV_LOAD(tile + 16 * (quad % 2));
    return wasm_v128_and(quad < 2 ? x : wasm_u16x8_shr(x, 4), wasm_i8x16_const_splat(15));
  }
  if (bits == 1) return wasm_v128_and(kv_spread(wasm_v128_load64_zero(tile), quad), wasm_i8x16_const_splat(1));
  const v128_t low = wasm_v128_and(wasm_u16x8_shr(KV_LOAD(tile), 2 * quad), wasm_i8x16_const_splat(3));
  if (bits == 2) return low;
  const v128_t high = kv_spread(wasm_v128_load64_zero(tile + 16), quad);
  return wasm_v128_or(low, wasm_v128_and(high, wasm_i8x16_const_splat(4)));
}

KV_ALWAYS v128_t kv_decode(const uint8_t *tile, uint32_t bits, uint32_t quad, v128_t table) {
  return KV_LOOK_UP(table, kv_codes(tile, bits, quad));
}

/* 16-bit multipliers of four summands as (0, 2), (1, 3): so summands 0 and 2 of a lane are its bytes masked, 1 and 3
 * its bytes shifted, and a dot product sums two of a lane into its 32 bits. n is a multiple of 8, or of 4. */
static inline void kv_arrange(const int16_t *x, uint32_t n, int16_t *out) {
  for (uint32_t i = 0; i < n; i += 8) KV_STORE(out + i, wasm_i16x8_shuffle(KV_LOAD(x + i), KV_LOAD(x + i), 0, 2, 1, 3, 4, 6, 5, 7));
}

static inline int32_t kv_sum4(v128_t x) {
  x = wasm_i32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  x = wasm_i32x4_add(x, wasm_i32x4_shuffle(x, x, 1, 0, 3, 2));
  return wasm_i32x4_extract_lane(x, 0);
}

static inline int32_t kv_sum16(const int16_t *x, uint32_t n) {
  v128_t sum = wasm_i64x2_const_splat(0);
  for (uint32_t i = 0; i < n; i += 8)
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(KV_LOAD(x + i), wasm_i16x8_const_splat(1)));
  return kv_sum4(sum);
}

/* Four bytes or two words, to every lane. */
KV_ALWAYS v128_t kv_each(const void *p) { return wasm_v128_load32_splat(p); }

/* acc += half a tile times arranged 16-bit multipliers, for rows of them `stride` apart. */
KV_ALWAYS void kv_add_half16(const uint8_t *tile, uint32_t bits, uint32_t half, v128_t table, const int16_t *x,
                             uint32_t stride, uint32_t rows, v128_t (*acc)[2]) {
  v128_t even[2], odd[2];
#pragma GCC unroll 2
  for (uint32_t k = 0; k < 2; k++) {
    const v128_t u = kv_decode(tile, bits, 2 * half + k, table);
    even[k] = wasm_v128_and(u, wasm_i16x8_const_splat(255));
    odd[k] = wasm_u16x8_shr(u, 8);
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, x += stride) {
    const v128_t first = kv_each(x), second = kv_each(x + 2);
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; k++) {
      acc[r][k] = wasm_i32x4_add(acc[r][k], wasm_i32x4_dot_i16x8(even[k], first));
      acc[r][k] = wasm_i32x4_add(acc[r][k], wasm_i32x4_dot_i16x8(odd[k], second));
    }
  }
}

#endif
