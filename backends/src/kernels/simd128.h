/* The SIMD128 variant of WebAssembly, and relaxed, which compiles the same files with more instructions. Vector
 * operations are those of the scalar files in the same order; only integer sums are regrouped. Of the relaxed
 * instructions only those are used whose every permitted result is the same for our operands: dot products of bytes with
 * one side in 0 .. 127, and swizzles with indices below 16. Minima and maxima are pmin and pmax: one comparison each. */
#ifndef KV_KERNELS_SIMD128_H
#define KV_KERNELS_SIMD128_H

#include <wasm_simd128.h>

#include "isa.h"

#define KV_LOAD(p) wasm_v128_load(p)
#define KV_STORE(p, x) wasm_v128_store(p, x)
#define KV_ALWAYS static inline __attribute__((always_inline))

/* Four numbers, or the `left` that there are and zeros. Tails are calls, so that loops stay short. */
static __attribute__((noinline, unused)) v128_t kv_load_tail(const void *p, uint32_t left) {
  uint32_t some[4] = {0};
  for (uint32_t i = 0; i < left; i++) some[i] = kv_load32((const uint32_t *)p + i);
  return KV_LOAD(some);
}
static __attribute__((noinline, unused)) void kv_store_tail(void *p, uint32_t left, v128_t x) {
  uint32_t some[4];
  KV_STORE(some, x);
  for (uint32_t i = 0; i < left; i++) kv_store32((uint32_t *)p + i, some[i]);
}
KV_ALWAYS v128_t kv_load4(const void *p, uint32_t left) { return left >= 4 ? KV_LOAD(p) : kv_load_tail(p, left); }
KV_ALWAYS void kv_store4(void *p, uint32_t left, v128_t x) {
  if (left >= 4) KV_STORE(p, x);
  else kv_store_tail(p, left, x);
}
KV_ALWAYS v128_t kv_load4i(const int32_t *p, uint32_t left) { return wasm_f32x4_convert_i32x4(kv_load4(p, left)); }

/* Four fp16, finite. Exponents are rebased by an exact product; WebAssembly keeps subnormals. */
KV_ALWAYS v128_t kv_load4h(const void *p) {
  const v128_t shifted = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  return wasm_f32x4_mul(wasm_v128_and(shifted, wasm_u32x4_const_splat(0x8fffe000u)), wasm_f32x4_const_splat(0x1p112f));
}

/* f16 of four numbers of magnitude up to 65504, in 32 bits each. A sum with one half rounds a subnormal. */
KV_ALWAYS v128_t kv_half4(v128_t x) {
  const v128_t sign = wasm_v128_and(x, wasm_u32x4_const_splat(0x80000000u)), size = wasm_v128_xor(x, sign);
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(size, 13), wasm_i32x4_const_splat(1));
  const v128_t rounded = wasm_i32x4_add(wasm_i32x4_add(size, odd), wasm_u32x4_const_splat(0xfffu - 0x38000000u));
  const v128_t tiny = wasm_i32x4_sub(wasm_f32x4_add(size, wasm_f32x4_const_splat(0.5f)), wasm_f32x4_const_splat(0.5f));
  const v128_t small = wasm_i32x4_lt(size, wasm_i32x4_const_splat(0x38800000));
  return wasm_v128_or(wasm_v128_bitselect(tiny, wasm_u32x4_shr(rounded, 13), small), wasm_u32x4_shr(sign, 16));
}
/* f16s: numbers beyond 65504 become that. */
KV_ALWAYS v128_t kv_half4s(v128_t x) {
  const v128_t sign = wasm_v128_and(x, wasm_u32x4_const_splat(0x80000000u));
  const v128_t size = wasm_i32x4_min(wasm_v128_xor(x, sign), wasm_i32x4_const_splat(KV_LARGEST_F16));
  return kv_half4(wasm_v128_or(size, sign));
}
KV_ALWAYS v128_t kv_words(v128_t low, v128_t high) { return wasm_u16x8_narrow_i32x4(low, high); }

/* Nearest even integers of numbers below 2^22 in magnitude. */
KV_ALWAYS v128_t kv_integers(v128_t x) {
  const v128_t magic = wasm_f32x4_const_splat(12582912.0f);
  return wasm_i32x4_sub(wasm_f32x4_add(x, magic), magic);
}

KV_ALWAYS v128_t kv_larger(v128_t most, v128_t x) { return wasm_f32x4_pmax(most, x); }
KV_ALWAYS float kv_largest4(v128_t x) {
  x = kv_larger(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  x = kv_larger(x, wasm_i32x4_shuffle(x, x, 1, 0, 3, 2));
  return wasm_f32x4_extract_lane(x, 0);
}

/* The tree of D16 and S16 of sixteen stripes. */
KV_ALWAYS v128_t kv_tree4(const v128_t s[4]) { return wasm_f32x4_add(wasm_f32x4_add(s[0], s[2]), wasm_f32x4_add(s[1], s[3])); }
KV_ALWAYS float kv_tree(const v128_t s[4]) {
  v128_t t = kv_tree4(s);
  t = wasm_f32x4_add(t, wasm_i32x4_shuffle(t, t, 2, 3, 0, 1));
  t = wasm_f32x4_add(t, wasm_i32x4_shuffle(t, t, 1, 0, 3, 2));
  return wasm_f32x4_extract_lane(t, 0);
}

/* D16(a, b), n a multiple of 16. */
static inline float kv_d16_simd128(const float *a, const float *b, uint32_t n) {
  v128_t s[4] = {wasm_i64x2_const_splat(0), wasm_i64x2_const_splat(0), wasm_i64x2_const_splat(0), wasm_i64x2_const_splat(0)};
  for (uint32_t c = 0; c < n; c += 16)
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++)
      s[k] = wasm_f32x4_add(s[k], wasm_f32x4_mul(KV_LOAD(a + c + 4 * k), KV_LOAD(b + c + 4 * k)));
  return kv_tree(s);
}

#endif
