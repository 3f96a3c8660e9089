/* Between float and fp16 with F16C: exact both ways, subnormals included, whatever the control register says. */
#include "kernels/avx2.h"

static inline __m128i nearest8(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline __m256 widened8(const uint16_t *x) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)); }

/* Magnitudes are compared as integers, where NaN is above infinity; the largest of all is compared once. */
int KV_KERNEL(narrow)(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i a = _mm256_setzero_si256(), b = a;
  KV_RAN(ran);
  for (; rows; rows--, x += n, out += stride)
    for (uint32_t c = 0; c < n; c += 16) {
      const __m256 low = _mm256_loadu_ps(x + c), high = _mm256_loadu_ps(x + c + 8);
      a = _mm256_max_epi32(a, _mm256_and_si256(_mm256_castps_si256(low), magnitude));
      b = _mm256_max_epi32(b, _mm256_and_si256(_mm256_castps_si256(high), magnitude));
      _mm_storeu_si128((__m128i *)(out + c), nearest8(low));
      _mm_storeu_si128((__m128i *)(out + c + 8), nearest8(high));
    }
  a = _mm256_cmpgt_epi32(_mm256_max_epi32(a, b), _mm256_set1_epi32(KV_LARGEST_F16));
  return !_mm256_testz_si256(a, a);
}

void KV_KERNEL(widen)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out,
                      uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t c = 0; c < n; c += 16) {
    const uint16_t *from = x + c;
    float *to = out + c;
    if (!mean) {
      for (uint32_t j = 0; j < rows; j++, from += stride, to += n) {
        _mm256_storeu_ps(to, widened8(from));
        _mm256_storeu_ps(to + 8, widened8(from + 8));
      }
      continue;
    }
    const __m256 low = widened8(mean + c), high = widened8(mean + c + 8);
    for (uint32_t j = 0; j < rows; j++, from += stride, to += n) {
      _mm256_storeu_ps(to, _mm256_sub_ps(widened8(from), low));
      _mm256_storeu_ps(to + 8, _mm256_sub_ps(widened8(from + 8), high));
    }
  }
}

/* f16s of eight sums over `count`: infinity less one is 65504. */
static inline __m128i means8(__m256 sum, __m256 count) {
  const __m128i h = nearest8(_mm256_div_ps(sum, count));
  const __m128i magnitude = _mm_and_si128(h, _mm_set1_epi16(0x7fff));
  return _mm_add_epi16(h, _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7c00)));
}

/* Sums of 8 * `registers` channels: one alone would wait for its addition at every token. */
static inline __attribute__((always_inline)) void sums(const uint16_t *x, uint64_t stride, uint32_t rows,
                                                       uint16_t *mean, uint32_t registers) {
  __m256 sum[8];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < registers; i++) sum[i] = _mm256_setzero_ps();
  for (uint32_t j = 0; j < rows; j++, x += stride)
#pragma GCC unroll 8
    for (uint32_t i = 0; i < registers; i++) sum[i] = _mm256_add_ps(sum[i], widened8(x + 8 * i));
#pragma GCC unroll 8
  for (uint32_t i = 0; i < registers; i++)
    _mm_storeu_si128((__m128i *)(mean + 8 * i), means8(sum[i], _mm256_set1_ps((float)rows)));
}

void KV_KERNEL(mean)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran) {
  uint32_t c = 0;
  KV_RAN(ran);
  for (; c + 64 <= n; c += 64) sums(x + c, stride, rows, mean + c, 8);
  for (; c < n; c += 16) sums(x + c, stride, rows, mean + c, 2);
}
