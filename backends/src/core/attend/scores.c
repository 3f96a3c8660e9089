/* kv_scores: the logits that kv_attend would use, times ln 2, of one query. */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/fail.h"
#include "core/base/fpenv.h"

static float *row_out(const kv_call *call, const kv_job *job, uint32_t r) {
  return call->out + (job->head * (uint64_t)call->plan->group + job->row0 + r) * call->state->length;
}

/* Writes t [count] for tokens from `first` on; those outside [from, to) are not attended. */
static void write_scores(const float *t, uint64_t first, uint32_t count, uint32_t from, uint32_t to, float *out) {
  out += first;
  for (uint32_t j = 0; j < from; j++) out[j] = KV_ABSENT;
  for (uint32_t j = from; j < to; j++) out[j] = t[j] * (float)0x1.62e42fefa39efp-1;
  for (uint32_t j = to; j < count; j++) out[j] = KV_ABSENT;
}

static void recent_scores(const kv_call *call, const kv_job *job, kv_worker *worker) {
  const uint32_t d = call->plan->spec.head_dim;
  kv_piece piece;
  for (uint64_t done = 0; kv_recent_piece(call, job->head, &done, &piece);) {
    call->plan->kernels->dots(job->ql, d, job->rows, d, piece.keys, piece.key_stride, piece.count, worker->t,
                              call->plan->t_stride, &worker->ran);
    for (uint32_t r = 0; r < job->rows; r++) {
      uint32_t from = 0, to = piece.count; /* one query sees all sinks */
      if (!piece.sinks) kv_row_range(job, r, piece.first, piece.count, &from, &to);
      write_scores(worker->t + r * call->plan->t_stride, piece.first, piece.count, from, to, row_out(call, job, r));
    }
  }
}

static void page_scores(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t page,
                        kv_ahead *ahead) {
  const uint32_t tokens = call->plan->spec.page_tokens;
  const uint64_t first = call->plan->spec.sinks + page * tokens;
  uint32_t from = 0, to = 0;
  kv_ahead_page(call, page + 1, ahead);
  kv_ahead_ask(ahead);
  if (page >= call->first_needed) {
    kv_row_range(job, 0, first, tokens, &from, &to); /* one query: the same for all rows */
    kv_page_logits(call, job, worker, page, 0, job->rows);
  }
  for (uint32_t r = 0; r < job->rows; r++) {
    write_scores(worker->t + r * call->plan->t_stride, first, tokens, from, to, row_out(call, job, r));
    kv_ahead_ask(ahead);
  }
}

/* Task 0 of a job is its fp16 part, task i its chunk i - 1. */
typedef struct portion {
  uint64_t first_job, tasks;
} portion;

static void begin_task(kv_call *call, void *context, uint32_t index, uint32_t worker_index) {
  const portion *p = context;
  kv_job_begin(call, &call->space.jobs[index], &call->space.workers[worker_index], p->first_job + index);
}

static void score_task(kv_call *call, void *context, uint32_t index, uint32_t worker_index) {
  const portion *p = context;
  kv_worker *worker = &call->space.workers[worker_index];
  const kv_job *job = &call->space.jobs[index / p->tasks];
  const uint64_t task = index % p->tasks;
  if (task == 0) {
    recent_scores(call, job, worker);
    return;
  }
  uint64_t page = (task - 1) * KV_CHUNK_PAGES, end = page + KV_CHUNK_PAGES;
  kv_ahead ahead;
  kv_ahead_begin(call, job, KV_KEY_STREAMS, job->rows + 1, &ahead); /* logits, rows */
  for (; page < end && page < call->sealed; page++) page_scores(call, job, worker, page, &ahead);
}

static KV_NOINLINE void scores(kv_call *call) {
  const uint64_t jobs = call->row_blocks * call->plan->spec.kv_heads;
  portion p = {0, kv_chunk_end(call) + 1};
  while (p.first_job < jobs) {
    uint64_t left = jobs - p.first_job, most = UINT32_MAX / p.tasks; /* tasks have 32 bits */
    if (most > call->space.threads) most = call->space.threads;
    uint32_t count = (uint32_t)(left < most ? left : most);
    kv_run(call, count, begin_task, &p);
    kv_run(call, (uint32_t)(count * p.tasks), score_task, &p);
    p.first_job += count;
  }
}

KV_EXPORT int32_t kv_scores(const void *plan, const kv_state *state, const float *q, float *out, uint64_t out_floats,
                            void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error) {
  kv_call call;
  int32_t code = kv_call_make(&call, plan, state, q, 1, out, scratch, scratch_bytes, parallel, error);
  if (code) return code;
  uint64_t needed = call.plan->spec.query_heads * state->length;
  if (out_floats < needed)
    return kv_fail(error, KV_E_MEMORY, "out holds %l floats and %u query heads x %l tokens need %l", out_floats,
                   (uint32_t)call.plan->spec.query_heads, state->length, needed);
  code = kv_call_input(&call, error);
  if (code) return code;
  kv_fpenv saved = kv_fpenv_enter();
  scores(&call);
  kv_fpenv_leave(saved);
  kv_scratch_collect(&call.space, scratch);
  return kv_success(error);
}
