/* Turbo: codes and scales of transformed vectors, and what the codes leave over. */
#include "kernels/neon.h"

/* Eight codes as their centroids. */
static inline float32x4x2_t centroids8(int8x16_t table, uint8x8_t codes) {
  const int16x8_t words = vmovl_s8(vqtbl1_s8(table, codes));
  return (float32x4x2_t){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))}};
}

/* A code is half + m, or half - 1 - m for a negative number, which is half + ~m; m counts the thresholds reached. */
static inline int32x4_t codes4(float32x4_t x, const float *th, uint32_t half) {
  const float32x4_t size = vabsq_f32(x);
  uint32x4_t m = vdupq_n_u32(0);
  for (uint32_t i = 0; i + 1 < half; i++) m = vsubq_u32(m, vcgeq_f32(size, vdupq_n_f32(th[i])));
  m = veorq_u32(m, vcltzq_f32(x));
  return vreinterpretq_s32_u32(vaddq_u32(vdupq_n_u32(half), m));
}

/* Spans are multiples of 8 channels. */
static void codes_of_span(const kv_span *span, const float *y, float sigma, uint8_t *codes, float *centroids) {
  const uint32_t half = 1u << (span->bits - 1), end = span->first + (uint32_t)span->channels;
  const int8x16_t table = vld1q_s8(span->book->table);
  float th[7];
  for (uint32_t i = 0; i + 1 < half; i++) th[i] = span->book->thresholds[i] * sigma;
  for (uint32_t c = span->first; c < end; c += 8) {
    const uint8x8_t code = kv_bytes8(codes4(vld1q_f32(y + c), th, half), codes4(vld1q_f32(y + c + 4), th, half));
    const float32x4x2_t meaning = centroids8(table, code);
    vst1_u8(codes + c, code);
    vst1q_f32(centroids + c, meaning.val[0]);
    vst1q_f32(centroids + c + 4, meaning.val[1]);
  }
}

static void zero_codes(const kv_codec *codec, uint8_t *codes) {
  for (uint32_t i = 0; i < codec->spans; i++)
    kv_fill(codes + codec->span[i].first, 1 << (codec->span[i].bits - 1), codec->span[i].channels);
}

void KV_KERNEL(quantize)(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens,
                         uint8_t *codes, float *scales, uint32_t *ran) {
  const float inverse_d = (float)(1.0 / d);
  float centroids[KV_MAX_DIM];
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d) {
    float n2 = kv_d16_neon(y, y, d);
    if (n2 == 0) {
      zero_codes(codec, codes);
      scales[j] = 0;
      continue;
    }
    float sigma = __builtin_sqrtf(n2 * inverse_d);
    for (uint32_t i = 0; i < codec->spans; i++) codes_of_span(&codec->span[i], y, sigma, codes, centroids);
    float e = kv_d16_neon(y, centroids, d);
    scales[j] = unbiased ? n2 / e : e / kv_d16_neon(centroids, centroids, d);
  }
}

void KV_KERNEL(residual)(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                         uint32_t tokens, float *e, float *n2, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d, e += d) {
    const float32x4_t scale = vdupq_n_f32(scales[j]);
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      const int8x16_t table = vld1q_s8(span->book->table);
      for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c += 8) {
        const float32x4x2_t meaning = centroids8(table, vld1_u8(codes + c));
        vst1q_f32(e + c, vsubq_f32(vld1q_f32(y + c), vmulq_f32(scale, meaning.val[0])));
        vst1q_f32(e + c + 4, vsubq_f32(vld1q_f32(y + c + 4), vmulq_f32(scale, meaning.val[1])));
      }
    }
    n2[j] = kv_d16_neon(e, e, d);
  }
}
