/* Rows stored as fp16, widened once for four query rows. */
#include "kernels/avx2.h"
#include "kernels/instances.h"

#define ROWS 4u
#define BLOCK 32u
#define INLINE static inline __attribute__((always_inline))

/* Asks for `tokens` rows that are read soon: windows lie in the second-level cache at best, and rows one after another
 * are too short a stream for what fetches ahead by itself. */
static void ask_for(const uint8_t *x, uint64_t stride_bytes, uint32_t tokens, uint32_t d) {
  for (uint32_t j = 0; j < tokens; j++, x += stride_bytes) kv_ask_for(x, 2 * d);
}

static uint32_t at_most(uint32_t n, uint32_t most) { return n < most ? n : most; }

/* Stripes of `rows` query rows against one token, after the tree's first step (s[i] + s[i + 8]). */
INLINE void stripes(const float *q, uint32_t q_stride, uint32_t d, const uint8_t *x, __m256 (*out)[8], uint32_t rows) {
  __m256 low[ROWS], high[ROWS];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) low[r] = high[r] = _mm256_setzero_ps();
  for (uint32_t c = 0; c < d; c += 16, x += 32) {
    const __m256 a = kv_load8h(x), b = kv_load8h(x + 16);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      low[r] = _mm256_add_ps(low[r], _mm256_mul_ps(_mm256_loadu_ps(q + r * q_stride + c), a));
      high[r] = _mm256_add_ps(high[r], _mm256_mul_ps(_mm256_loadu_ps(q + r * q_stride + c + 8), b));
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) out[r][0] = _mm256_add_ps(low[r], high[r]);
}

/* The rest of the tree for eight tokens at once: + 4, + 2, + 1, halving the registers each time. */
static inline __m256 trees(const __m256 s[8]) {
  __m256 four[4], two[2];
  for (int i = 0; i < 4; i++)
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(s[2 * i], s[2 * i + 1], 0x20),
                            _mm256_permute2f128_ps(s[2 * i], s[2 * i + 1], 0x31));
  for (int i = 0; i < 2; i++)
    two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                           _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
  const __m256 t = _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xdd));
  return _mm256_permutevar8x32_ps(t, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* tokens 0 2 4 6 1 3 5 7 */
}

/* Up to eight tokens. */
INLINE void eight(const float *q, uint32_t q_stride, uint32_t d, const uint8_t *x, uint64_t stride_bytes,
                  uint32_t count, float *t, uint32_t t_stride, uint32_t rows) {
  __m256 s[ROWS][8];
  for (uint32_t k = 0; k < count; k++) stripes(q, q_stride, d, x + k * stride_bytes, (__m256(*)[8])(&s[0][k]), rows);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, t += t_stride) {
    if (count == 8) _mm256_storeu_ps(t, trees(s[r]));
    else
      for (uint32_t k = 0; k < count; k++) t[k] = kv_tree8(s[r][k]);
  }
}
KV_ROW_INSTANCES(eight,
                 (const float *q, uint32_t q_stride, uint32_t d, const uint8_t *x, uint64_t stride_bytes,
                  uint32_t count, float *t, uint32_t t_stride),
                 q, q_stride, d, x, stride_bytes, count, t, t_stride)

void KV_KERNEL(dots)(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                  uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j += 8, x += 8 * stride_bytes) {
    const uint32_t left = tokens - j;
    if (left > 8) ask_for(x + 8 * stride_bytes, stride_bytes, at_most(left - 8, 8), d);
    for (uint32_t r = 0; r < rows; r += ROWS)
      eight_of[at_most(rows - r, ROWS) - 1](q + r * q_stride, q_stride, d, x, stride_bytes, at_most(left, 8),
                                            t + r * t_stride + j, t_stride);
  }
}

/* Sixteen channels of `rows` sums over all tokens, in registers. */
INLINE void sixteen(const float *p, uint32_t p_stride, const uint8_t *x, uint64_t stride_bytes, uint32_t tokens,
                    float *acc, uint32_t d, uint32_t rows) {
  __m256 low[ROWS], high[ROWS];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    low[r] = _mm256_loadu_ps(acc + r * d);
    high[r] = _mm256_loadu_ps(acc + r * d + 8);
  }
  for (uint32_t j = 0; j < tokens; j++, x += stride_bytes) {
    const __m256 a = kv_load8h(x), b = kv_load8h(x + 16);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      const __m256 weight = _mm256_set1_ps(p[r * p_stride + j]);
      low[r] = _mm256_add_ps(low[r], _mm256_mul_ps(weight, a));
      high[r] = _mm256_add_ps(high[r], _mm256_mul_ps(weight, b));
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    _mm256_storeu_ps(acc + r * d, low[r]);
    _mm256_storeu_ps(acc + r * d + 8, high[r]);
  }
}

KV_ROW_INSTANCES(sixteen,
                 (const float *p, uint32_t p_stride, const uint8_t *x, uint64_t stride_bytes, uint32_t tokens,
                  float *acc, uint32_t d),
                 p, p_stride, x, stride_bytes, tokens, acc, d)

/* Tokens in blocks that stay in the first-level cache while their channels are gone through, sixteen after sixteen. */
void KV_KERNEL(weighted)(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                      uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t left = tokens; left;) {
    const uint32_t block = at_most(left, BLOCK);
    left -= block;
    ask_for(x + block * stride_bytes, stride_bytes, at_most(left, BLOCK), d);
    for (uint32_t r = 0; r < rows; r += ROWS)
      for (uint32_t c = 0; c < d; c += 16)
        sixteen_of[at_most(rows - r, ROWS) - 1](p + r * p_stride, p_stride, x + 2 * c, stride_bytes, block,
                                                acc + r * d + c, d);
    x += block * stride_bytes, p += block;
  }
}
