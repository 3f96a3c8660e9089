/* The AVX2 variant: AVX2 and F16C, never FMA, since the contract rounds products before it adds them.
 * Vector operations are those of the scalar files in the same order; only integer sums are regrouped. */
#ifndef KV_KERNELS_AVX2_H
#define KV_KERNELS_AVX2_H

#ifndef KV_EMULATE /* a test that brings an emulation of the intrinsics */
#include <immintrin.h>
#endif

#include "isa.h"

/* Lanes [0, left) of eight: masked loads and stores touch no byte outside them. */
static inline __m256i kv_first8(uint32_t left) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Eight numbers, or the `left` that there are and zeros. Masked stores are slow: the tail alone takes them. */
static inline __m256 kv_load8(const float *p, uint32_t left) {
  return left >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, kv_first8(left));
}
static inline void kv_store8(float *p, uint32_t left, __m256 x) {
  if (left >= 8) _mm256_storeu_ps(p, x);
  else _mm256_maskstore_ps(p, kv_first8(left), x);
}
/* Asks for bytes that are read soon, whatever lies there. */
static inline void kv_ask_for(const uint8_t *p, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* `body` for j = 0, 8, 16, ... below n, `left` of them: a constant 8 but for the tail. */
#define KV_EIGHTS(j, left, n, body)                             \
  {                                                             \
    uint64_t j = 0;                                             \
    _Pragma("GCC unroll 4") for (; j + 8 <= (n); j += 8) {      \
      const uint32_t left = 8;                                  \
      body                                                      \
    }                                                           \
    if (j < (n)) {                                              \
      const uint32_t left = (n) - (uint32_t)j;                  \
      body                                                      \
    }                                                           \
  }

/* int32 sums as floats. */
static inline __m256 kv_load8i(const int32_t *p, uint32_t left) {
  return _mm256_cvtepi32_ps(left >= 8 ? _mm256_loadu_si256((const __m256i *)p)
                                      : _mm256_maskload_epi32(p, kv_first8(left)));
}

/* Eight fp16, subnormals included: F16C heeds no flush-to-zero control. */
static inline __m256 kv_load8h(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

static inline __m256 kv_abs8(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

static inline float kv_largest8(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}

/* The tree of D16 and S16 after its first step, s[i] + s[i + 8]. */
static inline float kv_tree8(__m256 s) {
  __m128 m = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  m = _mm_add_ps(m, _mm_movehl_ps(m, m));
  m = _mm_add_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}

/* D16(a, b), n a multiple of 16. */
static inline float kv_d16_avx2(const float *a, const float *b, uint32_t n) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (uint32_t c = 0; c < n; c += 16) {
    low = _mm256_add_ps(low, _mm256_mul_ps(_mm256_loadu_ps(a + c), _mm256_loadu_ps(b + c)));
    high = _mm256_add_ps(high, _mm256_mul_ps(_mm256_loadu_ps(a + c + 8), _mm256_loadu_ps(b + c + 8)));
  }
  return kv_tree8(_mm256_add_ps(low, high));
}

/* Eight int32 that fit eight bits, as bytes; sixteen that fit 16 bits, in order. */
static inline void kv_store8_bytes(uint8_t *p, __m256i x) {
  __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));
}
static inline __m256i kv_words16(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8); /* packs works in halves of the register */
}

#endif
