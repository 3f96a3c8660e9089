#include "scale.h"

#include "kvassay.h"
#include "bits.h"

static const float FULL[16] = {0x1p+0f,        0x1.ea4afap-1f, 0x1.d5818ep-1f, 0x1.c199bep-1f,
                               0x1.ae89fap-1f, 0x1.9c4918p-1f, 0x1.8ace54p-1f, 0x1.7a1148p-1f,
                               0x1.6a09e6p-1f, 0x1.5ab07ep-1f, 0x1.4bfdaep-1f, 0x1.3dea64p-1f,
                               0x1.306fe0p-1f, 0x1.2387a6p-1f, 0x1.172b84p-1f, 0x1.0b5586p-1f};
static const float HALF[16] = {0x1.f50766p-1f, 0x1.dfc974p-1f, 0x1.cb720ep-1f, 0x1.b7f770p-1f,
                               0x1.a5503cp-1f, 0x1.93737cp-1f, 0x1.82589ap-1f, 0x1.71f75ep-1f,
                               0x1.6247ecp-1f, 0x1.5342b6p-1f, 0x1.44e086p-1f, 0x1.371a74p-1f,
                               0x1.29e9e0p-1f, 0x1.1d4874p-1f, 0x1.11301ep-1f, 0x1.059b0ep-1f};

/* table[k mod 16] * 2^-(k div 16) for k = 255 - u. */
static float step_of(const float table[16], uint32_t u) {
  uint32_t k = 255 - u;
  return table[k % 16] * kv_pow2(-(int32_t)(k / 16));
}

/* Number of i in 1..255 with ratio >= TL[i]; TL rises with i, so it can be searched. */
static uint32_t log_code(float ratio) {
  uint32_t low = 0, high = 255;
  while (low < high) {
    uint32_t middle = (low + high + 1) / 2;
    if (ratio >= step_of(HALF, middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

float kv_scales_write(uint32_t kind, const float *scales, uint32_t n, uint8_t *stored) {
  float maximum = 0;
  for (uint32_t j = 0; j < n; j++) maximum = scales[j] > maximum ? scales[j] : maximum;
  if (kind == KV_SCALE_FP16) {
    for (uint32_t j = 0; j < n; j++) kv_store16(stored + 2 * j, kv_f16s(scales[j]));
  } else if (maximum == 0) {
    kv_fill(stored, 0, n);
  } else if (kind == KV_SCALE_U8) {
    const float gain = 255.0f / maximum;
    for (uint32_t j = 0; j < n; j++) stored[j] = (uint8_t)kv_rne(scales[j] * gain);
  } else {
    for (uint32_t j = 0; j < n; j++) stored[j] = (uint8_t)log_code(scales[j] / maximum);
  }
  return maximum;
}

float kv_scales_read(uint32_t kind, const uint8_t *stored, float maximum, uint32_t n, float *su) {
  switch (kind) {
    case KV_SCALE_U8:
      for (uint32_t j = 0; j < n; j++) su[j] = (float)stored[j];
      return maximum * (float)(1.0 / 255);
    case KV_SCALE_U8LOG:
      for (uint32_t j = 0; j < n; j++) su[j] = stored[j] ? step_of(FULL, stored[j]) : 0.0f;
      return maximum;
    default:
      for (uint32_t j = 0; j < n; j++) su[j] = kv_f32(kv_load16(stored + 2 * j));
      return 1.0f;
  }
}
