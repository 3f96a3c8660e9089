/* What a layer does between its matrices. */
#include "decoder.h"
#include "lanes.h"

/* exp(x) for every x, relative error below 2e-7: 2^k times a polynomial in the rest (Taylor, |r| <= ln2 / 2). */
static inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  int32_t k = kvd_round(x * 0x1.715476p+0f);
  float r = x - (float)k * 0x1.62e4p-1f; /* ln2 in two parts: the product with the first is exact */
  r = r - (float)k * 0x1.7f7d1cp-20f;
  float p = 0x1.a01a02p-13f;
  p = p * r + 0x1.6c16c2p-10f;
  p = p * r + 0x1.111112p-7f;
  p = p * r + 0x1.555556p-5f;
  p = p * r + 0x1.555556p-3f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * kvd_float((uint32_t)(k + 127) << 23);
}

void kvd_rms_norm(const float *x, const float *weight, uint32_t tokens, uint32_t n, float eps, float *y) {
  for (uint32_t t = 0; t < tokens; t++, x += n, y += n) {
    kvd_f4 sum[4] = {{0}};
    for (uint32_t c = 0; c < n; c += 16)
      for (uint32_t i = 0; i < 4; i++) sum[i] = sum[i] + kvd_load(x + c + 4 * i) * kvd_load(x + c + 4 * i);
    float total = kvd_lane_sum((sum[0] + sum[2]) + (sum[1] + sum[3]));
    kvd_f4 root = kvd_splat(__builtin_sqrtf(total / (float)n + eps));
    for (uint32_t c = 0; c < n; c += 4) kvd_store(y + c, kvd_load(x + c) / root * kvd_load(weight + c));
  }
}

void kvd_rope(float *x, uint32_t heads, uint32_t head_dim, const float *cosines, const float *sines) {
  for (uint32_t h = 0; h < heads; h++, x += head_dim)
    for (uint32_t i = 0; i < head_dim / 2; i++) {
      float even = x[2 * i], odd = x[2 * i + 1];
      x[2 * i] = even * cosines[i] - odd * sines[i];
      x[2 * i + 1] = even * sines[i] + odd * cosines[i];
    }
}

void kvd_swiglu(float *gate, const float *up, uint32_t n) {
  for (uint32_t c = 0; c < n; c++) gate[c] = gate[c] / (1.0f + exponential(-gate[c])) * up[c];
}

void kvd_add(float *x, const float *y, uint32_t n) {
  for (uint32_t c = 0; c < n; c += 4) kvd_store(x + c, kvd_load(x + c) + kvd_load(y + c));
}
