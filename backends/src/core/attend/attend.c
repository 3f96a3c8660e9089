/* kv_attend: how its work is divided. The bits are settled by chunk.c alone: chunks are computed apart and
 * folded in order, whoever computes them. */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/fail.h"
#include "core/base/fpenv.h"

/* A whole job by one worker, with its own job memory and chunk slot. */
static void whole_job(kv_call *call, void *context, uint32_t index, uint32_t worker_index) {
  (void)context;
  kv_worker *worker = &call->space.workers[worker_index];
  kv_job *job = &call->space.jobs[worker_index];
  kv_fold *slot = &call->space.slots[worker_index];
  kv_job_begin(call, job, worker, index);
  kv_recent(call, job, worker);
  kv_fold_begin(call, job, &job->total);
  for (uint64_t chunk = kv_chunk_first(call); chunk < kv_chunk_end(call); chunk++) {
    kv_chunk_run(call, job, worker, chunk, slot);
    kv_fold_add(call, job, worker, slot);
  }
  kv_job_finish(call, job, worker);
}

/* A few jobs at once, their chunks in waves as wide as there are slots. */
typedef struct wave {
  uint64_t first_job, chunk;
  uint32_t jobs, chunks;
} wave;

static void begin_task(kv_call *call, void *context, uint32_t index, uint32_t worker_index) {
  const wave *w = context;
  kv_worker *worker = &call->space.workers[worker_index];
  kv_job *job = &call->space.jobs[index];
  kv_job_begin(call, job, worker, w->first_job + index);
  kv_recent(call, job, worker);
  kv_fold_begin(call, job, &job->total);
}

static void chunk_task(kv_call *call, void *context, uint32_t index, uint32_t worker_index) {
  const wave *w = context;
  kv_chunk_run(call, &call->space.jobs[index / w->chunks], &call->space.workers[worker_index],
               w->chunk + index % w->chunks, &call->space.slots[index]);
}

static void finish_task(kv_call *call, void *context, uint32_t index, uint32_t worker_index) {
  (void)context;
  kv_job_finish(call, &call->space.jobs[index], &call->space.workers[worker_index]);
}

static void fold_wave(kv_call *call, const wave *w) {
  for (uint32_t j = 0; j < w->jobs; j++)
    for (uint32_t c = 0; c < w->chunks; c++)
      kv_fold_add(call, &call->space.jobs[j], &call->space.workers[0], &call->space.slots[j * w->chunks + c]);
}

static void run_waves(kv_call *call, uint64_t jobs) {
  const uint64_t end = kv_chunk_end(call);
  wave w = {0};
  for (w.first_job = 0; w.first_job < jobs; w.first_job += w.jobs) {
    uint64_t left = jobs - w.first_job;
    w.jobs = left < call->space.threads ? (uint32_t)left : call->space.threads;
    const uint32_t width = call->space.slot_count / w.jobs;
    kv_run(call, w.jobs, begin_task, &w);
    for (w.chunk = kv_chunk_first(call); w.chunk < end; w.chunk += w.chunks) {
      w.chunks = end - w.chunk < width ? (uint32_t)(end - w.chunk) : width;
      kv_run(call, w.jobs * w.chunks, chunk_task, &w);
      fold_wave(call, &w);
    }
    kv_run(call, w.jobs, finish_task, &w);
  }
}

static KV_NOINLINE void attend(kv_call *call) {
  const uint64_t jobs = call->row_blocks * call->plan->spec.kv_heads, threads = call->space.threads;
  const uint64_t chunks = kv_chunk_end(call) - kv_chunk_first(call);
  const int balanced = jobs % threads == 0 || jobs >= 4 * threads;
  if (balanced || chunks < 2) kv_run(call, (uint32_t)jobs, whole_job, 0);
  else run_waves(call, jobs);
}

KV_EXPORT int32_t kv_attend(const void *plan, const kv_state *state, const float *q, uint32_t n, float *out,
                            void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error) {
  kv_call call;
  int32_t code = kv_call_make(&call, plan, state, q, n, out, scratch, scratch_bytes, parallel, error);
  if (code == KV_OK) code = kv_call_input(&call, error);
  if (code) return code;
  kv_fpenv saved = kv_fpenv_enter();
  attend(&call);
  kv_fpenv_leave(saved);
  kv_scratch_collect(&call.space, scratch);
  return kv_success(error);
}
