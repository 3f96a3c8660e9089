/* One call of kv_attend or kv_scores, split into jobs (a KV head and a block of query rows) and chunks of
 * pages, and the steps of section 8 and 10 that work on them. */
#ifndef KV_CALL_H
#define KV_CALL_H

#include "core/plan/scratch.h"

typedef struct kv_call {
  const kv_plan *plan;
  const kv_state *state;
  const float *q;
  float *out;
  uint32_t n;
  const kv_parallel *parallel; /* NULL: one thread */
  kv_space space;
  uint64_t rows;          /* n * group, of each KV head */
  uint64_t row_blocks;    /* blocks of max_rows rows */
  uint64_t sealed;        /* pages sealed at this length */
  uint64_t first_needed;  /* first page that a query attends; `sealed` if none */
  uint64_t sinks_held;    /* fp16 tokens: sinks, then from token recent_first on */
  uint64_t recent_first, recent_count;
} kv_call;

#define KV_ABSENT (-__builtin_inff())

/* call_check.c: validates everything and fills the call; kv_call_input looks at q itself. */
int32_t kv_call_make(kv_call *call, const void *plan, const kv_state *state, const float *q, uint32_t n, float *out,
                     void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error);
int32_t kv_call_input(const kv_call *call, kv_error *error);

/* job.c: visible ranges and queries (section 7) of job `index`. */
void kv_job_begin(const kv_call *call, kv_job *job, kv_worker *worker, uint64_t index);

/* Sees which tokens of [first, first + count) a row attends, all beyond the sinks: [from, to) counted from first. */
static inline void kv_row_range(const kv_job *job, uint32_t row, uint64_t first, uint64_t count, uint32_t *from,
                                uint32_t *to) {
  uint64_t low = job->low[row] > first ? job->low[row] - first : 0;
  uint64_t high = job->high[row] > first ? job->high[row] - first : 0;
  if (high > count) high = count;
  if (low > high) low = high;
  *from = (uint32_t)low;
  *to = (uint32_t)high;
}

/* logits.c: worker->t of rows [row0, row1) for all tokens of a page (section 8). */
void kv_page_logits(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t page, uint32_t row0,
                    uint32_t row1);

/* ahead.c: asks for a head's part of some streams (a bit each) of the page that is next, a share after each step. */
typedef struct kv_ahead {
  const uint8_t *page;
  uint64_t bytes, at;   /* to ask for after each step; where in the page the next of them are */
  uint32_t next, count; /* of the parts below */
  uint64_t first[KV_STREAMS], end[KV_STREAMS];
} kv_ahead;
void kv_ahead_begin(const kv_call *call, const kv_job *job, uint32_t streams, uint32_t steps, kv_ahead *ahead);
void kv_ahead_page(const kv_call *call, uint64_t page, kv_ahead *ahead); /* nothing of one that is not read */
void kv_ahead_ask(kv_ahead *ahead);

/* values.c: rows that take part in a page, their probabilities at worker->t + i * t_stride (section 10, step 4). */
typedef struct kv_active {
  uint32_t count;
  uint32_t row[KV_MAX_ROWS];
  float al[KV_MAX_ROWS], be[KV_MAX_ROWS];
} kv_active;
void kv_page_values(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t page, const kv_active *active,
                    float *acc);

/* recent.c: the fp16 part: job->m0, l0, recent. */
void kv_recent(const kv_call *call, kv_job *job, kv_worker *worker);

/* A piece of the fp16 part: `count` tokens, at most t_stride, of the sinks or the residual. */
typedef struct kv_piece {
  const uint8_t *keys, *values;
  uint64_t key_stride, value_stride; /* bytes */
  uint64_t first;                    /* position of its first token in the sequence */
  uint32_t count;
  int sinks;
} kv_piece;
/* Pieces in token order: start with *done = 0; 0 when there is none left. */
int kv_recent_piece(const kv_call *call, uint32_t head, uint64_t *done, kv_piece *piece);

/* chunk.c */
void kv_fold_begin(const kv_call *call, const kv_job *job, kv_fold *fold);
void kv_chunk_run(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t chunk, kv_fold *fold);
void kv_fold_add(const kv_call *call, kv_job *job, kv_worker *worker, const kv_fold *chunk);
void kv_job_finish(const kv_call *call, kv_job *job, kv_worker *worker);

static inline uint64_t kv_chunk_first(const kv_call *call) { return call->first_needed / KV_CHUNK_PAGES; }
static inline uint64_t kv_chunk_end(const kv_call *call) {
  return (call->sealed + KV_CHUNK_PAGES - 1) / KV_CHUNK_PAGES;
}

/* parallel.c: runs task(call, context, index, worker) for each index < tasks, on the caller's threads if it has any. */
typedef void kv_task(kv_call *call, void *context, uint32_t index, uint32_t worker);
void kv_run(kv_call *call, uint32_t tasks, kv_task *task, void *context);

static inline const void *kv_call_page(const kv_call *call, uint64_t page) {
  return call->state->pages[page - call->state->first_page];
}

#endif
