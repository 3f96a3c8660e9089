#include "core/base/bits.h"
#include "call.h"

static void visible_range(const kv_call *call, kv_job *job, uint32_t r, uint64_t query) {
  const uint64_t span = call->plan->spec.span, visible = call->state->length - call->n + 1 + query;
  job->low[r] = span && visible > span ? visible - span : 0;
  job->high[r] = visible;
}

/* ql of one row: scaled to log 2 units, tiny values dropped so that no later product is subnormal. */
static void scale_query(const kv_plan *plan, const float *q, float *ql) {
  for (uint32_t c = 0; c < plan->spec.head_dim; c++) {
    float x = q[c] * plan->query_scale;
    ql[c] = kv_abs(x) < 0x1p-64f ? 0.0f : x;
  }
}

static void rotate_queries(const kv_plan *plan, kv_job *job, kv_worker *worker) {
  const kv_kernels *k = plan->kernels;
  const uint32_t d = plan->spec.head_dim;
  float *z = worker->x;
  kv_transform keys = kv_plan_transform(plan, KV_STREAM_KEYS);
  kv_copy(z, job->ql, (uint64_t)job->rows * d * sizeof *z);
  k->forward(&keys, z, job->rows, &worker->ran);
  for (uint32_t r = 0; r < job->rows; r++) job->qs[r] = k->query8(z + r * d, d, job->qi + r * d, &worker->ran) * plan->read;
  if (plan->key.family != KV_FAMILY_QJL) return;
  kv_transform signs = kv_plan_transform(plan, KV_STREAM_SIGNS);
  k->forward(&signs, z, job->rows, &worker->ran);
  for (uint32_t r = 0; r < job->rows; r++) job->qs2[r] = k->query8(z + r * d, d, job->qi2 + r * d, &worker->ran);
}

void kv_job_begin(const kv_call *call, kv_job *job, kv_worker *worker, uint64_t index) {
  const kv_plan *plan = call->plan;
  const kv_layer_spec *spec = &plan->spec;
  const uint32_t d = spec->head_dim;
  job->head = (uint32_t)(index / call->row_blocks);
  job->row0 = index % call->row_blocks * plan->max_rows;
  job->rows = call->rows - job->row0 < plan->max_rows ? (uint32_t)(call->rows - job->row0) : plan->max_rows;
  for (uint32_t r = 0; r < job->rows; r++) {
    uint64_t query = (job->row0 + r) / plan->group, head = (job->row0 + r) % plan->group;
    visible_range(call, job, r, query);
    scale_query(plan, call->q + (query * spec->query_heads + job->head * plan->group + head) * d, job->ql + r * d);
  }
  if (call->sealed == 0) return;
  if (kv_family_rotated(plan->key.family)) rotate_queries(plan, job, worker);
  if (spec->key_centre == KV_CENTRE_FROZEN) {
    const uint16_t *mean = call->state->key_mean + (uint64_t)job->head * d;
    plan->kernels->dots(job->ql, d, job->rows, d, (const uint8_t *)mean, 0, 1, job->bias, 1, &worker->ran);
  }
}
