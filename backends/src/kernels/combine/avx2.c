/* The float steps between the integer sums and the softmax, and after them. */
#include "kernels/avx2.h"

void KV_KERNEL(logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  const __m256 f = _mm256_set1_ps(factor);
  KV_RAN(ran);
  KV_EIGHTS(j, left, n, {
    __m256 scaled = _mm256_mul_ps(kv_load8i(sum + j, left), kv_load8(su + j, left));
    kv_store8(t + j, left, _mm256_mul_ps(scaled, f));
  })
}

void KV_KERNEL(add_logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  const __m256 f = _mm256_set1_ps(factor);
  KV_RAN(ran);
  KV_EIGHTS(j, left, n, {
    __m256 scaled = _mm256_mul_ps(kv_load8i(sum + j, left), kv_load8(su + j, left));
    kv_store8(t + j, left, _mm256_add_ps(kv_load8(t + j, left), _mm256_mul_ps(scaled, f)));
  })
}

void KV_KERNEL(affine_logits)(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran) {
  const __m256 s = _mm256_set1_ps(scale), b = _mm256_set1_ps(bias);
  KV_RAN(ran);
  KV_EIGHTS(j, left, n, { kv_store8(t + j, left, _mm256_add_ps(_mm256_mul_ps(kv_load8i(sum + j, left), s), b)); })
}

void KV_KERNEL(shift)(float *t, uint32_t n, float bias, uint32_t *ran) {
  const __m256 b = _mm256_set1_ps(bias);
  KV_RAN(ran);
  KV_EIGHTS(j, left, n, { kv_store8(t + j, left, _mm256_add_ps(kv_load8(t + j, left), b)); })
}

float KV_KERNEL(weigh)(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran) {
  __m256 most = _mm256_setzero_ps();
  KV_RAN(ran);
  KV_EIGHTS(j, left, n, {
    most = _mm256_max_ps(_mm256_mul_ps(kv_load8(p + j, left), kv_load8(scale + j, left)), most);
  })
  const float largest = kv_largest8(most);
  if (largest < 0x1p-60f) {
    kv_fill(iw, 0, n * sizeof *iw);
    return largest;
  }
  const __m256 gain = _mm256_set1_ps(16383.0f / largest);
  uint64_t j = 0;
#pragma GCC unroll 2
  for (; j + 16 <= n; j += 16) { /* the products again: cheaper than kept */
    const __m256 a = _mm256_mul_ps(_mm256_loadu_ps(p + j), _mm256_loadu_ps(scale + j));
    const __m256 b = _mm256_mul_ps(_mm256_loadu_ps(p + j + 8), _mm256_loadu_ps(scale + j + 8));
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(a, gain)), high = _mm256_cvtps_epi32(_mm256_mul_ps(b, gain));
    _mm256_storeu_si256((__m256i *)(iw + j), kv_words16(low, high));
  }
  for (; j < n; j++) {
    float w = p[j] * scale[j];
    iw[j] = (int16_t)kv_rne(w * (16383.0f / largest));
  }
  return largest;
}

void KV_KERNEL(blend)(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran) {
  const __m256 a = _mm256_set1_ps(al), b = _mm256_set1_ps(f);
  KV_RAN(ran);
  KV_EIGHTS(c, left, n, {
    __m256 kept = _mm256_mul_ps(kv_load8(acc + c, left), a);
    kv_store8(acc + c, left, _mm256_add_ps(kept, _mm256_mul_ps(kv_load8i(sum + c, left), b)));
  })
}

void KV_KERNEL(blend_affine)(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset, float be,
                          uint32_t *ran) {
  const __m256 a = _mm256_set1_ps(al), s = _mm256_set1_ps(scale), o = _mm256_set1_ps(offset), b = _mm256_set1_ps(be);
  KV_RAN(ran);
  KV_EIGHTS(c, left, n, {
    __m256 x = _mm256_add_ps(_mm256_mul_ps(kv_load8i(sum + c, left), s), o);
    __m256 kept = _mm256_mul_ps(kv_load8(acc + c, left), a);
    kv_store8(acc + c, left, _mm256_add_ps(kept, _mm256_mul_ps(x, b)));
  })
}

void KV_KERNEL(blend_rows)(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran) {
  const __m256 a = _mm256_set1_ps(al), b = _mm256_set1_ps(be);
  KV_RAN(ran);
  KV_EIGHTS(c, left, n, {
    __m256 kept = _mm256_mul_ps(kv_load8(acc + c, left), a);
    kv_store8(acc + c, left, _mm256_add_ps(kept, _mm256_mul_ps(kv_load8(x + c, left), b)));
  })
}
