/* kvassay_retrieval.h: stored vectors in the codes of KV caches (docs/retrieval.md): encode, and search by inner product.
 *
 * Goes with kvassay.h: the same errors. Pure functions over the caller's memory: whoever owns codes, scales and ids is
 * an index of his own. Between the marks there are only declarations and integer #defines.
 */
#ifndef KVASSAY_RETRIEVAL_H
#define KVASSAY_RETRIEVAL_H

#include "kvassay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BEGIN declarations */

#define KV_RETRIEVAL_VERSION 1
#define KV_RETRIEVAL_MAX_DIM 8192

typedef struct kv_retrieval_spec {
  uint32_t dim;  /* 1 .. KV_RETRIEVAL_MAX_DIM */
  uint32_t bits; /* 2, 3 or 4 */
  uint64_t seed;
} kv_retrieval_spec;

int32_t kv_retrieval_version(void);

/* A plan: tables of a spec, 64-byte aligned memory of the caller; its bytes may be moved. 0 bytes: no such spec.
 * shift and gain, [channels] each, are a calibration; shift alone is a mean, in the units of rotate, that is taken off; or
 * both are NULL. variant NULL: the fastest that runs here. */
uint64_t kv_retrieval_plan_bytes(const kv_retrieval_spec *spec);
int32_t kv_retrieval_plan_init(const kv_retrieval_spec *spec, const float *shift, const float *gain,
                               const char *variant, void *plan, uint64_t plan_bytes, kv_error *error);
/* Channels that are stored, and the bytes of a block of sixteen vectors in one of `slabs` slabs. */
uint32_t kv_retrieval_channels(const void *plan);
uint32_t kv_retrieval_slabs(const void *plan);

/* Working memory of any call below with as many queries; 64-byte aligned. Rotating and encoding take that of one. */
uint64_t kv_retrieval_scratch_bytes(const void *plan, uint32_t queries);

/* x [n][dim] to y [n][channels], unscaled. */
int32_t kv_retrieval_rotate(const void *plan, const float *x, uint64_t n, float *y, void *scratch,
                            uint64_t scratch_bytes, kv_error *error);
/* x [n][dim] to codes [n][channels], one a byte, and scales [n]. A scale behind a gain may be negative, infinite or NaN: that
 * vector must not be stored. */
int32_t kv_retrieval_encode(const void *plan, const float *x, uint64_t n, uint8_t *codes, float *scales, void *scratch,
                            uint64_t scratch_bytes, kv_error *error);
/* codes [n][channels] of n vectors, a multiple of 16, to the blocks of each slab, slab_bytes from one slab to the next. */
int32_t kv_retrieval_pack(const void *plan, const uint8_t *codes, uint64_t n, uint8_t *tiles, uint64_t slab_bytes,
                          void *scratch, uint64_t scratch_bytes, kv_error *error);

/* The k best of `count` vectors for each of q [queries][dim]: scores and rows, [queries][k] each, best first, equal
 * scores by row. tiles and scales have whole blocks of sixteen. allowed NULL, or [count]: vectors whose byte is 0 are passed
 * over. KV_E_ARGUMENT if fewer than k are left. */
int32_t kv_retrieval_search(const void *plan, const uint8_t *tiles, uint64_t slab_bytes, const float *scales,
                            uint64_t count, const uint8_t *allowed, const float *q, uint32_t queries, uint32_t k,
                            float *scores, int64_t *rows, void *scratch, uint64_t scratch_bytes, kv_error *error);

/* END declarations */

#ifdef __cplusplus
}
#endif
#endif
