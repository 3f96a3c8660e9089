/* Weighted sums over the values of one page (numeric contract, section 10, step 4). */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/scale.h"

typedef struct sum_view {
  const kv_plan *plan;
  const uint8_t *codes;
  const void *page;
  uint32_t head;
  const kv_active *active;
  float *acc;
} sum_view;

static const uint8_t *stream(const sum_view *v, uint32_t which) {
  return kv_stream(&v->plan->layout, v->page, which, v->head);
}

static float *acc_of(const sum_view *v, uint32_t i, uint32_t channel) {
  return v->acc + v->active->row[i] * v->plan->spec.head_dim + channel;
}

/* Integer weights of all active rows; W of each goes to `largest`. */
static void weigh(const sum_view *v, kv_worker *worker, float *largest) {
  const uint32_t tokens = v->plan->spec.page_tokens;
  for (uint32_t i = 0; i < v->active->count; i++)
    largest[i] = v->plan->kernels->weigh(worker->t + i * v->plan->t_stride, worker->scale, tokens,
                                         worker->w + i * tokens, &worker->ran);
}

static void turbo(const sum_view *v, kv_worker *worker) {
  const kv_layer_spec *spec = &v->plan->spec;
  const kv_kernels *k = v->plan->kernels;
  const uint8_t *codes = v->codes;
  float f[KV_MAX_ROWS];
  float maximum = spec->scale_kind == KV_SCALE_FP16 ? 0 : kv_load_float(stream(v, KV_VALUE_MAXIMA));
  float unit = kv_scales_read(spec->scale_kind, stream(v, KV_VALUE_SCALES), maximum, spec->page_tokens, worker->scale);
  weigh(v, worker, f);
  for (uint32_t i = 0; i < v->active->count; i++) {
    f[i] = f[i] * (float)(1.0 / 16383);
    f[i] = f[i] * unit;
    f[i] = f[i] * v->active->be[i];
  }
  for (uint32_t s = 0; s < v->plan->value.spans; s++) {
    const kv_span *span = &v->plan->value.span[s];
    k->valuesum(span, codes, spec->page_tokens, worker->w, v->active->count, worker->sums, span->channels,
                &worker->ran);
    codes += (uint64_t)spec->page_tokens * span->channels * span->bits / 8;
    for (uint32_t i = 0; i < v->active->count; i++)
      k->blend(acc_of(v, i, span->first), worker->sums + i * span->channels, span->channels, v->active->al[i], f[i],
               &worker->ran);
  }
}

static void kivi_group(const sum_view *v, kv_worker *worker, uint32_t first) {
  const kv_plan *plan = v->plan;
  const kv_kernels *k = plan->kernels;
  const uint32_t tokens = plan->spec.page_tokens, d = plan->spec.head_dim, rows = v->active->count;
  const uint64_t group = first / KV_GROUP * 2ull * tokens;
  kv_span span = plan->value.span[0];
  const uint8_t *steps = stream(v, KV_VALUE_STEPS) + group;
  float largest[KV_MAX_ROWS], offset[KV_MAX_ROWS];
  span.channels = (uint16_t)(d - first < KV_GROUP ? d - first : KV_GROUP);
  for (uint32_t j = 0; j < tokens; j++) worker->scale[j] = kv_f32(kv_load16(steps + 2 * j));
  weigh(v, worker, largest);
  k->dots(worker->t, plan->t_stride, rows, tokens, stream(v, KV_VALUE_MINIMA) + group, 0, 1, offset, 1, &worker->ran);
  k->valuesum(&span, v->codes + (uint64_t)tokens * first * span.bits / 8, tokens, worker->w, rows, worker->sums,
              span.channels, &worker->ran);
  for (uint32_t i = 0; i < rows; i++) {
    float scale = largest[i] * (float)(1.0 / 16383);
    k->blend_affine(acc_of(v, i, first), worker->sums + i * span.channels, span.channels, v->active->al[i], scale,
                    offset[i], v->active->be[i], &worker->ran);
  }
}

static void fp16(const sum_view *v, kv_worker *worker) {
  const kv_plan *plan = v->plan;
  const uint32_t d = plan->spec.head_dim, rows = v->active->count;
  kv_fill(worker->x, 0, (uint64_t)rows * d * sizeof *worker->x);
  plan->kernels->weighted(worker->t, plan->t_stride, rows, d, v->codes, 2ull * d, plan->spec.page_tokens, worker->x,
                          &worker->ran);
  for (uint32_t i = 0; i < rows; i++)
    plan->kernels->blend_rows(acc_of(v, i, 0), worker->x + i * d, d, v->active->al[i], v->active->be[i], &worker->ran);
}

void kv_page_values(const kv_call *call, const kv_job *job, kv_worker *worker, uint64_t page, const kv_active *active,
                    float *acc) {
  const kv_plan *plan = call->plan;
  sum_view v = {plan, 0, kv_call_page(call, page), job->head, active, acc};
  v.codes = stream(&v, KV_VALUE_CODES);
  switch (plan->value.family) {
    case KV_FAMILY_FP16: fp16(&v, worker); break;
    case KV_FAMILY_KIVI:
      for (uint32_t first = 0; first < plan->spec.head_dim; first += KV_GROUP) kivi_group(&v, worker, first);
      break;
    default: turbo(&v, worker); break;
  }
}
