/* KIVI: asymmetric steps and minima (numeric contract, section 6). */
#include "kernels/isa.h"

typedef struct affine {
  uint16_t step, minimum; /* fp16, as stored */
} affine;

static affine affine_of(float smallest, float largest, float levels) {
  affine a;
  a.minimum = kv_f16s(smallest + 0.0f);
  float range = (largest + 0.0f) - kv_f32(a.minimum);
  a.step = range > 0 ? kv_f16s(range / levels) : 0;
  return a;
}

static uint8_t code_of(float r, float minimum, float step, float levels) {
  if (step == 0) return 0;
  float quotient = (r - minimum) / step;
  if (quotient < -1.0f) quotient = -1.0f;
  if (quotient > 0x1p20f) quotient = 0x1p20f;
  float code = kv_rne(quotient);
  if (code < 0) code = 0;
  return (uint8_t)(code > levels ? levels : code);
}

void KV_KERNEL(affine_keys)(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes, uint8_t *steps,
                           uint8_t *minima, uint32_t *ran) {
  const float levels = (float)((1 << bits) - 1);
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c++) {
    float smallest = r[c], largest = r[c];
    for (uint32_t j = 1; j < tokens; j++) {
      float x = r[j * d + c];
      smallest = x < smallest ? x : smallest;
      largest = x > largest ? x : largest;
    }
    affine a = affine_of(smallest, largest, levels);
    float minimum = kv_f32(a.minimum), step = kv_f32(a.step);
    for (uint32_t j = 0; j < tokens; j++) codes[j * d + c] = code_of(r[j * d + c], minimum, step, levels);
    kv_store16(steps + 2 * c, a.step);
    kv_store16(minima + 2 * c, a.minimum);
  }
}

void KV_KERNEL(affine_values)(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps,
                             uint8_t *minima, uint32_t stride, uint32_t *ran) {
  const float levels = (float)((1 << bits) - 1);
  KV_RAN(ran);
  for (uint32_t first = 0, group = 0; first < d; first += KV_GROUP, group++) {
    uint32_t end = first + KV_GROUP < d ? first + KV_GROUP : d;
    float smallest = r[first], largest = r[first];
    for (uint32_t c = first; c < end; c++) {
      smallest = r[c] < smallest ? r[c] : smallest;
      largest = r[c] > largest ? r[c] : largest;
    }
    affine a = affine_of(smallest, largest, levels);
    float minimum = kv_f32(a.minimum), step = kv_f32(a.step);
    for (uint32_t c = first; c < end; c++) codes[c] = code_of(r[c], minimum, step, levels);
    kv_store16(steps + 2ull * group * stride, a.step);
    kv_store16(minima + 2ull * group * stride, a.minimum);
  }
}
