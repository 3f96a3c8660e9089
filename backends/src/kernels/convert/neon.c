/* Between float and fp16: both ways exact, subnormals included. */
#include "kernels/neon.h"

static inline uint16x8_t nearest8(float32x4_t low, float32x4_t high) {
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
}

static inline uint32x4_t larger(uint32x4_t most, float32x4_t x) {
  return vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(x)));
}

/* Magnitudes are compared as integers, where NaN is above infinity; the largest of all is compared once. */
int KV_KERNEL(narrow)(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran) {
  uint32x4_t a = vdupq_n_u32(0), b = a;
  KV_RAN(ran);
  for (; rows; rows--, x += n, out += stride)
    for (uint32_t c = 0; c < n; c += 8) {
      const float32x4_t low = vld1q_f32(x + c), high = vld1q_f32(x + c + 4);
      a = larger(a, low);
      b = larger(b, high);
      vst1q_u16(out + c, nearest8(low, high));
    }
  return vmaxvq_u32(vmaxq_u32(a, b)) > KV_LARGEST_F16;
}

static inline float32x4x4_t widened16(const uint16_t *x) { return kv_load16h((const uint8_t *)x); }

void KV_KERNEL(widen)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out,
                      uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 16) {
    const float32x4x4_t centre = mean ? widened16(mean + c) : (float32x4x4_t){0};
    const uint16_t *from = x + c;
    float *to = out + c;
    for (uint32_t j = 0; j < rows; j++, from += stride, to += n) {
      const float32x4x4_t row = widened16(from);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; i++)
        vst1q_f32(to + 4 * i, mean ? vsubq_f32(row.val[i], centre.val[i]) : row.val[i]);
    }
  }
}

/* f16s of eight sums over `count`: infinity less one is 65504. */
static inline uint16x8_t means8(float32x4_t low, float32x4_t high, float32x4_t count) {
  const uint16x8_t h = nearest8(vdivq_f32(low, count), vdivq_f32(high, count));
  return vaddq_u16(h, vceqq_u16(vandq_u16(h, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x7c00)));
}

void KV_KERNEL(mean)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran) {
  const float32x4_t count = vdupq_n_f32((float)rows), zero = vdupq_n_f32(0);
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 16) {
    float32x4_t sum[4] = {zero, zero, zero, zero};
    for (uint32_t j = 0; j < rows; j++) {
      const float32x4x4_t row = widened16(x + j * stride + c);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; i++) sum[i] = vaddq_f32(sum[i], row.val[i]);
    }
    vst1q_u16(mean + c, means8(sum[0], sum[1], count));
    vst1q_u16(mean + c + 8, means8(sum[2], sum[3], count));
  }
}
