/* The NEON variants: ARMv8.0, and the signed dot product where the compiler was told of it. Never a fused multiply-add (vmla, vfma),
 * since the contract rounds products before it adds them. Vector operations are those of the scalar files in the same
 * order; only integer sums are regrouped. */
#ifndef KV_KERNELS_NEON_H
#define KV_KERNELS_NEON_H

#include <arm_neon.h>

#include "isa.h"

/* Four numbers, or the `left` that there are and zeros: no byte beyond them is touched. */
static inline float32x4_t kv_load4(const float *p, uint32_t left) {
  float some[4] = {0};
  if (left >= 4) return vld1q_f32(p);
  for (uint32_t i = 0; i < left; i++) some[i] = p[i];
  return vld1q_f32(some);
}
static inline void kv_store4(float *p, uint32_t left, float32x4_t x) {
  float some[4];
  if (left >= 4) {
    vst1q_f32(p, x);
    return;
  }
  vst1q_f32(some, x);
  for (uint32_t i = 0; i < left; i++) p[i] = some[i];
}
/* int32 sums as floats. */
static inline float32x4_t kv_load4i(const int32_t *p, uint32_t left) {
  int32_t some[4] = {0};
  if (left >= 4) return vcvtq_f32_s32(vld1q_s32(p));
  for (uint32_t i = 0; i < left; i++) some[i] = p[i];
  return vcvtq_f32_s32(vld1q_s32(some));
}

/* Sixteen fp16, subnormals included, as four registers of float32. */
static inline float32x4x4_t kv_load16h(const uint8_t *p) {
  const float16x8_t a = vreinterpretq_f16_u8(vld1q_u8(p)), b = vreinterpretq_f16_u8(vld1q_u8(p + 16));
  return (float32x4x4_t){{vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)),
                          vcvt_high_f32_f16(b)}};
}

/* The tree of D16 and S16 after its first two steps, s[i] + s[i + 8] and s[i] + s[i + 4]. */
static inline float kv_tree4(float32x4_t s) { return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s))); }

/* Those two steps. */
static inline float32x4_t kv_tree16to4(const float32x4_t s[4]) {
  return vaddq_f32(vaddq_f32(s[0], s[2]), vaddq_f32(s[1], s[3]));
}

/* D16(a, b), n a multiple of 16. */
static inline float kv_d16_neon(const float *a, const float *b, uint32_t n) {
  float32x4_t s[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for (uint32_t c = 0; c < n; c += 16)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
      s[i] = vaddq_f32(s[i], vmulq_f32(vld1q_f32(a + c + 4 * i), vld1q_f32(b + c + 4 * i)));
  return kv_tree4(kv_tree16to4(s));
}

/* Eight int32 that fit 16 bits; that fit eight. */
static inline int16x8_t kv_words8(int32x4_t low, int32x4_t high) {
  return vcombine_s16(vmovn_s32(low), vmovn_s32(high));
}
static inline uint8x8_t kv_bytes8(int32x4_t low, int32x4_t high) {
  return vreinterpret_u8_s8(vmovn_s16(kv_words8(low, high)));
}

#endif
