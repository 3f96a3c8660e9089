/* A plan: everything made once from a spec and a variant. Its bytes may be moved; they hold no pointer
 * into themselves. */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "kernels/kernels.h"
#include "core/base/codec.h"
#include "layout.h"
#include "core/base/transform.h"

#define KV_PLAN_MAGIC 0x4e4c504bu /* "KPLN" */
#define KV_CHUNK_PAGES 16u
#define KV_MAX_ROWS 32u

typedef struct kv_plan {
  uint32_t magic;
  uint32_t variant;
  const kv_kernels *kernels;
  kv_layer_spec spec;
  kv_layout layout;
  kv_codec key, value, signs;
  uint32_t group;    /* query heads that share a KV head */
  uint32_t max_rows; /* query rows that share a decoded page */
  uint32_t t_stride; /* logits a row of working memory holds */
  uint32_t tables[3]; /* offset of the transform of a stream, 0 where it is not used */
  float query_scale;  /* log2(e) * softmax scale */
  float store, read, unstore; /* 2^-ceil(E/2), 2^-floor(E/2), 2^ceil(E/2) */
  float sign_gain;    /* K of section 7 */
} kv_plan;

/* NULL, unaligned or uninitialised plans are refused. */
int32_t kv_plan_check(const void *plan, kv_error *error);

/* Shared by kv_supports and the reader of pages: does a spec lie in the range of this library? */
int32_t kv_spec_check(const kv_layer_spec *spec, kv_error *error);

static inline kv_transform kv_plan_transform(const kv_plan *plan, uint32_t stream) {
  return kv_transform_view((const uint8_t *)plan + plan->tables[stream], plan->spec.head_dim, plan->spec.rounds);
}

/* Pages sealed after `length` tokens (section 2). */
static inline uint64_t kv_sealed(const kv_layer_spec *spec, uint64_t length) {
  uint64_t fp16 = (uint64_t)spec->sinks + spec->window;
  return length > fp16 ? (length - fp16) / spec->page_tokens : 0;
}

#endif
