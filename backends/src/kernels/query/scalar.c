#include "kernels/isa.h"

static float largest_magnitude(const float *z, uint32_t d) {
  float a = 0;
  for (uint32_t c = 0; c < d; c++) a = kv_abs(z[c]) > a ? kv_abs(z[c]) : a;
  return a;
}

float KV_KERNEL(query8)(const float *z, uint32_t d, int8_t *qi, uint32_t *ran) {
  KV_RAN(ran);
  float a = largest_magnitude(z, d);
  if (a == 0) {
    kv_fill(qi, 0, d);
    return 0;
  }
  const float gain = 127.0f / a;
  for (uint32_t c = 0; c < d; c++) qi[c] = (int8_t)kv_rne(z[c] * gain);
  return a * (float)(1.0 / 127);
}

float KV_KERNEL(query15)(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran) {
  float scaled[KV_MAX_DIM];
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c++) scaled[c] = z[c] * step[c];
  float a = largest_magnitude(scaled, d);
  if (a == 0) {
    kv_fill(qi, 0, d * sizeof *qi);
    return 0;
  }
  const float gain = 16256.0f / a;
  for (uint32_t c = 0; c < d; c++) qi[c] = (int16_t)kv_rne(scaled[c] * gain);
  return a * (float)(1.0 / 16256);
}
