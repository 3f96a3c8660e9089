#include "kernels/neon.h"

/* ex2 of section 10, x <= 0, operation by operation that of scalar.c. */
static inline float32x4_t ex2(float32x4_t x) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);
  const float32x4_t w = vaddq_f32(x, magic), r = vsubq_f32(x, vsubq_f32(w, magic));
  float32x4_t p = vdupq_n_f32(0x1.5bba14p-10f);
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.3cea88p-7f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.c6b752p-5f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.ebf9bcp-3f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.62e42ap-1f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(1.0f));
  const uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(w), 23));
  return vreinterpretq_f32_u32(vbicq_u32(bits, vcltq_f32(x, vdupq_n_f32(-64.0f))));
}

/* Of +0 and -0 either may be returned: nothing that uses a maximum can tell. */
float KV_KERNEL(maximum)(const float *t, uint32_t n, uint32_t *ran) {
  float32x4_t a = vdupq_n_f32(t[0]), b = a;
  uint32_t j = 0;
  KV_RAN(ran);
  for (; j + 8 <= n; j += 8) {
    a = vmaxq_f32(vld1q_f32(t + j), a);
    b = vmaxq_f32(vld1q_f32(t + j + 4), b);
  }
  float largest = vmaxvq_f32(vmaxq_f32(a, b));
  for (; j < n; j++) largest = t[j] > largest ? t[j] : largest;
  return largest;
}

/* Stripes [phase, phase + 16) mod 16, so that the sums below start at 0. */
static inline void turn(const float *from, float *to, uint32_t phase) {
  for (uint32_t i = 0; i < 16; i++) to[i] = from[(phase + i) % 16];
}

/* n numbers with the sum s of the stripes from 0 on. */
static void exponentials(float *t, uint32_t n, float32x4_t maximum, float s[16]) {
  float32x4_t sum[4];
  uint32_t j = 0;
  for (uint32_t i = 0; i < 4; i++) sum[i] = vld1q_f32(s + 4 * i);
  for (; j + 16 <= n; j += 16)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
      const float32x4_t p = ex2(vsubq_f32(vld1q_f32(t + j + 4 * i), maximum));
      vst1q_f32(t + j + 4 * i, p);
      sum[i] = vaddq_f32(sum[i], p);
    }
  for (uint32_t i = 0; i < 4; i++) vst1q_f32(s + 4 * i, sum[i]);
  for (uint32_t i = 0; j < n; j += 4) {
    kv_store4(t + j, n - j, ex2(vsubq_f32(kv_load4(t + j, n - j), maximum)));
    for (uint32_t k = j; k < n && k < j + 4; k++, i++) s[i] = s[i] + t[k];
  }
}

void KV_KERNEL(exponentials)(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran) {
  float turned[16];
  KV_RAN(ran);
  if (n == 1) { /* the factors of every page and row */
    t[0] = vgetq_lane_f32(ex2(vdupq_n_f32(t[0] - maximum)), 0);
    stripes[phase % 16] = stripes[phase % 16] + t[0];
    return;
  }
  if (phase % 16 == 0) {
    exponentials(t, n, vdupq_n_f32(maximum), stripes);
    return;
  }
  turn(stripes, turned, phase % 16);
  exponentials(t, n, vdupq_n_f32(maximum), turned);
  turn(turned, stripes, 16 - phase % 16);
}
