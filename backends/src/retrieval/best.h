/* The k best of a stream of scores that come in row order: a heap whose top is the worst that is kept. */
#ifndef KV_RETRIEVAL_BEST_H
#define KV_RETRIEVAL_BEST_H

#include <stdint.h>

typedef struct kv_best {
  float *scores;
  int64_t *rows;
  uint32_t k, held;
} kv_best;

/* A lower score, or an equal one of a later row. */
static inline int kv_worse(float a, int64_t row_a, float b, int64_t row_b) {
  return a < b || (a == b && row_a > row_b);
}

static inline void kv_best_put(kv_best *best, uint32_t i, float score, int64_t row) {
  best->scores[i] = score;
  best->rows[i] = row;
}

/* Puts a pair where place i of a heap of n is free, moving the worst of its children up. */
static inline void kv_best_sink(kv_best *best, uint32_t i, uint32_t n, float score, int64_t row) {
  for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && kv_worse(best->scores[child + 1], best->rows[child + 1], best->scores[child], best->rows[child]))
      child++;
    if (!kv_worse(best->scores[child], best->rows[child], score, row)) break;
    kv_best_put(best, i, best->scores[child], best->rows[child]);
  }
  kv_best_put(best, i, score, row);
}

/* One more pair while fewer than k are held. */
static inline void kv_best_push(kv_best *best, float score, int64_t row) {
  uint32_t i = best->held++;
  for (uint32_t parent; i && (parent = (i - 1) / 2, kv_worse(score, row, best->scores[parent], best->rows[parent]));
       i = parent)
    kv_best_put(best, i, best->scores[parent], best->rows[parent]);
  kv_best_put(best, i, score, row);
}

/* Best first. */
static inline void kv_best_sort(kv_best *best) {
  for (uint32_t n = best->held; n > 1;) {
    const float score = best->scores[--n];
    const int64_t row = best->rows[n];
    kv_best_put(best, n, best->scores[0], best->rows[0]);
    kv_best_sink(best, 0, n, score, row);
  }
}

#endif
