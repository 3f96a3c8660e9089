#include "kernels/simd128.h"

float KV_KERNEL(query8)(const float *z, uint32_t d, int8_t *qi, uint32_t *ran) {
  v128_t most = wasm_i64x2_const_splat(0);
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 4) most = kv_larger(most, wasm_f32x4_abs(KV_LOAD(z + c)));
  const float a = kv_largest4(most);
  if (a == 0) {
    kv_fill(qi, 0, d);
    return 0;
  }
  const v128_t gain = wasm_f32x4_splat(127.0f / a);
  for (uint32_t c = 0; c < d; c += 16) {
    v128_t part[4];
    for (uint32_t k = 0; k < 4; k++) part[k] = kv_integers(wasm_f32x4_mul(KV_LOAD(z + c + 4 * k), gain));
    const v128_t low = wasm_i16x8_narrow_i32x4(part[0], part[1]), high = wasm_i16x8_narrow_i32x4(part[2], part[3]);
    KV_STORE(qi + c, wasm_i8x16_narrow_i16x8(low, high));
  }
  return a * (float)(1.0 / 127);
}

float KV_KERNEL(query15)(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran) {
  v128_t most = wasm_i64x2_const_splat(0);
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 4)
    most = kv_larger(most, wasm_f32x4_abs(wasm_f32x4_mul(KV_LOAD(z + c), KV_LOAD(step + c))));
  const float a = kv_largest4(most);
  if (a == 0) {
    kv_fill(qi, 0, d * sizeof *qi);
    return 0;
  }
  const v128_t gain = wasm_f32x4_splat(16256.0f / a);
  for (uint32_t c = 0; c < d; c += 8) {
    const v128_t low = wasm_f32x4_mul(KV_LOAD(z + c), KV_LOAD(step + c));
    const v128_t high = wasm_f32x4_mul(KV_LOAD(z + c + 4), KV_LOAD(step + c + 4));
    KV_STORE(qi + c, wasm_i16x8_narrow_i32x4(kv_integers(wasm_f32x4_mul(low, gain)),
                                             kv_integers(wasm_f32x4_mul(high, gain))));
  }
  return a * (float)(1.0 / 16256);
}
