#include "../avx2.h"

/* ex2 of section 10, x <= 0, operation by operation that of scalar.c. */
static inline __m256 ex2(__m256 x) {
  const __m256 magic = _mm256_set1_ps(12582912.0f);
  const __m256 w = _mm256_add_ps(x, magic), r = _mm256_sub_ps(x, _mm256_sub_ps(w, magic));
  __m256 p = _mm256_set1_ps(0x1.5bba14p-10f);
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.3cea88p-7f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.c6b752p-5f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.ebf9bcp-3f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.62e42ap-1f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f));
  const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(w), 23));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-64.0f), _CMP_LT_OQ), _mm256_castsi256_ps(bits));
}

/* Of +0 and -0 either may be returned: nothing that uses a maximum can tell. */
float KV_KERNEL(maximum)(const float *t, uint32_t n, uint32_t *ran) {
  const __m256 first = _mm256_set1_ps(t[0]);
  __m256 a = first, b = first;
  uint64_t j = 0;
  KV_RAN(ran);
#pragma GCC unroll 2
  for (; j + 16 <= n; j += 16) {
    a = _mm256_max_ps(_mm256_loadu_ps(t + j), a);
    b = _mm256_max_ps(_mm256_loadu_ps(t + j + 8), b);
  }
  if (j + 8 <= n) {
    a = _mm256_max_ps(_mm256_loadu_ps(t + j), a);
    j += 8;
  }
  if (j < n) {
    const __m256 x = kv_load8(t + j, n - (uint32_t)j);
    b = _mm256_max_ps(_mm256_blendv_ps(first, x, _mm256_castsi256_ps(kv_first8(n - (uint32_t)j))), b);
  }
  return kv_largest8(_mm256_max_ps(a, b));
}

/* Stripes [phase, phase + 16) mod 16, so that the sums below start at 0. */
static inline void turn(const float *from, float *to, uint32_t phase) {
  for (uint32_t i = 0; i < 16; i++) to[i] = from[(phase + i) % 16];
}

/* n numbers with the sum s of the stripes from 0 on. */
static void exponentials(float *t, uint32_t n, __m256 maximum, float s[16]) {
  __m256 low = _mm256_loadu_ps(s), high = _mm256_loadu_ps(s + 8);
  uint32_t j = 0;
  for (; j + 16 <= n; j += 16) {
    const __m256 a = ex2(_mm256_sub_ps(_mm256_loadu_ps(t + j), maximum));
    const __m256 b = ex2(_mm256_sub_ps(_mm256_loadu_ps(t + j + 8), maximum));
    _mm256_storeu_ps(t + j, a);
    _mm256_storeu_ps(t + j + 8, b);
    low = _mm256_add_ps(low, a);
    high = _mm256_add_ps(high, b);
  }
  _mm256_storeu_ps(s, low);
  _mm256_storeu_ps(s + 8, high);
  for (uint32_t i = 0; j < n; j += 8) {
    kv_store8(t + j, n - j, ex2(_mm256_sub_ps(kv_load8(t + j, n - (uint32_t)j), maximum)));
    for (uint32_t k = j; k < n && k < j + 8; k++, i++) s[i] = s[i] + t[k];
  }
}

void KV_KERNEL(exponentials)(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran) {
  float turned[16];
  KV_RAN(ran);
  if (n == 1) { /* the factors of every page and row: a masked store would cost more than all else */
    const __m128 x = _mm_sub_ss(_mm_set_ss(t[0]), _mm_set_ss(maximum));
    t[0] = _mm_cvtss_f32(_mm256_castps256_ps128(ex2(_mm256_castps128_ps256(x))));
    stripes[phase % 16] = stripes[phase % 16] + t[0];
    return;
  }
  if (phase % 16 == 0) {
    exponentials(t, n, _mm256_set1_ps(maximum), stripes);
    return;
  }
  turn(stripes, turned, phase % 16);
  exponentials(t, n, _mm256_set1_ps(maximum), turned);
  turn(turned, stripes, 16 - phase % 16);
}
