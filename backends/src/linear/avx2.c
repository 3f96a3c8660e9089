/* Products with AVX2: a lane a row. */
#include "linear.h"

#include <immintrin.h>

#include "core/base/bits.h"

#define TOKENS 4u /* that share one unpacking of the weights */
#define AHEAD 4096 /* bytes that are asked for in advance: rows are read once, from memory */
#define ALWAYS static inline __attribute__((always_inline))

/* Columns 4j .. 4j+3 of eight rows, for each j. */
ALWAYS void unpack(kv_weights kind, const uint8_t *block, __m256i *w) {
  if (kind == KV_WEIGHTS_Q8_0) {
    for (uint32_t j = 0; j < 8; j++) w[j] = _mm256_loadu_si256((const __m256i *)(block + 16 + 32 * j));
    return;
  }
  const __m256i half = _mm256_set1_epi8(15);
  for (uint32_t j = 0; j < 4; j++) {
    const __m256i both = _mm256_loadu_si256((const __m256i *)(block + 32 + 32 * j));
    w[j] = _mm256_and_si256(both, half);
    w[4 + j] = _mm256_and_si256(_mm256_srli_epi16(both, 4), half);
  }
}

/* Exact products of eight rows. Bytes multiply unsigned by signed, so q8_0 hands its sign over to x. A sum of eight
 * q4_1 pairs is at most 8 * 2 * 15 * 127, which 16 bits hold. */
ALWAYS __m256i products(kv_weights kind, const __m256i *w, const int8_t *q) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  for (uint32_t j = 0; j < 8; j++) {
    const __m256i x = _mm256_set1_epi32((int)kv_load32(q + 4 * j));
    if (kind == KV_WEIGHTS_Q4_1) sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[j], x));
    else sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(x, w[j])), ones));
  }
  return kind == KV_WEIGHTS_Q4_1 ? _mm256_madd_epi16(sum, ones) : sum;
}

ALWAYS __m256 halves(const uint8_t *at) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)); }

/* A group for `tokens` tokens, a constant where this is inlined, so that the sums are registers. */
ALWAYS void tile(const kv_linear *job, kv_weights kind, uint64_t group, uint64_t token, uint32_t tokens) {
  const uint64_t bytes = kv_linear_bytes(kind);
  const uint8_t *block = job->matrix + group * job->blocks * bytes;
  __m256 sum[TOKENS], minima[TOKENS];
  for (uint32_t t = 0; t < tokens; t++) sum[t] = minima[t] = _mm256_setzero_ps();
  for (uint32_t b = 0; b < job->blocks; b++, block += bytes) {
    for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)block + AHEAD + i, _MM_HINT_T0);
    __m256i w[8];
    unpack(kind, block, w);
    const __m256 step = halves(block);
    for (uint32_t t = 0; t < tokens; t++) {
      const uint64_t at = (token + t) * job->blocks + b;
      const __m256 product = _mm256_cvtepi32_ps(products(kind, w, job->x[at].q));
      const __m256 scale = _mm256_mul_ps(step, _mm256_broadcast_ss(&job->x[at].scale));
      sum[t] = _mm256_add_ps(sum[t], _mm256_mul_ps(product, scale));
      if (kind == KV_WEIGHTS_Q4_1)
        minima[t] = _mm256_add_ps(minima[t], _mm256_mul_ps(halves(block + 16), _mm256_broadcast_ss(&job->sums[at])));
    }
  }
  for (uint32_t t = 0; t < tokens; t++)
    _mm256_storeu_ps(job->y + ((token + t) * job->groups + group) * KV_LINEAR_ROWS, _mm256_add_ps(sum[t], minima[t]));
}

ALWAYS void all(const kv_linear *job, kv_weights kind, uint64_t first, uint64_t count) {
  for (uint64_t g = first; g < first + count; g++) {
    uint64_t t = 0;
    for (; t + TOKENS <= job->tokens; t += TOKENS) tile(job, kind, g, t, TOKENS);
    for (; t < job->tokens; t++) tile(job, kind, g, t, 1);
  }
}

void kv_linear_avx2(const kv_linear *job, uint64_t first, uint64_t count) {
  if (job->kind == KV_WEIGHTS_Q4_1) all(job, KV_WEIGHTS_Q4_1, first, count);
  else all(job, KV_WEIGHTS_Q8_0, first, count);
}
