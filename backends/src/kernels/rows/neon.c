/* Rows stored as fp16, widened once for four query rows: sixteen sums, four rows of x and the rest fit 32 registers. */
#include "kernels/neon.h"

#define ROWS 4u
#define INLINE static inline __attribute__((always_inline))

/* `rows` query rows against one token, up to the last two steps of the tree. */
INLINE void stripes(const float *q, uint32_t q_stride, uint32_t d, const uint8_t *x, float32x4_t (*out)[4],
                    uint32_t rows) {
  float32x4_t s[ROWS][4];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) s[r][0] = s[r][1] = s[r][2] = s[r][3] = vdupq_n_f32(0);
  for (uint32_t c = 0; c < d; c += 16) {
    const float32x4x4_t row = kv_load16h(x + 2 * c);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; i++)
        s[r][i] = vaddq_f32(s[r][i], vmulq_f32(vld1q_f32(q + r * q_stride + c + 4 * i), row.val[i]));
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) out[r][0] = kv_tree16to4(s[r]);
}

static void dot(const float *q, uint32_t q_stride, uint32_t d, const uint8_t *x, float32x4_t (*out)[4],
                uint32_t rows) {
  switch (rows) {
    case 1: stripes(q, q_stride, d, x, out, 1); break;
    case 2: stripes(q, q_stride, d, x, out, 2); break;
    case 3: stripes(q, q_stride, d, x, out, 3); break;
    default: stripes(q, q_stride, d, x, out, 4);
  }
}

/* s[i] + s[i + 2] of two tokens. */
static inline float32x4_t two_tokens(float32x4_t a, float32x4_t b) {
  const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
  return vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(x, y)), vreinterpretq_f32_f64(vtrn2q_f64(x, y)));
}

void KV_KERNEL(dots)(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                     uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j += 4, x += 4 * stride_bytes) {
    const uint32_t count = tokens - j < 4 ? tokens - j : 4;
    for (uint32_t r = 0; r < rows; r += ROWS) {
      const uint32_t some = rows - r < ROWS ? rows - r : ROWS;
      float *out = t + r * t_stride + j;
      float32x4_t s[ROWS][4];
      for (uint32_t k = 0; k < count; k++)
        dot(q + r * q_stride, q_stride, d, x + k * stride_bytes, (float32x4_t(*)[4])(&s[0][k]), some);
      for (uint32_t i = 0; i < some; i++, out += t_stride) {
        if (count == 4) vst1q_f32(out, vpaddq_f32(two_tokens(s[i][0], s[i][1]), two_tokens(s[i][2], s[i][3])));
        else
          for (uint32_t k = 0; k < count; k++) out[k] = kv_tree4(s[i][k]);
      }
    }
  }
}

/* Sixteen channels of `rows` sums over all tokens, in registers. */
INLINE void sixteen(const float *p, uint32_t p_stride, const uint8_t *x, uint64_t stride_bytes, uint32_t tokens,
                    float *acc, uint32_t d, uint32_t rows) {
  float32x4_t s[ROWS][4];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) s[r][i] = vld1q_f32(acc + r * d + 4 * i);
  for (uint32_t j = 0; j < tokens; j++, x += stride_bytes) {
    const float32x4x4_t row = kv_load16h(x);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; i++)
        s[r][i] = vaddq_f32(s[r][i], vmulq_n_f32(row.val[i], p[r * p_stride + j]));
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) vst1q_f32(acc + r * d + 4 * i, s[r][i]);
}

void KV_KERNEL(weighted)(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                         uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += ROWS)
    for (uint32_t c = 0; c < d; c += 16) {
      const float *weights = p + r * p_stride;
      float *sums = acc + r * d + c;
      switch (rows - r) {
        case 1: sixteen(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 1); break;
        case 2: sixteen(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 2); break;
        case 3: sixteen(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 3); break;
        default: sixteen(weights, p_stride, x + 2 * c, stride_bytes, tokens, sums, d, 4);
      }
    }
}
