/* Working memory of one call, carved from the caller's scratch. Nothing here depends on the length of the
 * context: fp16 tokens and pages are streamed through rows of fixed size. */
#ifndef KV_SCRATCH_H
#define KV_SCRATCH_H

#include "plan.h"

/* At the start of the scratch. */
typedef struct kv_scratch {
  uint32_t magic;
  uint32_t ran;
} kv_scratch;

/* What one thread needs while it works on pages. */
typedef struct kv_worker {
  _Alignas(64) uint32_t ran; /* written by every kernel: no cache line is shared between threads */
  float *t;       /* [max_rows][t_stride]: logits, then probabilities */
  int32_t *sums;  /* [max_rows][max(page_tokens, head_dim)] */
  int16_t *w;     /* the same shape: 14-bit weights, 15-bit queries */
  float *scale;   /* [max(page_tokens, head_dim)] */
  float *x;       /* [max_rows][head_dim] */
} kv_worker;

/* A running softmax: M, l and acc of section 10. M is -infinity while absent. */
typedef struct kv_fold {
  float *m, *l, *acc; /* [max_rows], [max_rows], [max_rows][head_dim] */
  uint8_t *touched;   /* [max_rows]: a page had a token that the row attends */
} kv_fold;

/* One KV head and a block of query rows that read it. */
typedef struct kv_job {
  uint32_t head, rows;
  uint64_t row0;        /* row = query * group + query head in the group */
  uint64_t *low, *high; /* tokens visible to a row: [low, high), and sinks below high */
  float *ql;            /* [max_rows][head_dim] */
  int8_t *qi, *qi2;
  float *qs, *qs2;      /* scales of the integer queries, `read` included in qs */
  float *bias;          /* D16(ql, frozen key mean) */
  float *m0, *l0;       /* fp16 part; m0 is -infinity where it is absent */
  float *recent;        /* R [max_rows][head_dim] */
  kv_fold total;
} kv_job;

typedef struct kv_space {
  kv_worker *workers; /* [threads] */
  kv_job *jobs;       /* [threads] */
  kv_fold *slots;     /* [slot_count] */
  uint32_t threads, slot_count;
} kv_space;

/* Buffers of kv_page_encode. */
typedef struct kv_encoder {
  uint32_t *ran;
  float *y, *e;               /* [32][head_dim] */
  float *scales, *norms, *su; /* [page_tokens] */
  uint8_t *codes;             /* [page_tokens][head_dim] */
  uint8_t *signs;             /* [32][head_dim] */
} kv_encoder;

/* Logits a row keeps of the fp16 part; longer parts are computed twice. */
uint32_t kv_recent_capacity(const kv_layer_spec *spec);

int32_t kv_scratch_check(const kv_plan *plan, uint32_t threads, const void *scratch, uint64_t bytes, kv_error *error);
kv_space kv_scratch_space(const kv_plan *plan, uint32_t threads, void *scratch);
kv_encoder kv_scratch_encoder(const kv_plan *plan, void *scratch);
void kv_scratch_collect(kv_space *space, void *scratch); /* adds the workers' ran to the scratch's */

#endif
