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

/* Of three bits, the highest bit of a code comes last: entry 2 * low + high. */
static inline v128_t kv_table_simd128(const kv_span *span) {
  const v128_t table = wasm_i8x16_add(KV_LOAD(span->book->table), wasm_i8x16_const_splat(KV_OFFSET));
  return span->bits == 3 ? wasm_i8x16_shuffle(table, table, 0, 4, 1, 5, 2, 6, 3, 7, 0, 0, 0, 0, 0, 0, 0, 0) : table;
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

/* Where lanes 4 * quad .. of a tile find their integers in the table. */
KV_ALWAYS v128_t kv_entries(const uint8_t *tile, uint32_t bits, uint32_t quad) {
  if (bits == 4) {
    const v128_t x = KV_LOAD(tile + 16 * (quad % 2));
    return wasm_v128_and(quad < 2 ? x : wasm_u16x8_shr(x, 4), wasm_i8x16_const_splat(15));
  }
  if (bits == 1) return wasm_v128_and(kv_spread(wasm_v128_load64_zero(tile), quad), wasm_i8x16_const_splat(1));
  const v128_t x = KV_LOAD(tile);
  if (bits == 2) return wasm_v128_and(wasm_u16x8_shr(x, 2 * quad), wasm_i8x16_const_splat(3));
  const v128_t low = quad == 0 ? wasm_i16x8_shl(x, 1) : wasm_u16x8_shr(x, 2 * quad - 1);
  return wasm_i8x16_sub(wasm_v128_and(low, wasm_i8x16_const_splat(6)), kv_spread(wasm_v128_load64_zero(tile + 16), quad));
}

KV_ALWAYS v128_t kv_decode(const uint8_t *tile, uint32_t bits, uint32_t quad, v128_t table) {
  return KV_LOOK_UP(table, kv_entries(tile, bits, quad));
}

/* Multipliers stand ready by tiles: lane r of a vector is row r's part, 32 bits of it, so that one load and a shuffle a
 * row replace a load and a broadcast for each. Columns of four rows, those from `rows` on being 0: */
static inline void kv_columns(const void *x, uint32_t stride_bytes, uint32_t words, uint32_t rows, v128_t *out) {
  for (uint32_t i = 0; i < words; i += 4) {
    v128_t row[KV_ROWS];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < KV_ROWS; r++)
      row[r] = r < rows ? KV_LOAD((const uint32_t *)((const uint8_t *)x + r * stride_bytes) + i) : wasm_i64x2_const_splat(0);
    const v128_t a = wasm_i32x4_shuffle(row[0], row[1], 0, 4, 1, 5), b = wasm_i32x4_shuffle(row[2], row[3], 0, 4, 1, 5);
    const v128_t c = wasm_i32x4_shuffle(row[0], row[1], 2, 6, 3, 7), d = wasm_i32x4_shuffle(row[2], row[3], 2, 6, 3, 7);
    out[i] = wasm_i64x2_shuffle(a, b, 0, 2), out[i + 1] = wasm_i64x2_shuffle(a, b, 1, 3);
    out[i + 2] = wasm_i64x2_shuffle(c, d, 0, 2), out[i + 3] = wasm_i64x2_shuffle(c, d, 1, 3);
  }
}

/* Row r's part, to every lane. */
KV_ALWAYS v128_t kv_row(v128_t column, uint32_t r) {
  switch (r) {
    case 0: return wasm_i32x4_shuffle(column, column, 0, 0, 0, 0);
    case 1: return wasm_i32x4_shuffle(column, column, 1, 1, 1, 1);
    case 2: return wasm_i32x4_shuffle(column, column, 2, 2, 2, 2);
    default: return wasm_i32x4_shuffle(column, column, 3, 3, 3, 3);
  }
}

/* 16-bit multipliers of four summands as (0, 2), (1, 3): so summands 0 and 2 of a lane are its bytes masked, 1 and 3
 * its bytes shifted, and a dot product sums two of a lane into its 32 bits. Two columns a tile; n a multiple of 8. */
static inline void kv_columns16(const int16_t *x, uint32_t n, uint32_t rows, v128_t *out) {
  kv_columns(x, n * sizeof *x, n / 2, rows, out);
  for (uint32_t i = 0; i < n / 2; i += 2) {
    const v128_t a = out[i], b = out[i + 1];
    out[i] = wasm_i16x8_shuffle(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    out[i + 1] = wasm_i16x8_shuffle(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
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

/* acc += half a tile times the two columns of its 16-bit multipliers. */
KV_ALWAYS void kv_add_half16(const uint8_t *tile, uint32_t bits, uint32_t half, v128_t table, const v128_t *columns,
                             uint32_t rows, v128_t (*acc)[2]) {
  const v128_t first = columns[0], second = columns[1];
  v128_t even[2], odd[2];
#pragma GCC unroll 2
  for (uint32_t k = 0; k < 2; k++) {
    const v128_t u = kv_decode(tile, bits, 2 * half + k, table);
    even[k] = wasm_v128_and(u, wasm_i16x8_const_splat(255));
    odd[k] = wasm_u16x8_shr(u, 8);
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; k++) {
      acc[r][k] = wasm_i32x4_add(acc[r][k], wasm_i32x4_dot_i16x8(even[k], kv_row(first, r)));
      acc[r][k] = wasm_i32x4_add(acc[r][k], wasm_i32x4_dot_i16x8(odd[k], kv_row(second, r)));
    }
}

#endif
