/* The one loop of key scans and value sums with 16-bit multipliers: for each number of bits and of rows, and for each
 * half of a tile. */
#include "simd128.h"

KV_ALWAYS void add_half(const uint8_t *tiles, uint32_t count, const kv_multipliers *x, v128_t table, int32_t *out,
                        uint32_t stride, uint32_t half, uint32_t bits, uint32_t rows) {
  const v128_t *columns = x->columns;
  v128_t acc[KV_ROWS][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) acc[r][0] = KV_LOAD(out + r * stride), acc[r][1] = KV_LOAD(out + r * stride + 4);
  for (; count; count--, tiles += 8 * bits, columns += x->step) {
    const v128_t first = columns[0], second = columns[1];
    v128_t even[2], odd[2];
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; k++) {
      const v128_t u = kv_decode(tiles, bits, 2 * half + k, table);
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
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) KV_STORE(out + r * stride, acc[r][0]), KV_STORE(out + r * stride + 4, acc[r][1]);
}

KV_ALWAYS void low(const uint8_t *tiles, uint32_t count, const kv_multipliers *x, v128_t table, int32_t *out,
                   uint32_t stride, uint32_t bits, uint32_t rows) {
  add_half(tiles, count, x, table, out, stride, 0, bits, rows);
}
KV_ALWAYS void high(const uint8_t *tiles, uint32_t count, const kv_multipliers *x, v128_t table, int32_t *out,
                    uint32_t stride, uint32_t bits, uint32_t rows) {
  add_half(tiles, count, x, table, out, stride, 1, bits, rows);
}

#define PARAMETERS                                                                                       \
  (const uint8_t *tiles, uint32_t count, const kv_multipliers *x, v128_t table, int32_t *out, uint32_t stride)
KV_INSTANCES(low, PARAMETERS, tiles, count, x, table, out, stride)
KV_INSTANCES(high, PARAMETERS, tiles, count, x, table, out, stride)

void KV_KERNEL(add_tiles)(const uint8_t *tiles, uint32_t count, const kv_multipliers *x, const kv_span *span,
                          int32_t *out, uint32_t stride, uint32_t half, uint32_t rows) {
  const v128_t table = kv_table_simd128(span);
  (half ? high_of : low_of)[span->bits - 1][rows - 1](tiles, count, x, table, out, stride);
}

/* 16-bit multipliers of four summands as (0, 2), (1, 3): so summands 0 and 2 of a lane are its bytes masked, 1 and 3
 * its bytes shifted, and a dot product sums two of a lane into its 32 bits. */
void KV_KERNEL(columns16)(const int16_t *x, uint32_t n, uint32_t rows, v128_t *out) {
  kv_columns(x, n * sizeof *x, n / 2, rows, out);
  for (uint32_t i = 0; i < n / 2; i += 2) {
    const v128_t a = out[i], b = out[i + 1];
    out[i] = wasm_i16x8_shuffle(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    out[i + 1] = wasm_i16x8_shuffle(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
}

int32_t KV_KERNEL(sum16)(const int16_t *x, uint32_t n) {
  v128_t sum = wasm_i64x2_const_splat(0);
  for (uint32_t i = 0; i < n; i += 8)
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(KV_LOAD(x + i), wasm_i16x8_const_splat(1)));
  return kv_sum4(sum);
}
