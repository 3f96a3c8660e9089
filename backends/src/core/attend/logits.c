/* Logits of one page for several query rows of its KV head (numeric contract, section 8). */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/scale.h"

typedef struct page_view {
  const kv_plan *plan;
  const void *page;
  uint32_t head, row0, row1;
} page_view;

static const uint8_t *stream(const page_view *v, uint32_t which) {
  return kv_stream(&v->plan->layout, v->page, which, v->head);
}

/* The factor is kept apart: su * unit would round once more. */
static float read_scales(const page_view *v, uint32_t scales, uint32_t maxima, float *su) {
  const kv_layer_spec *spec = &v->plan->spec;
  float maximum = spec->scale_kind == KV_SCALE_FP16 ? 0 : kv_load_float(stream(v, maxima));
  return kv_scales_read(spec->scale_kind, stream(v, scales), maximum, spec->page_tokens, su);
}

static void turbo(const page_view *v, const kv_job *job, kv_worker *worker) {
  const kv_plan *plan = v->plan;
  const kv_kernels *k = plan->kernels;
  const uint32_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens, rows = v->row1 - v->row0;
  float unit = read_scales(v, KV_KEY_SCALES, KV_KEY_MAXIMA, worker->scale);
  k->keyscan(&plan->key, d, stream(v, KV_KEY_CODES), tokens, job->qi + v->row0 * d, rows, worker->sums, tokens,
             &worker->ran);
  for (uint32_t i = 0; i < rows; i++) {
    uint32_t r = v->row0 + i;
    k->logits(worker->sums + i * tokens, worker->scale, tokens, job->qs[r] * unit, worker->t + r * plan->t_stride,
              &worker->ran);
  }
  if (plan->key.family != KV_FAMILY_QJL) return;
  float norm_unit = read_scales(v, KV_KEY_NORMS, KV_NORM_MAXIMA, worker->scale);
  k->keyscan(&plan->signs, d, stream(v, KV_KEY_SIGNS), tokens, job->qi2 + v->row0 * d, rows, worker->sums, tokens,
             &worker->ran);
  for (uint32_t i = 0; i < rows; i++) {
    uint32_t r = v->row0 + i;
    float factor = job->qs2[r] * norm_unit;
    factor = factor * plan->sign_gain;
    k->add_logits(worker->sums + i * tokens, worker->scale, tokens, factor, worker->t + r * plan->t_stride,
                  &worker->ran);
  }
}

/* KIVI: steps lie along channels, so each token group has a query of its own. */
static void kivi_group(const page_view *v, const kv_job *job, kv_worker *worker, uint32_t first) {
  const kv_plan *plan = v->plan;
  const kv_kernels *k = plan->kernels;
  const uint32_t d = plan->spec.head_dim, rows = v->row1 - v->row0;
  const uint32_t tokens = plan->spec.page_tokens - first < KV_GROUP ? plan->spec.page_tokens - first : KV_GROUP;
  const uint64_t group = first / KV_GROUP * 2ull * d;
  const uint8_t *steps = stream(v, KV_KEY_STEPS) + group;
  float qs[KV_MAX_ROWS], bias[KV_MAX_ROWS];
  for (uint32_t c = 0; c < d; c++) worker->scale[c] = kv_f32(kv_load16(steps + 2 * c));
  for (uint32_t i = 0; i < rows; i++)
    qs[i] = k->query15(job->ql + (v->row0 + i) * d, worker->scale, d, worker->w + i * d, &worker->ran);
  k->dots(job->ql + v->row0 * d, d, rows, d, stream(v, KV_KEY_MINIMA) + group, 0, 1, bias, 1, &worker->ran);
  k->keyscan15(&plan->key, d, stream(v, KV_KEY_CODES) + kv_code_bytes(&plan->key, first), tokens, worker->w, rows,
               worker->sums, tokens, &worker->ran);
  for (uint32_t i = 0; i < rows; i++)
    k->affine_logits(worker->sums + i * tokens, tokens, qs[i], bias[i],
                     worker->t + (v->row0 + i) * plan->t_stride + first, &worker->ran);
}

static void centre(const page_view *v, const kv_job *job, kv_worker *worker) {
  const kv_plan *plan = v->plan;
  const uint32_t d = plan->spec.head_dim, rows = v->row1 - v->row0;
  float page_bias[KV_MAX_ROWS];
  const float *bias = job->bias + v->row0;
  if (plan->spec.key_centre == KV_CENTRE_PAGE) {
    plan->kernels->dots(job->ql + v->row0 * d, d, rows, d, stream(v, KV_KEY_MEAN), 0, 1, page_bias, 1, &worker->ran);
    bias = page_bias;
  }
  for (uint32_t i = 0; i < rows; i++)
    plan->kernels->shift(worker->t + (v->row0 + i) * plan->t_stride, plan->spec.page_tokens, bias[i], &worker->ran);
}

void kv_page_logits(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t page, uint32_t row0,
                    uint32_t row1) {
  const kv_plan *plan = call->plan;
  const uint32_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens;
  page_view v = {plan, kv_call_page(call, page), job->head, row0, row1};
  switch (plan->key.family) {
    case KV_FAMILY_FP16:
      plan->kernels->dots(job->ql + row0 * d, d, row1 - row0, d, stream(&v, KV_KEY_CODES), 2ull * d, tokens,
                          worker->t + row0 * plan->t_stride, plan->t_stride, &worker->ran);
      break;
    case KV_FAMILY_KIVI:
      for (uint32_t first = 0; first < tokens; first += KV_GROUP) kivi_group(&v, job, worker, first);
      break;
    default: turbo(&v, job, worker); break;
  }
  if (plan->spec.key_centre != KV_CENTRE_NONE) centre(&v, job, worker);
}
