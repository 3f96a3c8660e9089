#include "kernels/avx2.h"

static inline void store16_bytes(int8_t *p, __m256i words) {
  __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128((__m128i *)p, bytes);
}

float KV_KERNEL(query8)(const float *z, uint32_t d, int8_t *qi, uint32_t *ran) {
  __m256 most = _mm256_setzero_ps();
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 8) most = _mm256_max_ps(kv_abs8(_mm256_loadu_ps(z + c)), most);
  const float a = kv_largest8(most);
  if (a == 0) {
    kv_fill(qi, 0, d);
    return 0;
  }
  const __m256 gain = _mm256_set1_ps(127.0f / a);
  for (uint32_t c = 0; c < d; c += 16) {
    __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z + c), gain));
    __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z + c + 8), gain));
    store16_bytes(qi + c, kv_words16(low, high));
  }
  return a * (float)(1.0 / 127);
}

float KV_KERNEL(query15)(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran) {
  __m256 most = _mm256_setzero_ps();
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 8)
    most = _mm256_max_ps(kv_abs8(_mm256_mul_ps(_mm256_loadu_ps(z + c), _mm256_loadu_ps(step + c))), most);
  const float a = kv_largest8(most);
  if (a == 0) {
    kv_fill(qi, 0, d * sizeof *qi);
    return 0;
  }
  const __m256 gain = _mm256_set1_ps(16256.0f / a);
  for (uint32_t c = 0; c < d; c += 16) {
    __m256 low = _mm256_mul_ps(_mm256_loadu_ps(z + c), _mm256_loadu_ps(step + c));
    __m256 high = _mm256_mul_ps(_mm256_loadu_ps(z + c + 8), _mm256_loadu_ps(step + c + 8));
    __m256i words = kv_words16(_mm256_cvtps_epi32(_mm256_mul_ps(low, gain)), _mm256_cvtps_epi32(_mm256_mul_ps(high, gain)));
    _mm256_storeu_si256((__m256i *)(qi + c), words);
  }
  return a * (float)(1.0 / 16256);
}
