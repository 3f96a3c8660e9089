/* KIVI: asymmetric steps and minima (numeric contract, section 6), four groups or four channels at once. */
#include "kernels/simd128.h"

typedef struct affine {
  v128_t step, minimum;     /* fp16, as stored, in 32 bits each */
  v128_t step32, minimum32; /* the same as numbers */
} affine;

/* fp16 in the lower halves of 32 bits. */
KV_ALWAYS v128_t widened(v128_t halves) {
  const v128_t sign = wasm_i32x4_shl(wasm_v128_and(halves, wasm_i32x4_const_splat(0x8000)), 16);
  const v128_t size = wasm_i32x4_shl(wasm_v128_and(halves, wasm_i32x4_const_splat(0x7fff)), 13);
  return wasm_v128_or(wasm_f32x4_mul(size, wasm_f32x4_const_splat(0x1p112f)), sign);
}

KV_ALWAYS affine affine_of(v128_t smallest, v128_t largest, v128_t levels) {
  const v128_t zero = wasm_i64x2_const_splat(0);
  affine a;
  a.minimum = kv_half4s(wasm_f32x4_add(smallest, zero));
  a.minimum32 = widened(a.minimum);
  const v128_t range = wasm_f32x4_sub(wasm_f32x4_add(largest, zero), a.minimum32);
  a.step = wasm_v128_and(kv_half4s(wasm_f32x4_div(range, levels)), wasm_f32x4_gt(range, zero));
  a.step32 = widened(a.step);
  return a;
}

/* A step of 0 gives 0, whatever the quotient. */
KV_ALWAYS v128_t codes4(const float *r, const affine *a, v128_t levels) {
  const v128_t zero = wasm_i64x2_const_splat(0);
  v128_t x = wasm_f32x4_div(wasm_f32x4_sub(KV_LOAD(r), a->minimum32), a->step32);
  x = wasm_f32x4_pmin(wasm_f32x4_pmax(x, wasm_f32x4_const_splat(-1.0f)), wasm_f32x4_const_splat(0x1p20f));
  x = wasm_v128_and(x, wasm_f32x4_ne(a->step32, zero));
  return wasm_i32x4_min(wasm_i32x4_max(kv_integers(x), zero), levels);
}

KV_ALWAYS void store_codes(uint8_t *codes, v128_t low, v128_t high) {
  const v128_t words = wasm_i16x8_narrow_i32x4(low, high);
  wasm_v128_store64_lane(codes, wasm_u8x16_narrow_i16x8(words, words), 0);
}

KV_ALWAYS v128_t smaller(v128_t least, v128_t x) { return wasm_f32x4_pmin(least, x); }

void KV_KERNEL(affine_keys)(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes, uint8_t *steps,
                            uint8_t *minima, uint32_t *ran) {
  const int32_t most = (1 << bits) - 1;
  const v128_t levels = wasm_f32x4_splat((float)most), last = wasm_i32x4_splat(most);
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 8) {
    affine a[2];
    for (uint32_t half = 0; half < 2; half++) {
      const float *x = r + c + 4 * half;
      v128_t smallest = KV_LOAD(x), largest = smallest;
      for (uint32_t j = 1; j < tokens; j++) {
        smallest = smaller(smallest, KV_LOAD(x + j * d));
        largest = kv_larger(largest, KV_LOAD(x + j * d));
      }
      a[half] = affine_of(smallest, largest, levels);
    }
    for (uint32_t j = 0; j < tokens; j++) {
      const float *x = r + j * d + c;
      store_codes(codes + j * d + c, codes4(x, &a[0], last), codes4(x + 4, &a[1], last));
    }
    KV_STORE(steps + 2 * c, kv_words(a[0].step, a[1].step));
    KV_STORE(minima + 2 * c, kv_words(a[0].minimum, a[1].minimum));
  }
}

static inline float smallest4(v128_t x) { /* of zeros either; 0.0 is added to what comes out */
  return -kv_largest4(wasm_f32x4_neg(x));
}

/* A group of 32 channels, or the last 16. */
void KV_KERNEL(affine_values)(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps, uint8_t *minima,
                              uint32_t stride, uint32_t *ran) {
  const int32_t most = (1 << bits) - 1;
  const v128_t levels = wasm_f32x4_splat((float)most), last = wasm_i32x4_splat(most);
  KV_RAN(ran);
  for (uint32_t first = 0, group = 0; first < d; first += KV_GROUP, group++) {
    const uint32_t end = first + KV_GROUP < d ? first + KV_GROUP : d;
    v128_t smallest = KV_LOAD(r + first), largest = smallest;
    for (uint32_t c = first + 4; c < end; c += 4) {
      smallest = smaller(smallest, KV_LOAD(r + c));
      largest = kv_larger(largest, KV_LOAD(r + c));
    }
    const affine a =
        affine_of(wasm_f32x4_splat(smallest4(smallest)), wasm_f32x4_splat(kv_largest4(largest)), levels);
    for (uint32_t c = first; c < end; c += 8)
      store_codes(codes + c, codes4(r + c, &a, last), codes4(r + c + 4, &a, last));
    kv_store16(steps + 2ull * group * stride, (uint16_t)wasm_i32x4_extract_lane(a.step, 0));
    kv_store16(minima + 2ull * group * stride, (uint16_t)wasm_i32x4_extract_lane(a.minimum, 0));
  }
}
