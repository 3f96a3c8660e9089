/* Tiles decoded to bytes in registers: u = integer + 64, so 1 .. 127, four summands a lane. A tile is worked on in
 * halves, lanes 0-7 and lanes 8-15: the sums of four rows then fit the registers. */
#ifndef KV_TILES_SIMD128_H
#define KV_TILES_SIMD128_H

#include "kernels/instances.h"
#include "kernels/simd128.h"

#define KV_OFFSET 64 /* makes every centroid an unsigned byte below 128 */
#define KV_ROWS 4u   /* of one pass */

/* Codes are below 16, so that both swizzles give the same; the relaxed one is a single instruction everywhere. */
#ifdef __wasm_relaxed_simd__
#define KV_LOOK_UP(table, codes) wasm_i8x16_relaxed_swizzle(table, codes)
#else
#define KV_LOOK_UP(table, codes) wasm_i8x16_swizzle(table, codes)
#endif

/* A bit of its own plane comes last and inverted, since a comparison with zero is the cheapest: of three bits, entry
 * 2 * low + 1 - high, of one, entry 1 - code. */
static inline v128_t kv_table_simd128(const kv_span *span) {
  const v128_t table = wasm_i8x16_add(KV_LOAD(span->book->table), wasm_i8x16_const_splat(KV_OFFSET));
  if (span->bits == 3) return wasm_i8x16_shuffle(table, table, 4, 0, 5, 1, 6, 2, 7, 3, 0, 0, 0, 0, 0, 0, 0, 0);
  if (span->bits == 1) return wasm_i8x16_shuffle(table, table, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return table;
}

/* Bits 16 * quad .. of 64, each to a byte: all ones where it is clear. */
KV_ALWAYS v128_t kv_clear(v128_t bits, uint32_t quad) {
  const v128_t bit = wasm_u64x2_const_splat(0x8040201008040201ull);
  v128_t x;
  switch (quad) {
    case 0: x = wasm_i8x16_shuffle(bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1); break;
    case 1: x = wasm_i8x16_shuffle(bits, bits, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3); break;
    case 2: x = wasm_i8x16_shuffle(bits, bits, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5); break;
    default: x = wasm_i8x16_shuffle(bits, bits, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7);
  }
  return wasm_i8x16_eq(wasm_v128_and(x, bit), wasm_i64x2_const_splat(0));
}

/* Where lanes 4 * quad .. of a tile find their integers in the table. */
KV_ALWAYS v128_t kv_entries(const uint8_t *tile, uint32_t bits, uint32_t quad) {
  if (bits == 4) {
    const v128_t x = KV_LOAD(tile + 16 * (quad % 2));
    return wasm_v128_and(quad < 2 ? x : wasm_u16x8_shr(x, 4), wasm_i8x16_const_splat(15));
  }
  if (bits == 1) return wasm_v128_and(kv_clear(wasm_v128_load64_zero(tile), quad), wasm_i8x16_const_splat(1));
  const v128_t x = KV_LOAD(tile);
  if (bits == 2) return wasm_v128_and(wasm_u16x8_shr(x, 2 * quad), wasm_i8x16_const_splat(3));
  const v128_t low = quad == 0 ? wasm_i16x8_shl(x, 1) : wasm_u16x8_shr(x, 2 * quad - 1);
  return wasm_i8x16_sub(wasm_v128_and(low, wasm_i8x16_const_splat(6)), kv_clear(wasm_v128_load64_zero(tile + 16), quad));
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

static inline int32_t kv_sum4(v128_t x) {
  x = wasm_i32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  x = wasm_i32x4_add(x, wasm_i32x4_shuffle(x, x, 1, 0, 3, 2));
  return wasm_i32x4_extract_lane(x, 0);
}

/* Columns of tiles, `step` of them from one tile to the next. */
typedef struct kv_multipliers {
  const v128_t *columns;
  uint32_t step;
} kv_multipliers;

/* out[row * stride + lane] += half a tile's lanes times 16-bit multipliers, two columns a tile, over `count` tiles. */
void KV_KERNEL(add_tiles)(const uint8_t *tiles, uint32_t count, const kv_multipliers *x, const kv_span *span,
                          int32_t *out, uint32_t stride, uint32_t half, uint32_t rows);
/* Two columns for four of each row's n multipliers; n is a multiple of 8. And a row's sum. */
void KV_KERNEL(columns16)(const int16_t *x, uint32_t n, uint32_t rows, v128_t *out);
int32_t KV_KERNEL(sum16)(const int16_t *x, uint32_t n);

/* n numbers, a multiple of 4. */
static inline void kv_fill32(int32_t *out, uint32_t n, int32_t x) {
  for (uint32_t i = 0; i < n; i += 4) KV_STORE(out + i, wasm_i32x4_splat(x));
}

static inline uint32_t kv_rows_of(uint32_t left) { return left < KV_ROWS ? left : KV_ROWS; }

#endif
