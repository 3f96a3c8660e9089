#include "kernels/isa.h"

/* ex2 of section 10, x <= 0. Branch-free: what is computed below -64 is thrown away. */
static inline float ex2(float x) {
  float w = x + 12582912.0f;
  float r = x - (w - 12582912.0f);
  float p = 0x1.5bba14p-10f;
  p = p * r;
  p = p + 0x1.3cea88p-7f;
  p = p * r;
  p = p + 0x1.c6b752p-5f;
  p = p * r;
  p = p + 0x1.ebf9bcp-3f;
  p = p * r;
  p = p + 0x1.62e42ap-1f;
  p = p * r;
  p = p + 1.0f;
  uint32_t bits = kv_bits(p) + (kv_bits(w) << 23);
  return kv_float(x < -64.0f ? 0u : bits);
}

float KV_KERNEL(maximum)(const float *t, uint32_t n, uint32_t *ran) {
  KV_RAN(ran);
  float largest = t[0];
  for (uint32_t j = 1; j < n; j++) largest = t[j] > largest ? t[j] : largest;
  return largest;
}

void KV_KERNEL(exponentials)(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j++) t[j] = ex2(t[j] - maximum);
  for (uint32_t j = 0; j < n; j++) stripes[(phase + j) % 16] = stripes[(phase + j) % 16] + t[j];
}
