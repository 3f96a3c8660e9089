#include "kernels/neon.h"

/* Rounded to nearest even, as words. */
static inline int16x8_t rounded8(float32x4_t low, float32x4_t high, float gain) {
  return kv_words8(vcvtnq_s32_f32(vmulq_n_f32(low, gain)), vcvtnq_s32_f32(vmulq_n_f32(high, gain)));
}

float KV_KERNEL(query8)(const float *z, uint32_t d, int8_t *qi, uint32_t *ran) {
  float32x4_t most = vdupq_n_f32(0);
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 4) most = vmaxq_f32(vabsq_f32(vld1q_f32(z + c)), most);
  const float a = vmaxvq_f32(most);
  if (a == 0) {
    kv_fill(qi, 0, d);
    return 0;
  }
  const float gain = 127.0f / a;
  for (uint32_t c = 0; c < d; c += 8)
    vst1_s8(qi + c, vmovn_s16(rounded8(vld1q_f32(z + c), vld1q_f32(z + c + 4), gain)));
  return a * (float)(1.0 / 127);
}

static inline float32x4_t scaled4(const float *z, const float *step) {
  return vmulq_f32(vld1q_f32(z), vld1q_f32(step));
}

float KV_KERNEL(query15)(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran) {
  float32x4_t most = vdupq_n_f32(0);
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 4) most = vmaxq_f32(vabsq_f32(scaled4(z + c, step + c)), most);
  const float a = vmaxvq_f32(most);
  if (a == 0) {
    kv_fill(qi, 0, d * sizeof *qi);
    return 0;
  }
  const float gain = 16256.0f / a;
  for (uint32_t c = 0; c < d; c += 8)
    vst1q_s16(qi + c, rounded8(scaled4(z + c, step + c), scaled4(z + c + 4, step + c + 4), gain));
  return a * (float)(1.0 / 16256);
}
