/* The float steps between the integer sums and the softmax, and after them. */
#include "kernels/neon.h"

void KV_KERNEL(logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j += 4) {
    const float32x4_t scaled = vmulq_f32(kv_load4i(sum + j, n - j), kv_load4(su + j, n - j));
    kv_store4(t + j, n - j, vmulq_n_f32(scaled, factor));
  }
}

void KV_KERNEL(add_logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j += 4) {
    const float32x4_t scaled = vmulq_f32(kv_load4i(sum + j, n - j), kv_load4(su + j, n - j));
    kv_store4(t + j, n - j, vaddq_f32(kv_load4(t + j, n - j), vmulq_n_f32(scaled, factor)));
  }
}

void KV_KERNEL(affine_logits)(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran) {
  const float32x4_t b = vdupq_n_f32(bias);
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j += 4)
    kv_store4(t + j, n - j, vaddq_f32(vmulq_n_f32(kv_load4i(sum + j, n - j), scale), b));
}

void KV_KERNEL(shift)(float *t, uint32_t n, float bias, uint32_t *ran) {
  const float32x4_t b = vdupq_n_f32(bias);
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j += 4) kv_store4(t + j, n - j, vaddq_f32(kv_load4(t + j, n - j), b));
}

float KV_KERNEL(weigh)(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran) {
  float32x4_t most = vdupq_n_f32(0);
  uint32_t j = 0;
  KV_RAN(ran);
  for (; j < n; j += 4) most = vmaxq_f32(vmulq_f32(kv_load4(p + j, n - j), kv_load4(scale + j, n - j)), most);
  const float largest = vmaxvq_f32(most);
  if (largest < 0x1p-60f) {
    kv_fill(iw, 0, n * sizeof *iw);
    return largest;
  }
  const float gain = 16383.0f / largest;
  for (j = 0; j + 4 <= n; j += 4) {
    const float32x4_t w = vmulq_f32(vld1q_f32(p + j), vld1q_f32(scale + j)); /* cheaper again than kept */
    vst1_s16(iw + j, vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(w, gain))));
  }
  for (; j < n; j++) {
    float w = p[j] * scale[j];
    iw[j] = (int16_t)kv_rne(w * gain);
  }
  return largest;
}

void KV_KERNEL(blend)(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 4) {
    const float32x4_t kept = vmulq_n_f32(kv_load4(acc + c, n - c), al);
    kv_store4(acc + c, n - c, vaddq_f32(kept, vmulq_n_f32(kv_load4i(sum + c, n - c), f)));
  }
}

void KV_KERNEL(blend_affine)(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset, float be,
                             uint32_t *ran) {
  const float32x4_t o = vdupq_n_f32(offset);
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 4) {
    const float32x4_t x = vaddq_f32(vmulq_n_f32(kv_load4i(sum + c, n - c), scale), o);
    const float32x4_t kept = vmulq_n_f32(kv_load4(acc + c, n - c), al);
    kv_store4(acc + c, n - c, vaddq_f32(kept, vmulq_n_f32(x, be)));
  }
}

void KV_KERNEL(blend_rows)(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 4) {
    const float32x4_t kept = vmulq_n_f32(kv_load4(acc + c, n - c), al);
    kv_store4(acc + c, n - c, vaddq_f32(kept, vmulq_n_f32(kv_load4(x + c, n - c), be)));
  }
}
