/* Plan and working memory of stored vectors (docs/retrieval.md). */
#ifndef KV_RETRIEVAL_PLAN_H
#define KV_RETRIEVAL_PLAN_H

#include "kvassay_retrieval.h"
#include "kernels/kernels.h"

#define KV_RETRIEVAL_MAGIC 0x5654524bu /* "KRTV" */
#define KV_RETRIEVAL_SLAB 512u         /* channels of a slab at most; below KV_MAX_DIM */
#define KV_RETRIEVAL_ROWS 16u          /* vectors that are rotated, and queries that are scanned, together */
#define KV_RETRIEVAL_CHUNK 2048u       /* vectors of a scan at most */

typedef struct kv_retrieval_plan {
  uint32_t magic, variant;
  const kv_kernels *kernels;
  kv_retrieval_spec spec;
  uint32_t slabs, width, channels, block;
  uint32_t shifted, scaled; /* a shift alone is a mean that is taken off */
  kv_codec codec;  /* of one slab */
  float unit;      /* standard deviations a step of the centroids stands for */
  float inverse_block, inverse_channels;
  /* offsets of [channels] each: signs, where a channel comes from, and a calibration */
  uint32_t sign1, sign2, place, shift, gain, step;
} kv_retrieval_plan;

/* Working memory, cut out of the caller's. */
typedef struct kv_retrieval_work {
  float *rows, *other; /* [slabs][KV_RETRIEVAL_ROWS][width] */
  float *line;         /* [KV_RETRIEVAL_ROWS][channels]: rotated rows */
  float *towards;      /* [channels] */
  int32_t *sums, *more; /* [KV_RETRIEVAL_ROWS][KV_RETRIEVAL_CHUNK] */
  int8_t *qi;          /* [slabs][queries][width] */
  float *factor, *bias; /* [queries] */
  uint32_t *held;       /* [queries]: pairs in its heap */
  float *scores;        /* [KV_RETRIEVAL_CHUNK] */
} kv_retrieval_work;

static inline const void *kv_retrieval_table(const kv_retrieval_plan *plan, uint32_t offset) {
  return (const uint8_t *)plan + offset;
}

/* NULL, unaligned or foreign plans, and too little working memory, are refused. */
int32_t kv_retrieval_check(const void *plan, uint32_t queries, const void *scratch, uint64_t bytes, kv_error *error);
kv_retrieval_work kv_retrieval_cut(const kv_retrieval_plan *plan, uint32_t queries, void *scratch);

/* x [n][dim], n <= KV_RETRIEVAL_ROWS, to work->line. */
void kv_retrieval_turn(const kv_retrieval_plan *plan, const float *x, uint32_t n, const kv_retrieval_work *work);

#endif
