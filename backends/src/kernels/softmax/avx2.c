#include "kernels/avx2.h"

#define EACH(count) _Pragma("GCC unroll 4") for (uint32_t i = 0; i < (count); i++)

/* ex2 of section 10 of `count` registers, x <= 0, operation by operation that of scalar.c. The chain of operations is
 * ten times as long as they take: four registers side by side fill it. */
static inline __attribute__((always_inline)) void ex2(__m256 *x, uint32_t count) {
  static const float c[] = {0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1.0f};
  const __m256 magic = _mm256_set1_ps(12582912.0f);
  __m256 w[4], r[4], p[4];
  EACH(count) w[i] = _mm256_add_ps(x[i], magic);
  EACH(count) r[i] = _mm256_sub_ps(x[i], _mm256_sub_ps(w[i], magic));
  EACH(count) p[i] = _mm256_set1_ps(0x1.5bba14p-10f);
#pragma GCC unroll 5
  for (uint32_t k = 0; k < 5; k++) EACH(count) p[i] = _mm256_add_ps(_mm256_mul_ps(p[i], r[i]), _mm256_set1_ps(c[k]));
  EACH(count) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(w[i]), 23);
    const __m256 result = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[i]), shifted));
    x[i] = _mm256_andnot_ps(_mm256_cmp_ps(x[i], _mm256_set1_ps(-64.0f), _CMP_LT_OQ), result);
  }
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

/* `count` registers in place, added to the stripes. */
static inline __attribute__((always_inline)) void registers(float *t, uint32_t count, __m256 maximum, __m256 s[2]) {
  __m256 x[4];
  EACH(count) x[i] = _mm256_sub_ps(_mm256_loadu_ps(t + 8 * i), maximum);
  ex2(x, count);
  EACH(count) {
    _mm256_storeu_ps(t + 8 * i, x[i]);
    s[i % 2] = _mm256_add_ps(s[i % 2], x[i]);
  }
}

/* n numbers with the sum s of the stripes from 0 on. */
static void exponentials(float *t, uint32_t n, __m256 maximum, float s[16]) {
  __m256 sum[2] = {_mm256_loadu_ps(s), _mm256_loadu_ps(s + 8)};
  uint64_t j = 0;
  for (; j + 32 <= n; j += 32) registers(t + j, 4, maximum, sum);
  if (j + 16 <= n) {
    registers(t + j, 2, maximum, sum);
    j += 16;
  }
  _mm256_storeu_ps(s, sum[0]);
  _mm256_storeu_ps(s + 8, sum[1]);
  for (uint32_t i = 0; j < n; j += 8) {
    const uint32_t left = n - (uint32_t)j;
    __m256 x = _mm256_sub_ps(kv_load8(t + j, left), maximum);
    ex2(&x, 1);
    kv_store8(t + j, left, x);
    for (uint32_t k = 0; k < left && k < 8; k++, i++) s[i] = s[i] + t[j + k];
  }
}

void KV_KERNEL(exponentials)(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran) {
  float turned[16];
  KV_RAN(ran);
  if (n == 1) { /* a masked store would cost more than all else */
    __m256 x = _mm256_castps128_ps256(_mm_sub_ss(_mm_set_ss(t[0]), _mm_set_ss(maximum)));
    ex2(&x, 1);
    t[0] = _mm256_cvtss_f32(x);
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
