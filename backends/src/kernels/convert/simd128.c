/* Between float and fp16 in integer operations: both ways exact, subnormals included. */
#include "kernels/simd128.h"

KV_ALWAYS v128_t magnitude(v128_t x) { return wasm_v128_and(x, wasm_i32x4_const_splat(0x7fffffff)); }

/* Magnitudes are compared as integers, where NaN is above infinity; the largest of all is compared once. What is
 * beyond 65504 comes out as anything: it is refused. */
int KV_KERNEL(narrow)(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran) {
  v128_t a = wasm_i64x2_const_splat(0), b = a;
  KV_RAN(ran);
  for (; rows; rows--, x += n, out += stride)
    for (uint32_t c = 0; c < n; c += 8) {
      const v128_t low = KV_LOAD(x + c), high = KV_LOAD(x + c + 4);
      a = wasm_i32x4_max(a, magnitude(low));
      b = wasm_i32x4_max(b, magnitude(high));
      KV_STORE(out + c, kv_words(kv_half4(low), kv_half4(high)));
    }
  return wasm_v128_any_true(wasm_i32x4_gt(wasm_i32x4_max(a, b), wasm_i32x4_const_splat(KV_LARGEST_F16)));
}

void KV_KERNEL(widen)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out,
                      uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 8) {
    const uint16_t *from = x + c;
    float *to = out + c;
    if (!mean) {
      for (uint32_t j = 0; j < rows; j++, from += stride, to += n) {
        KV_STORE(to, kv_load4h(from));
        KV_STORE(to + 4, kv_load4h(from + 4));
      }
      continue;
    }
    const v128_t low = kv_load4h(mean + c), high = kv_load4h(mean + c + 4);
    for (uint32_t j = 0; j < rows; j++, from += stride, to += n) {
      KV_STORE(to, wasm_f32x4_sub(kv_load4h(from), low));
      KV_STORE(to + 4, wasm_f32x4_sub(kv_load4h(from + 4), high));
    }
  }
}

/* Sixteen channels at a time: one sum alone would wait for its addition at every token. */
void KV_KERNEL(mean)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran) {
  const v128_t zero = wasm_i64x2_const_splat(0), count = wasm_f32x4_splat((float)rows);
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 16) {
    v128_t sum[4] = {zero, zero, zero, zero};
    for (uint32_t j = 0; j < rows; j++)
#pragma GCC unroll 4
      for (uint32_t k = 0; k < 4; k++) sum[k] = wasm_f32x4_add(sum[k], kv_load4h(x + j * stride + c + 4 * k));
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) sum[k] = kv_half4s(wasm_f32x4_div(sum[k], count));
    KV_STORE(mean + c, kv_words(sum[0], sum[1]));
    KV_STORE(mean + c + 8, kv_words(sum[2], sum[3]));
  }
}
