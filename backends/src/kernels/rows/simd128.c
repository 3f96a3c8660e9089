/* Rows stored as fp16, widened once for all query rows. */
#include "kernels/simd128.h"

#define TOKENS 4u

static void widen(const uint8_t *x, uint32_t n, float *out) {
  for (uint32_t c = 0; c < n; c += 8) {
    KV_STORE(out + c, kv_load4h(x + 2 * c));
    KV_STORE(out + c + 4, kv_load4h(x + 2 * c + 8));
  }
}

/* Stripes of two query rows against one token, after the tree's first two steps. */
KV_ALWAYS void stripes(const float *q, const float *other, const float *row, uint32_t d, v128_t *out, v128_t *out2) {
  const v128_t zero = wasm_i64x2_const_splat(0);
  v128_t a[4] = {zero, zero, zero, zero}, b[4] = {zero, zero, zero, zero};
  for (uint32_t c = 0; c < d; c += 16)
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
      const v128_t x = KV_LOAD(row + c + 4 * k);
      a[k] = wasm_f32x4_add(a[k], wasm_f32x4_mul(KV_LOAD(q + c + 4 * k), x));
      if (other) b[k] = wasm_f32x4_add(b[k], wasm_f32x4_mul(KV_LOAD(other + c + 4 * k), x));
    }
  *out = kv_tree4(a);
  if (other) *out2 = kv_tree4(b);
}

/* The rest of the tree, + 2 and + 1, for four tokens at once. */
KV_ALWAYS v128_t trees(const v128_t s[TOKENS]) {
  v128_t two[2];
  for (uint32_t i = 0; i < 2; i++)
    two[i] = wasm_f32x4_add(wasm_i64x2_shuffle(s[2 * i], s[2 * i + 1], 0, 2), wasm_i64x2_shuffle(s[2 * i], s[2 * i + 1], 1, 3));
  return wasm_f32x4_add(wasm_i32x4_shuffle(two[0], two[1], 0, 2, 4, 6), wasm_i32x4_shuffle(two[0], two[1], 1, 3, 5, 7));
}

void KV_KERNEL(dots)(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                     uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran) {
  float row[TOKENS][KV_MAX_DIM];
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j += TOKENS, x += TOKENS * stride_bytes) {
    const uint32_t count = tokens - j < TOKENS ? tokens - j : TOKENS;
    for (uint32_t k = 0; k < count; k++) widen(x + k * stride_bytes, d, row[k]);
    for (uint32_t r = 0; r < rows; r += 2) {
      const float *first = q + r * q_stride, *second = r + 1 < rows ? first + q_stride : 0;
      v128_t a[TOKENS] = {wasm_i64x2_const_splat(0)}, b[TOKENS] = {wasm_i64x2_const_splat(0)};
      for (uint32_t k = 0; k < count; k++) {
        if (second) stripes(first, second, row[k], d, &a[k], &b[k]);
        else stripes(first, 0, row[k], d, &a[k], 0);
      }
      kv_store4(t + r * t_stride + j, count, trees(a));
      if (second) kv_store4(t + (r + 1) * t_stride + j, count, trees(b));
    }
  }
}

#define ROWS 4u

/* Eight channels of `rows` sums over all tokens, in registers. */
KV_ALWAYS void eight(const float *p, uint32_t p_stride, const uint8_t *x, uint64_t stride_bytes, uint32_t tokens,
                     float *acc, uint32_t d, uint32_t rows) {
  v128_t low[ROWS], high[ROWS];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) low[r] = KV_LOAD(acc + r * d), high[r] = KV_LOAD(acc + r * d + 4);
  for (uint32_t j = 0; j < tokens; j++, x += stride_bytes) {
    const v128_t a = kv_load4h(x), b = kv_load4h(x + 8);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      const v128_t weight = wasm_v128_load32_splat(p + r * p_stride + j);
      low[r] = wasm_f32x4_add(low[r], wasm_f32x4_mul(weight, a));
      high[r] = wasm_f32x4_add(high[r], wasm_f32x4_mul(weight, b));
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    KV_STORE(acc + r * d, low[r]);
    KV_STORE(acc + r * d + 4, high[r]);
  }
}

void KV_KERNEL(weighted)(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                         uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += ROWS)
    for (uint32_t c = 0; c < d; c += 8) {
      const float *weights = p + r * p_stride;
      float *sums = acc + r * d + c;
      switch (rows - r) {
        case 1: eight(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 1); break;
        case 2: eight(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 2); break;
        case 3: eight(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 3); break;
        default: eight(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 4);
      }
    }
}
