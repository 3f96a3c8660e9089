/* Turbo: codes and scales of transformed vectors, and what the codes leave over. */
#include "core/base/sums.h"
#include "kernels/isa.h"

#define STEP 8u /* spans are multiples of 8 channels */

static void codes_of_span(const kv_span *span, const float *y, float sigma, uint8_t *codes, float *centroids) {
  const uint32_t half = 1u << (span->bits - 1), end = span->first + (uint32_t)span->channels;
  float th[7];
  for (uint32_t i = 0; i + 1 < half; i++) th[i] = span->book->thresholds[i] * sigma;
  for (uint32_t c = span->first; c < end; c += STEP) {
    uint32_t m[STEP] = {0};
    for (uint32_t i = 0; i + 1 < half; i++)
      for (uint32_t k = 0; k < STEP; k++) m[k] += kv_abs(y[c + k]) >= th[i];
    for (uint32_t k = 0; k < STEP; k++) {
      uint32_t code = y[c + k] < 0 ? half - 1 - m[k] : half + m[k];
      codes[c + k] = (uint8_t)code;
      centroids[c + k] = (float)span->book->table[code];
    }
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
    float n2 = kv_d16(y, y, d);
    if (n2 == 0) {
      zero_codes(codec, codes);
      scales[j] = 0;
      continue;
    }
    float sigma = __builtin_sqrtf(n2 * inverse_d);
    for (uint32_t i = 0; i < codec->spans; i++) codes_of_span(&codec->span[i], y, sigma, codes, centroids);
    float e = kv_d16(y, centroids, d);
    scales[j] = unbiased ? n2 / e : e / kv_d16(centroids, centroids, d);
  }
}

void KV_KERNEL(residual)(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                        uint32_t tokens, float *e, float *n2, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d, e += d) {
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c++) {
        float reconstructed = scales[j] * (float)span->book->table[codes[c]];
        e[c] = y[c] - reconstructed;
      }
    }
    n2[j] = kv_d16(e, e, d);
  }
}
