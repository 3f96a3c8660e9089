/* Eight rows at once, a row a lane: stages are plain additions, the permutation is an order of reading, and the two
 * transposes cost less than the shuffles of stages within a register (96 a row against 192, and no signs). */
#ifndef KV_TRANSFORM_AVX2_EIGHT_H
#define KV_TRANSFORM_AVX2_EIGHT_H

#include "kernels/avx2.h"

/* 8 x 8 numbers: rows `from_stride` apart in, rows `to_stride` apart out. */
static inline void transposed(const float *x, uint32_t stride, __m256 out[8]) {
  __m256 a[4], b[4];
  for (uint32_t i = 0; i < 4; i++) {
    const float *low = x + i * stride, *high = x + (i + 4) * stride;
    a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
    b[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)), _mm_loadu_ps(high + 4), 1);
  }
  for (uint32_t half = 0; half < 2; half++) {
    const __m256 *r = half ? b : a;
    const __m256 p = _mm256_unpacklo_ps(r[0], r[1]), q = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 s = _mm256_unpacklo_ps(r[2], r[3]), t = _mm256_unpackhi_ps(r[2], r[3]);
    out[4 * half] = _mm256_shuffle_ps(p, s, 0x44);
    out[4 * half + 1] = _mm256_shuffle_ps(p, s, 0xee);
    out[4 * half + 2] = _mm256_shuffle_ps(q, t, 0x44);
    out[4 * half + 3] = _mm256_shuffle_ps(q, t, 0xee);
  }
}

static void pairs(float *x, uint32_t d, uint32_t h) {
  for (uint32_t i = 0; i < d; i += 2 * h)
    for (uint32_t j = i; j < i + h; j += 8) {
      const __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + h);
      _mm256_storeu_ps(x + j, _mm256_add_ps(a, b));
      _mm256_storeu_ps(x + j + h, _mm256_sub_ps(a, b));
    }
}

/* Stages h and 2h in one pass over memory. */
static void fours(float *x, uint32_t d, uint32_t h) {
  for (uint32_t i = 0; i < d; i += 4 * h)
    for (uint32_t j = i; j < i + h; j += 8) {
      const __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + h);
      const __m256 c = _mm256_loadu_ps(x + j + 2 * h), e = _mm256_loadu_ps(x + j + 3 * h);
      const __m256 ab = _mm256_add_ps(a, b), a_b = _mm256_sub_ps(a, b);
      const __m256 ce = _mm256_add_ps(c, e), c_e = _mm256_sub_ps(c, e);
      _mm256_storeu_ps(x + j, _mm256_add_ps(ab, ce));
      _mm256_storeu_ps(x + j + h, _mm256_add_ps(a_b, c_e));
      _mm256_storeu_ps(x + j + 2 * h, _mm256_sub_ps(ab, ce));
      _mm256_storeu_ps(x + j + 3 * h, _mm256_sub_ps(a_b, c_e));
    }
}

/* Stages 1, 2 and 4 of eight channels, each with its sign, to y. */
static inline void first_stages(const __m256 in[8], const uint32_t *sign, float *y) {
  __m256 x[8], z[8];
  for (uint32_t i = 0; i < 8; i++) x[i] = _mm256_xor_ps(in[i], _mm256_castsi256_ps(_mm256_set1_epi32((int)sign[i])));
  for (uint32_t i = 0; i < 8; i += 2) z[i] = _mm256_add_ps(x[i], x[i + 1]), z[i + 1] = _mm256_sub_ps(x[i], x[i + 1]);
  for (uint32_t i = 0; i < 8; i += 4) {
    x[i] = _mm256_add_ps(z[i], z[i + 2]), x[i + 2] = _mm256_sub_ps(z[i], z[i + 2]);
    x[i + 1] = _mm256_add_ps(z[i + 1], z[i + 3]), x[i + 3] = _mm256_sub_ps(z[i + 1], z[i + 3]);
  }
  for (uint32_t i = 0; i < 4; i++) {
    _mm256_storeu_ps(y + 8 * i, _mm256_add_ps(x[i], x[i + 4]));
    _mm256_storeu_ps(y + 8 * i + 32, _mm256_sub_ps(x[i], x[i + 4]));
  }
}

/* Stages 8, 16, 32 and 64 in one pass: sixteen channels fill the registers. */
static void sixteens(float *y, uint32_t d) {
  for (uint32_t c = 0; c < d; c += 128)
    for (float *x = y + 8 * c; x < y + 8 * c + 64; x += 8) {
      __m256 r[16];
#pragma GCC unroll 16
      for (uint32_t k = 0; k < 16; k++) r[k] = _mm256_loadu_ps(x + 64 * k);
#pragma GCC unroll 4
      for (uint32_t bit = 1; bit < 16; bit *= 2)
#pragma GCC unroll 16
        for (uint32_t k = 0; k < 16; k++) {
          if (k & bit) continue;
          const __m256 a = r[k], b = r[k + bit];
          r[k] = _mm256_add_ps(a, b);
          r[k + bit] = _mm256_sub_ps(a, b);
        }
#pragma GCC unroll 16
      for (uint32_t k = 0; k < 16; k++) _mm256_storeu_ps(x + 64 * k, r[k]);
    }
}

/* Stages 8 and above of y [d][8]. */
static void last_stages(float *y, uint32_t d, uint32_t block) {
  uint32_t h = 8;
  if (block >= 128) sixteens(y, d), h = 128;
  for (; 4 * h <= block; h *= 4) fours(y, 8 * d, 8 * h);
  if (h < block) pairs(y, 8 * d, 8 * h);
}

/* Behind the first stages and their signs: y [d][8] to where the result is, y or z. */
static float *forward_rest(const kv_transform *t, float *y, float *z) {
  const uint32_t d = t->head_dim;
  __m256 in[8];
  last_stages(y, d, t->block);
  if (t->rounds < 2) return y;
  for (uint32_t c = 0; c < d; c += 8) {
    for (uint32_t i = 0; i < 8; i++) in[i] = _mm256_loadu_ps(y + 8 * t->perm[c + i]);
    first_stages(in, t->sign2 + c, z + 8 * c);
  }
  last_stages(z, d, t->block);
  return z;
}

#endif
