/* Turbo: codes and scales of transformed vectors, and what the codes leave over. */
#include "../avx2.h"

/* A code is half + m, or half - 1 - m for a negative number, which is half + ~m; m counts the thresholds reached.
 * Codebooks mirror, so a centroid is that of m with the number's sign. Spans are multiples of 8 channels. */
static void codes_of_span(const kv_span *span, const float *y, float sigma, uint8_t *codes, float *centroids) {
  const uint32_t half = 1u << (span->bits - 1), end = span->first + (uint32_t)span->channels;
  const __m256i base = _mm256_set1_epi32((int)half);
  float positive[8] = {0};
  __m256 th[7];
  for (uint32_t i = 0; i + 1 < half; i++) th[i] = _mm256_set1_ps(span->book->thresholds[i] * sigma);
  for (uint32_t i = 0; i < half; i++) positive[i] = (float)span->book->table[half + i];
  const __m256 table = _mm256_loadu_ps(positive);
  for (uint32_t c = span->first; c < end; c += 8) {
    const __m256 x = _mm256_loadu_ps(y + c), size = kv_abs8(x);
    const __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
    __m256i m = _mm256_setzero_si256();
    for (uint32_t i = 0; i + 1 < half; i++)
      m = _mm256_sub_epi32(m, _mm256_castps_si256(_mm256_cmp_ps(size, th[i], _CMP_GE_OQ)));
    kv_store8_bytes(codes + c, _mm256_add_epi32(base, _mm256_xor_si256(m, _mm256_castps_si256(negative))));
    const __m256 sign = _mm256_and_ps(negative, _mm256_set1_ps(-0.0f));
    _mm256_storeu_ps(centroids + c, _mm256_xor_ps(_mm256_permutevar8x32_ps(table, m), sign));
  }
}

static void zero_codes(const kv_codec *codec, uint8_t *codes) {
  for (uint32_t i = 0; i < codec->spans; i++)
    kv_fill(codes + codec->span[i].first, 1 << (codec->span[i].bits - 1), codec->span[i].channels);
}

void KV_KERNEL(quantize)(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens, uint8_t *codes,
                      float *scales, uint32_t *ran) {
  const float inverse_d = (float)(1.0 / d);
  float centroids[KV_MAX_DIM];
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d) {
    float n2 = kv_d16_avx2(y, y, d);
    if (n2 == 0) {
      zero_codes(codec, codes);
      scales[j] = 0;
      continue;
    }
    float sigma = __builtin_sqrtf(n2 * inverse_d);
    for (uint32_t i = 0; i < codec->spans; i++) codes_of_span(&codec->span[i], y, sigma, codes, centroids);
    float e = kv_d16_avx2(y, centroids, d);
    scales[j] = unbiased ? n2 / e : e / kv_d16_avx2(centroids, centroids, d);
  }
}

void KV_KERNEL(residual)(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                      uint32_t tokens, float *e, float *n2, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d, e += d) {
    const __m256 scale = _mm256_set1_ps(scales[j]);
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      const __m128i table = _mm_loadu_si128((const __m128i *)span->book->table);
      for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c += 8) {
        const __m128i centroid = _mm_shuffle_epi8(table, _mm_loadl_epi64((const __m128i *)(codes + c)));
        const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(centroid));
        _mm256_storeu_ps(e + c, _mm256_sub_ps(_mm256_loadu_ps(y + c), _mm256_mul_ps(scale, value)));
      }
    }
    n2[j] = kv_d16_avx2(e, e, d);
  }
}
