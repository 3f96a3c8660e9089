/* Lane = token, summand = channel. u = centroid + 64; 64 times the sum of the query is taken off at the start. */
#include "kernels/tiles/simd128.h"

typedef void add_span(const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out, uint32_t stride,
                      uint32_t half, uint32_t rows);

static void add_span16(const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out, uint32_t stride,
                       uint32_t half, uint32_t rows) {
  const kv_multipliers x = {columns + span->first / 2, 2};
  KV_KERNEL(add_tiles)(tiles, span->channels / 4u, &x, span, out, stride, half, rows);
}

/* Sixteen tokens at a time, in the order of the stream: memory is read once, forwards. */
static void scan(const kv_codec *codec, const uint8_t *tiles, uint32_t tokens, const v128_t *columns, int32_t *out,
                 uint32_t stride, uint32_t rows, add_span *add) {
  for (uint32_t token = 0; token < tokens; token += 16, out += 16)
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      add(tiles, columns, span, out, stride, 0, rows);
      add(tiles, columns, span, out + 8, stride, 1, rows);
      tiles += 2 * span->channels * span->bits;
    }
}

static int32_t sum_bytes(const int8_t *q, uint32_t d) {
  v128_t sum = wasm_i64x2_const_splat(0);
  for (uint32_t c = 0; c < d; c += 8)
    sum = wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_load8x8(q + c)));
  return kv_sum4(sum);
}

#ifdef __wasm_relaxed_simd__
/* A query of 7 bits stays bytes, and u is the side in 0 .. 127: no sum of two products leaves 16 bits, so engines cannot
 * differ. */
KV_ALWAYS void bytes_half(const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out,
                          uint32_t stride, uint32_t half, uint32_t bits, uint32_t rows) {
  const v128_t table = kv_table_simd128(span);
  v128_t sum[KV_ROWS][2];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) sum[r][0] = KV_LOAD(out + r * stride), sum[r][1] = KV_LOAD(out + r * stride + 4);
  columns += span->first / 4;
  for (uint32_t n = span->channels / 4u; n; n--, tiles += 8 * bits, columns++) {
    const v128_t u[2] = {kv_decode(tiles, bits, 2 * half, table), kv_decode(tiles, bits, 2 * half + 1, table)};
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      sum[r][0] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(kv_row(*columns, r), u[0], sum[r][0]);
      sum[r][1] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(kv_row(*columns, r), u[1], sum[r][1]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) KV_STORE(out + r * stride, sum[r][0]), KV_STORE(out + r * stride + 4, sum[r][1]);
}

KV_ALWAYS void bytes_low(const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out,
                         uint32_t stride, uint32_t bits, uint32_t rows) {
  bytes_half(tiles, columns, span, out, stride, 0, bits, rows);
}
KV_ALWAYS void bytes_high(const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out,
                          uint32_t stride, uint32_t bits, uint32_t rows) {
  bytes_half(tiles, columns, span, out, stride, 1, bits, rows);
}
#define PARAMETERS \
  (const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out, uint32_t stride)
KV_INSTANCES(bytes_low, PARAMETERS, tiles, columns, span, out, stride)
KV_INSTANCES(bytes_high, PARAMETERS, tiles, columns, span, out, stride)

static void add_span7(const uint8_t *tiles, const v128_t *columns, const kv_span *span, int32_t *out, uint32_t stride,
                      uint32_t half, uint32_t rows) {
  (half ? bytes_high_of : bytes_low_of)[span->bits - 1][rows - 1](tiles, columns, span, out, stride);
}

static void columns7(const int8_t *q, uint32_t d, uint32_t rows, v128_t *out) { kv_columns(q, d, d / 4, rows, out); }
#else
#define add_span7 add_span16

static void columns7(const int8_t *q, uint32_t d, uint32_t rows, v128_t *out) {
  int16_t words[KV_ROWS * KV_MAX_DIM];
  for (uint32_t c = 0; c < rows * d; c += 8) KV_STORE(words + c, wasm_i16x8_load8x8(q + c));
  KV_KERNEL(columns16)(words, d, rows, out);
}
#endif

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                        uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  v128_t columns[KV_MAX_DIM / 2];
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS, q += KV_ROWS * d, out += KV_ROWS * stride) {
    const uint32_t count = kv_rows_of(rows - r);
    columns7(q, d, count, columns);
    for (uint32_t i = 0; i < count; i++) kv_fill32(out + i * stride, tokens, -KV_OFFSET * sum_bytes(q + i * d, d));
    scan(codec, tiles, tokens, columns, out, stride, count, add_span7);
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                          uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  v128_t columns[KV_MAX_DIM / 2];
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS, q += KV_ROWS * d, out += KV_ROWS * stride) {
    const uint32_t count = kv_rows_of(rows - r);
    KV_KERNEL(columns16)(q, d, count, columns);
    for (uint32_t i = 0; i < count; i++)
      kv_fill32(out + i * stride, tokens, -KV_OFFSET * KV_KERNEL(sum16)(q + i * d, d));
    scan(codec, tiles, tokens, columns, out, stride, count, add_span16);
  }
}
