/* Thresholds and centroids of a codebook, in registers. */
#ifndef KV_ENCODE_AVX2_BOOK_H
#define KV_ENCODE_AVX2_BOOK_H

#include "kernels/avx2.h"

/* The book of a span. m counts the thresholds that a number reaches. Of four bits, sizes are sorted into bins 0.3 sigma
 * wide, the last without end, none of which has two thresholds: `base` counts those before a bin, and one comparison
 * with the next does. */
typedef struct book {
  __m256 th[3]; /* 2 and 3 bits */
  __m256 next;  /* 4 bits, of a bin */
  __m256i base;
  __m256 centroids; /* of m, positive */
} book;

#define BIN 0.3f
#define INLINE static inline __attribute__((always_inline))

static inline book book_of(const kv_span *span) {
  const uint32_t half = 1u << (span->bits - 1);
  const float *th = span->book->thresholds;
  float centroids[8] = {0}, next[8];
  int32_t base[8];
  book b;
  for (uint32_t i = 0; i < half; i++) centroids[i] = (float)span->book->table[half + i];
  for (uint32_t i = 0; i < 3; i++) b.th[i] = _mm256_set1_ps(th[i]);
  for (int32_t bin = 0, m = 0; bin < 8; bin++) {
    while (m < 6 && th[m] < BIN * (float)bin) m++;
    base[bin] = m;
    next[bin] = th[m];
  }
  b.centroids = _mm256_loadu_ps(centroids);
  b.next = _mm256_loadu_ps(next);
  b.base = _mm256_loadu_si256((const __m256i *)base);
  return b;
}

#endif
