#include "kernels/neon.h"

static inline float32x4_t pairs_low(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vtrn1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
static inline float32x4_t pairs_high(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vtrn2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

/* Stages 1 and 2 of two registers at once: interleaved, both are a plain sum and difference. */
static inline void stages4(float32x4_t *x, float32x4_t *y) {
  const float32x4_t even = vtrn1q_f32(*x, *y), odd = vtrn2q_f32(*x, *y);
  const float32x4_t sum = vaddq_f32(even, odd), difference = vsubq_f32(even, odd);
  const float32x4_t low = pairs_low(sum, difference), high = pairs_high(sum, difference);
  const float32x4_t s = vaddq_f32(low, high), d = vsubq_f32(low, high); /* x and y in turn, channels 0 1 and 2 3 */
  *x = vuzp1q_f32(s, d);
  *y = vuzp2q_f32(s, d);
}

/* Stages 1, 2, 4 and 8 of sixteen channels. */
static inline void sixteen(float *to, float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
  stages4(&a, &b);
  stages4(&c, &d);
  const float32x4_t ab = vaddq_f32(a, b), a_b = vsubq_f32(a, b), cd = vaddq_f32(c, d), c_d = vsubq_f32(c, d);
  vst1q_f32(to, vaddq_f32(ab, cd));
  vst1q_f32(to + 4, vaddq_f32(a_b, c_d));
  vst1q_f32(to + 8, vsubq_f32(ab, cd));
  vst1q_f32(to + 12, vsubq_f32(a_b, c_d));
}

static inline float32x4_t flipped(const float *x, const uint32_t *sign) {
  return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(vld1q_f32(x)), vld1q_u32(sign)));
}

static void pairs(float *x, uint32_t d, uint32_t h) {
  for (uint32_t i = 0; i < d; i += 2 * h)
    for (uint32_t j = i; j < i + h; j += 4) {
      const float32x4_t a = vld1q_f32(x + j), b = vld1q_f32(x + j + h);
      vst1q_f32(x + j, vaddq_f32(a, b));
      vst1q_f32(x + j + h, vsubq_f32(a, b));
    }
}

/* Stages h and 2h in one pass over memory. */
static void fours(float *x, uint32_t d, uint32_t h) {
  for (uint32_t i = 0; i < d; i += 4 * h)
    for (uint32_t j = i; j < i + h; j += 4) {
      const float32x4_t a = vld1q_f32(x + j), b = vld1q_f32(x + j + h);
      const float32x4_t c = vld1q_f32(x + j + 2 * h), e = vld1q_f32(x + j + 3 * h);
      const float32x4_t ab = vaddq_f32(a, b), a_b = vsubq_f32(a, b), ce = vaddq_f32(c, e), c_e = vsubq_f32(c, e);
      vst1q_f32(x + j, vaddq_f32(ab, ce));
      vst1q_f32(x + j + h, vaddq_f32(a_b, c_e));
      vst1q_f32(x + j + 2 * h, vsubq_f32(ab, ce));
      vst1q_f32(x + j + 3 * h, vsubq_f32(a_b, c_e));
    }
}

/* Stages 16 and above. */
static void wide_stages(float *x, uint32_t d, uint32_t block) {
  uint32_t h = 16;
  for (; 4 * h <= block; h *= 4) fours(x, d, h);
  if (h < block) pairs(x, d, h);
}

static void hadamard(float *x, uint32_t d, uint32_t block) {
  for (float *p = x; p < x + d; p += 16)
    sixteen(p, vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12));
  wide_stages(x, d, block);
}

/* Hadamard of sign * x. */
static void hadamard_flipped(float *x, const uint32_t *sign, uint32_t d, uint32_t block) {
  for (float *p = x; p < x + d; p += 16, sign += 16)
    sixteen(p, flipped(p, sign), flipped(p + 4, sign + 4), flipped(p + 8, sign + 8), flipped(p + 12, sign + 12));
  wide_stages(x, d, block);
}

static void flip(float *to, const float *from, const uint32_t *sign, uint32_t d) {
  for (uint32_t c = 0; c < d; c += 4) vst1q_f32(to + c, flipped(from + c, sign + c));
}

void KV_KERNEL(forward)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows; rows--, x += d) {
    hadamard_flipped(x, t->sign1, d, t->block);
    if (t->rounds < 2) continue;
    kv_copy(y, x, d * sizeof *y);
    for (uint32_t c = 0; c < d; c++) x[c] = y[t->perm[c]];
    hadamard_flipped(x, t->sign2, d, t->block);
  }
}

void KV_KERNEL(inverse)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows; rows--, x += d) {
    hadamard(x, d, t->block);
    if (t->rounds == 2) {
      flip(y, x, t->sign2, d);
      for (uint32_t c = 0; c < d; c++) x[t->perm[c]] = y[c];
      hadamard(x, d, t->block);
    }
    flip(x, x, t->sign1, d);
  }
}
