#include "kernels/simd128.h"

/* ex2 of section 10, x <= 0, operation by operation that of scalar.c. */
KV_ALWAYS v128_t ex2(v128_t x) {
  const v128_t magic = wasm_f32x4_const_splat(12582912.0f);
  const v128_t w = wasm_f32x4_add(x, magic), r = wasm_f32x4_sub(x, wasm_f32x4_sub(w, magic));
  v128_t p = wasm_f32x4_const_splat(0x1.5bba14p-10f);
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.3cea88p-7f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.c6b752p-5f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.ebf9bcp-3f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.62e42ap-1f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(1.0f));
  const v128_t bits = wasm_i32x4_add(p, wasm_i32x4_shl(w, 23));
  return wasm_v128_and(bits, wasm_f32x4_ge(x, wasm_f32x4_const_splat(-64.0f)));
}

/* Of +0 and -0 either may be returned: nothing that uses a maximum can tell. */
float KV_KERNEL(maximum)(const float *t, uint32_t n, uint32_t *ran) {
  v128_t a = wasm_f32x4_splat(t[0]), b = a;
  uint32_t j = 0;
  float largest;
  KV_RAN(ran);
  for (; j + 8 <= n; j += 8) {
    a = kv_larger(a, KV_LOAD(t + j));
    b = kv_larger(b, KV_LOAD(t + j + 4));
  }
  largest = kv_largest4(kv_larger(a, b));
  for (; j < n; j++) largest = t[j] > largest ? t[j] : largest;
  return largest;
}

/* Stripes [phase, phase + 16) mod 16, so that the sums below start at 0. */
static inline void turn(const float *from, float *to, uint32_t phase) {
  for (uint32_t i = 0; i < 16; i++) to[i] = from[(phase + i) % 16];
}

/* n numbers with the sum s of the stripes from 0 on. */
static void exponentials(float *t, uint32_t n, v128_t maximum, float s[16]) {
  v128_t sum[4] = {KV_LOAD(s), KV_LOAD(s + 4), KV_LOAD(s + 8), KV_LOAD(s + 12)};
  uint32_t j = 0;
  for (; j + 16 <= n; j += 16)
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
      const v128_t p = ex2(wasm_f32x4_sub(KV_LOAD(t + j + 4 * k), maximum));
      KV_STORE(t + j + 4 * k, p);
      sum[k] = wasm_f32x4_add(sum[k], p);
    }
#pragma GCC unroll 4
  for (uint32_t k = 0; k < 4; k++) KV_STORE(s + 4 * k, sum[k]);
  for (uint32_t i = 0; j < n; j += 4) {
    kv_store4(t + j, n - j, ex2(wasm_f32x4_sub(kv_load4(t + j, n - j), maximum)));
    for (uint32_t k = j; k < n && k < j + 4; k++, i++) s[i] = s[i] + t[k];
  }
}

void KV_KERNEL(exponentials)(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran) {
  float turned[16];
  KV_RAN(ran);
  if (n == 1) { /* the factors of every page and row */
    t[0] = wasm_f32x4_extract_lane(ex2(wasm_f32x4_splat(t[0] - maximum)), 0);
    stripes[phase % 16] = stripes[phase % 16] + t[0];
    return;
  }
  if (phase % 16 == 0) {
    exponentials(t, n, wasm_f32x4_splat(maximum), stripes);
    return;
  }
  turn(stripes, turned, phase % 16);
  exponentials(t, n, wasm_f32x4_splat(maximum), turned);
  turn(turned, stripes, 16 - phase % 16);
}
