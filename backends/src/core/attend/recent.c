/* The fp16 part of section 10: sinks, then the residual. Where its logits fit working memory they are
 * computed once, else twice (for the maximum, then for the weights), so that no memory grows with a window. */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/sums.h"

static kv_piece piece_of(const kv_call *call, uint32_t head, int sinks, uint64_t skip, uint64_t count) {
  const kv_state *s = call->state;
  const kv_rows *k = sinks ? &s->sink_keys : &s->residual_keys, *v = sinks ? &s->sink_values : &s->residual_values;
  kv_piece p;
  p.keys = (const uint8_t *)(k->data + skip * k->token_stride + head * k->head_stride);
  p.values = (const uint8_t *)(v->data + skip * v->token_stride + head * v->head_stride);
  p.key_stride = 2 * k->token_stride;
  p.value_stride = 2 * v->token_stride;
  p.first = sinks ? skip : call->recent_first + skip;
  p.count = (uint32_t)(count < call->plan->t_stride ? count : call->plan->t_stride);
  p.sinks = sinks;
  return p;
}

int kv_recent_piece(const kv_call *call, uint32_t head, uint64_t *done, kv_piece *piece) {
  if (*done < call->sinks_held) {
    *piece = piece_of(call, head, 1, *done, call->sinks_held - *done);
  } else {
    uint64_t skip = *done - call->sinks_held;
    if (skip >= call->recent_count) return 0;
    *piece = piece_of(call, head, 0, skip, call->recent_count - skip);
  }
  *done += piece->count;
  return 1;
}

/* Which tokens of a piece a row attends. Sinks are attended outside the span too. */
static void attended(const kv_job *job, const kv_piece *piece, uint32_t r, uint32_t *from, uint32_t *to) {
  kv_row_range(job, r, piece->first, piece->count, from, to);
  if (piece->sinks) *from = 0;
  if (piece->sinks && job->high[r] > piece->first) {
    uint64_t high = job->high[r] - piece->first;
    *to = high < piece->count ? (uint32_t)high : piece->count;
  }
}

static void logits(const kv_call *call, const kv_job *job, kv_worker *worker, const kv_piece *piece, uint32_t column) {
  const uint32_t d = call->plan->spec.head_dim;
  call->plan->kernels->dots(job->ql, d, job->rows, d, piece->keys, piece->key_stride, piece->count,
                            worker->t + column, call->plan->t_stride, &worker->ran);
}

static void maxima(const kv_call *call, kv_job *job, kv_worker *worker, const kv_piece *piece, uint32_t column) {
  uint32_t from, to;
  for (uint32_t r = 0; r < job->rows; r++) {
    attended(job, piece, r, &from, &to);
    if (from == to) continue;
    const float *t = worker->t + r * call->plan->t_stride + column;
    float m = call->plan->kernels->maximum(t + from, to - from, &worker->ran);
    if (m > job->m0[r]) job->m0[r] = m;
  }
}

/* Weights of a piece and their sums; tokens that are not attended weigh +0. */
static void add_piece(const kv_call *call, kv_job *job, kv_worker *worker, const kv_piece *piece, uint32_t column,
                      float (*stripes)[16], uint32_t *phase) {
  const kv_plan *plan = call->plan;
  uint32_t from, to;
  for (uint32_t r = 0; r < job->rows; r++) {
    float *t = worker->t + r * plan->t_stride + column;
    attended(job, piece, r, &from, &to);
    if (from) kv_fill(t, 0, from * sizeof *t);
    if (to < piece->count) kv_fill(t + to, 0, (piece->count - to) * sizeof *t);
    if (from == to) continue;
    plan->kernels->exponentials(t + from, to - from, job->m0[r], stripes[r], phase[r], &worker->ran);
    phase[r] = (phase[r] + to - from) % 16;
  }
  plan->kernels->weighted(worker->t + column, plan->t_stride, job->rows, plan->spec.head_dim, piece->values,
                          piece->value_stride, piece->count, job->recent, &worker->ran);
}

void kv_recent(const kv_call *call, kv_job *job, kv_worker *worker) {
  const uint32_t d = call->plan->spec.head_dim;
  const int fits = call->sinks_held + call->recent_count <= call->plan->t_stride;
  float stripes[KV_MAX_ROWS][16] = {{0}};
  uint32_t phase[KV_MAX_ROWS] = {0};
  kv_piece piece;
  for (uint32_t r = 0; r < job->rows; r++) job->m0[r] = KV_ABSENT;
  kv_fill(job->recent, 0, (uint64_t)job->rows * d * sizeof *job->recent);
  for (uint64_t done = 0, column = 0; kv_recent_piece(call, job->head, &done, &piece); column = done) {
    logits(call, job, worker, &piece, fits ? (uint32_t)column : 0);
    maxima(call, job, worker, &piece, fits ? (uint32_t)column : 0);
  }
  for (uint64_t done = 0, column = 0; kv_recent_piece(call, job->head, &done, &piece); column = done) {
    if (!fits) logits(call, job, worker, &piece, 0);
    add_piece(call, job, worker, &piece, fits ? (uint32_t)column : 0, stripes, phase);
  }
  for (uint32_t r = 0; r < job->rows; r++) job->l0[r] = kv_tree16(stripes[r]);
}
