/* Pages of a chunk into a running softmax, chunks into a total, the total into the output (section 10). */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/sums.h"

/* ex2 of one number, from the same kernel as all others. */
static float ex2(const kv_call *call, float x, uint32_t *ran) {
  float stripes[16] = {0};
  call->plan->kernels->exponentials(&x, 1, 0.0f, stripes, 0, ran);
  return x;
}

void kv_fold_begin(const kv_call *call, const kv_job *job, kv_fold *fold) {
  kv_copy(fold->m, job->m0, job->rows * sizeof *fold->m);
  kv_fill(fold->l, 0, job->rows * sizeof *fold->l);
  kv_fill(fold->acc, 0, (uint64_t)job->rows * call->plan->spec.head_dim * sizeof *fold->acc);
  kv_fill(fold->touched, 0, job->rows);
}

/* Zeros in [0, from) and [to, count): hardly ever any. */
static void clear_outside(float *p, uint32_t from, uint32_t to, uint32_t count) {
  if (from) kv_fill(p, 0, from * sizeof *p);
  if (to < count) kv_fill(p + to, 0, (count - to) * sizeof *p);
}

/* Steps 1 and 2 for one row. Its probabilities move to place active->count, so that those that take part lie one after
 * the other; the exponents of al and be go to factors. */
static void softmax_row(const kv_call *call, kv_worker *worker, uint32_t r, uint32_t from, uint32_t to, kv_fold *fold,
                        kv_active *active, float (*factors)[2], float *sums) {
  const kv_plan *plan = call->plan;
  const uint32_t i = active->count;
  float *t = worker->t + r * plan->t_stride, *p = worker->t + i * plan->t_stride;
  float mp = plan->kernels->maximum(t + from, to - from, &worker->ran), stripes[16] = {0};
  fold->touched[r] = 1;
  if (fold->m[r] == KV_ABSENT) fold->m[r] = mp;
  if (mp - fold->m[r] < -40.0f) return;
  if (p != t) kv_copy(p + from, t + from, (to - from) * sizeof *p);
  clear_outside(p, from, to, plan->spec.page_tokens);
  plan->kernels->exponentials(p + from, to - from, mp, stripes, from % 16, &worker->ran);
  sums[i] = kv_tree16(stripes);
  const float m = mp > fold->m[r] ? mp : fold->m[r];
  factors[i][0] = fold->m[r] - m;
  factors[i][1] = mp - m;
  fold->m[r] = m;
  active->row[i] = r;
  active->count++;
}

/* Step 3, the exponentials of all rows at once. */
static void rescale(const kv_call *call, kv_worker *worker, kv_fold *fold, kv_active *active, float (*factors)[2],
                    const float *sums) {
  float stripes[16] = {0};
  const uint32_t n = (uint32_t)kv_round_up(2 * active->count, 16); /* whole registers; the rest is ex2(0) */
  call->plan->kernels->exponentials(factors[0], n, 0.0f, stripes, 0, &worker->ran);
  for (uint32_t i = 0; i < active->count; i++) {
    float *l = &fold->l[active->row[i]];
    active->al[i] = factors[i][0];
    active->be[i] = factors[i][1];
    float kept = *l * active->al[i], added = sums[i] * active->be[i];
    *l = kept + added;
  }
}

static void page_run(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t page, kv_ahead *ahead,
                     kv_fold *fold) {
  const uint64_t tokens = call->plan->spec.page_tokens, first = call->plan->spec.sinks + page * tokens;
  uint32_t row0 = job->rows, row1 = 0, from, to;
  for (uint32_t r = 0; r < job->rows; r++) {
    kv_row_range(job, r, first, tokens, &from, &to);
    if (from == to) continue;
    if (r < row0) row0 = r;
    row1 = r + 1;
  }
  if (row0 >= row1) return;
  kv_active active;
  float factors[KV_MAX_ROWS][2] = {{0}}, sums[KV_MAX_ROWS];
  active.count = 0;
  kv_ahead_page(call, page + 1, ahead);
  kv_ahead_ask(ahead);
  kv_page_logits(call, job, worker, page, row0, row1);
  for (uint32_t r = row0; r < row1; r++) {
    kv_row_range(job, r, first, tokens, &from, &to);
    softmax_row(call, worker, r, from, to, fold, &active, factors, sums);
    kv_ahead_ask(ahead);
  }
  kv_ahead_ask(ahead);
  if (!active.count) return;
  rescale(call, worker, fold, &active, factors, sums);
  kv_page_values(call, job, worker, page, &active, fold->acc);
}

void kv_chunk_run(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t chunk, kv_fold *fold) {
  uint64_t page = chunk * KV_CHUNK_PAGES, end = page + KV_CHUNK_PAGES;
  if (page < call->first_needed) page = call->first_needed;
  if (end > call->sealed) end = call->sealed;
  kv_ahead ahead;
  kv_ahead_begin(call, job, KV_ALL_STREAMS, job->rows + 2, &ahead); /* logits, rows, values */
  kv_fold_begin(call, job, fold);
  for (; page < end; page++) page_run(call, job, worker, page, &ahead, fold);
}

void kv_fold_add(const kv_call *call, kv_job *job, kv_worker *worker, const kv_fold *chunk) {
  const uint32_t d = call->plan->spec.head_dim;
  kv_fold *total = &job->total;
  for (uint32_t r = 0; r < job->rows; r++) {
    if (!chunk->touched[r]) continue;
    if (total->m[r] == KV_ABSENT) total->m[r] = chunk->m[r];
    float m = chunk->m[r] > total->m[r] ? chunk->m[r] : total->m[r];
    float al = ex2(call, total->m[r] - m, &worker->ran), be = ex2(call, chunk->m[r] - m, &worker->ran);
    float kept = total->l[r] * al, added = chunk->l[r] * be;
    total->l[r] = kept + added;
    total->m[r] = m;
    call->plan->kernels->blend_rows(total->acc + r * d, chunk->acc + r * d, d, al, be, &worker->ran);
  }
}

/* The frozen mean that the values of this call had subtracted, widened; zeros if there is none. */
static const float *value_mean(const kv_call *call, const kv_job *job, kv_worker *worker) {
  const uint32_t d = call->plan->spec.head_dim;
  const uint16_t *mean = call->sealed ? call->state->value_mean : 0;
  if (call->plan->spec.value_centre == KV_CENTRE_NONE) return 0;
  for (uint32_t c = 0; c < d; c++) worker->scale[c] = mean ? kv_f32(mean[(uint64_t)job->head * d + c]) : 0.0f;
  return worker->scale;
}

static void write_row(const kv_call *call, const kv_job *job, uint32_t r, const float *mean, float a0, float *out) {
  const kv_plan *plan = call->plan;
  const uint32_t d = plan->spec.head_dim;
  const float l = job->total.l[r], l0 = job->l0[r] * a0, sum = l + l0;
  const float *o = job->total.acc + r * d, *recent = job->recent + r * d;
  const float read = kv_family_rotated(plan->value.family) ? plan->read : 1.0f; /* a product with 1 is exact */
  for (uint32_t c = 0; c < d; c++) {
    float x = o[c] * read;
    if (mean) {
      float centre = l * mean[c];
      x = x + centre;
    }
    float part = recent[c] * a0;
    x = x + part;
    x = x / sum;
    out[c] = x + 0.0f;
  }
}

void kv_job_finish(const kv_call *call, kv_job *job, kv_worker *worker) {
  const kv_plan *plan = call->plan;
  const uint32_t d = plan->spec.head_dim;
  if (kv_family_rotated(plan->value.family)) {
    kv_transform values = kv_plan_transform(plan, KV_STREAM_VALUES);
    plan->kernels->inverse(&values, job->total.acc, job->rows, &worker->ran);
  }
  const float *mean = value_mean(call, job, worker);
  for (uint32_t r = 0; r < job->rows; r++) {
    uint64_t query = (job->row0 + r) / plan->group, head = (job->row0 + r) % plan->group;
    float a0 = job->m0[r] == KV_ABSENT ? 1.0f : ex2(call, job->m0[r] - job->total.m[r], &worker->ran);
    write_row(call, job, r, mean, a0,
              call->out + (query * plan->spec.query_heads + job->head * plan->group + head) * d);
  }
}
