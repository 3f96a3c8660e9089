/* The float steps between the integer sums and the softmax, and after them. */
#include "kernels/isa.h"

void KV_KERNEL(logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j++) {
    float scaled = (float)sum[j] * su[j];
    t[j] = scaled * factor;
  }
}

void KV_KERNEL(add_logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j++) {
    float scaled = (float)sum[j] * su[j];
    float term = scaled * factor;
    t[j] = t[j] + term;
  }
}

void KV_KERNEL(affine_logits)(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j++) {
    float scaled = (float)sum[j] * scale;
    t[j] = scaled + bias;
  }
}

void KV_KERNEL(shift)(float *t, uint32_t n, float bias, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j++) t[j] = t[j] + bias;
}

float KV_KERNEL(weigh)(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran) {
  float w[KV_MAX_PAGE], largest = 0;
  KV_RAN(ran);
  for (uint32_t j = 0; j < n; j++) {
    w[j] = p[j] * scale[j];
    largest = w[j] > largest ? w[j] : largest;
  }
  if (largest < 0x1p-60f) {
    kv_fill(iw, 0, n * sizeof *iw);
    return largest;
  }
  const float gain = 16383.0f / largest;
  for (uint32_t j = 0; j < n; j++) iw[j] = (int16_t)kv_rne(w[j] * gain);
  return largest;
}

void KV_KERNEL(blend)(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c++) {
    float kept = acc[c] * al;
    float added = (float)sum[c] * f;
    acc[c] = kept + added;
  }
}

void KV_KERNEL(blend_affine)(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset, float be,
                            uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c++) {
    float scaled = (float)sum[c] * scale;
    float x = scaled + offset;
    float kept = acc[c] * al;
    float added = x * be;
    acc[c] = kept + added;
  }
}

void KV_KERNEL(blend_rows)(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c++) {
    float kept = acc[c] * al;
    float added = x[c] * be;
    acc[c] = kept + added;
  }
}
