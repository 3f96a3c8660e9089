/* KIVI: asymmetric steps and minima (numeric contract, section 6), four groups or four channels at once. */
#include "kernels/neon.h"

typedef struct affine {
  uint16x4_t step, minimum; /* fp16, as stored */
  float32x4_t step32, minimum32;
} affine;

static inline float32x4_t where(uint32x4_t mask, float32x4_t x) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask));
}

/* f16s: an infinity, 0x7c00, becomes the largest number below it. Compare gives -1. */
static inline uint16x4_t f16s(float32x4_t x) {
  const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(x));
  return vadd_u16(h, vceq_u16(vand_u16(h, vdup_n_u16(0x7fff)), vdup_n_u16(0x7c00)));
}

static inline float32x4_t widened(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }

static inline affine affine_of(float32x4_t smallest, float32x4_t largest, float32x4_t levels) {
  const float32x4_t zero = vdupq_n_f32(0);
  affine a;
  a.minimum = f16s(vaddq_f32(smallest, zero));
  a.minimum32 = widened(a.minimum);
  const float32x4_t range = vsubq_f32(vaddq_f32(largest, zero), a.minimum32);
  a.step = f16s(where(vcgtq_f32(range, zero), vdivq_f32(range, levels)));
  a.step32 = widened(a.step);
  return a;
}

/* A step of 0 gives 0, whatever the quotient. */
static inline int32x4_t codes4(const float *r, const affine *a, float32x4_t levels) {
  float32x4_t x = vdivq_f32(vsubq_f32(vld1q_f32(r), a->minimum32), a->step32);
  x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-1.0f)), vdupq_n_f32(0x1p20f));
  x = where(vmvnq_u32(vceqzq_f32(a->step32)), x);
  return vminq_s32(vmaxq_s32(vcvtnq_s32_f32(x), vdupq_n_s32(0)), vcvtnq_s32_f32(levels));
}

static inline void store_codes(uint8_t *codes, const float *r, const affine *a, const affine *b, float32x4_t levels) {
  vst1_u8(codes, kv_bytes8(codes4(r, a, levels), codes4(r + 4, b, levels)));
}

/* Four channels of all tokens. */
static inline affine affine_of_channels(const float *r, uint32_t tokens, uint32_t d, float32x4_t levels) {
  float32x4_t smallest = vld1q_f32(r), largest = smallest;
  for (uint32_t j = 1; j < tokens; j++) {
    const float32x4_t x = vld1q_f32(r + j * d);
    smallest = vminq_f32(x, smallest);
    largest = vmaxq_f32(x, largest);
  }
  return affine_of(smallest, largest, levels);
}

void KV_KERNEL(affine_keys)(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes, uint8_t *steps,
                            uint8_t *minima, uint32_t *ran) {
  const float32x4_t levels = vdupq_n_f32((float)((1 << bits) - 1));
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 8) {
    const affine a = affine_of_channels(r + c, tokens, d, levels), b = affine_of_channels(r + c + 4, tokens, d, levels);
    for (uint32_t j = 0; j < tokens; j++) store_codes(codes + j * d + c, r + j * d + c, &a, &b, levels);
    vst1q_u8(steps + 2 * c, vreinterpretq_u8_u16(vcombine_u16(a.step, b.step)));
    vst1q_u8(minima + 2 * c, vreinterpretq_u8_u16(vcombine_u16(a.minimum, b.minimum)));
  }
}

/* A group of 32 channels, or the last 16. */
void KV_KERNEL(affine_values)(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps,
                              uint8_t *minima, uint32_t stride, uint32_t *ran) {
  const float32x4_t levels = vdupq_n_f32((float)((1 << bits) - 1));
  KV_RAN(ran);
  for (uint32_t first = 0, group = 0; first < d; first += KV_GROUP, group++) {
    const uint32_t end = first + KV_GROUP < d ? first + KV_GROUP : d;
    float32x4_t smallest = vld1q_f32(r + first), largest = smallest;
    for (uint32_t c = first + 4; c < end; c += 4) {
      smallest = vminq_f32(vld1q_f32(r + c), smallest);
      largest = vmaxq_f32(vld1q_f32(r + c), largest);
    }
    const affine a = affine_of(vdupq_n_f32(vminvq_f32(smallest)), vdupq_n_f32(vmaxvq_f32(largest)), levels);
    for (uint32_t c = first; c < end; c += 8) store_codes(codes + c, r + c, &a, &a, levels);
    kv_store16(steps + 2ull * group * stride, vget_lane_u16(a.step, 0));
    kv_store16(minima + 2ull * group * stride, vget_lane_u16(a.minimum, 0));
  }
}
