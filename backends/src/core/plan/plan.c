#include "plan.h"

#include "core/base/bits.h"
#include "core/base/fail.h"
#include "core/base/fpenv.h"
#include "scratch.h"
#include "core/dispatch/variants.h"

static int uses_stream(const kv_plan *plan, uint32_t stream) {
  switch (stream) {
    case KV_STREAM_KEYS: return kv_family_rotated(plan->key.family);
    case KV_STREAM_VALUES: return kv_family_rotated(plan->value.family);
    default: return plan->key.family == KV_FAMILY_QJL;
  }
}

/* Everything but the tables; returns the bytes of the whole plan. */
static uint64_t outline(const kv_layer_spec *spec, kv_plan *plan) {
  *plan = (kv_plan){0};
  plan->spec = *spec;
  kv_layout_of(spec, &plan->layout);
  kv_codec_of(spec->key_mode, spec->head_dim, 1, &plan->key);
  kv_codec_of(spec->value_mode, spec->head_dim, 0, &plan->value);
  plan->signs = kv_codec_signs(spec->head_dim);
  plan->group = spec->query_heads / spec->kv_heads;
  plan->max_rows = plan->group < 16 ? 16 / plan->group * plan->group : plan->group;
  if (plan->max_rows > KV_MAX_ROWS) plan->max_rows = KV_MAX_ROWS;
  uint64_t end = kv_round_up(sizeof *plan, 64);
  for (uint32_t stream = 0; stream < 3; stream++)
    if (uses_stream(plan, stream)) {
      plan->tables[stream] = (uint32_t)end;
      end += kv_transform_bytes(spec->head_dim);
    }
  return end;
}

/* Section 7: K = sqrt(X) * 2^Y, in binary64. */
static float sign_gain(uint32_t d, uint32_t gain) {
  double x = 0x1.921fb54442d18p+1 / 2 / d;
  if (gain & 1) x *= 2;
  int32_t y = (int32_t)(gain + 1) / 2 - (int32_t)(3 * gain + (gain & 1)) / 2;
  return (float)(__builtin_sqrt(x) * (double)kv_pow2(y));
}

static KV_NOINLINE void constants(kv_plan *plan) {
  uint32_t d = plan->spec.head_dim, gain = kv_transform_gain(d, plan->spec.rounds);
  int32_t floor_half = (int32_t)(gain / 2), ceil_half = (int32_t)(gain + 1) / 2;
  plan->query_scale = (float)(0x1.71547652b82fep+0 * (double)plan->spec.softmax_scale);
  plan->store = kv_pow2(-ceil_half);
  plan->unstore = kv_pow2(ceil_half);
  plan->read = kv_pow2(-floor_half);
  plan->sign_gain = sign_gain(d, gain);
  plan->t_stride = kv_recent_capacity(&plan->spec);
  if (plan->t_stride < plan->spec.page_tokens) plan->t_stride = plan->spec.page_tokens;
}

KV_EXPORT int32_t kv_plan_bytes(const kv_layer_spec *spec, uint64_t *bytes, kv_error *error) {
  kv_plan plan;
  if (!bytes) return kv_fail(error, KV_E_ARGUMENT, "kv_plan_bytes: bytes is NULL; pass where to put the size");
  int32_t code = kv_spec_check(spec, error);
  if (code) return code;
  *bytes = outline(spec, &plan);
  return kv_success(error);
}

KV_EXPORT int32_t kv_plan_init(const kv_layer_spec *spec, const char *variant, void *memory, uint64_t bytes,
                               kv_error *error) {
  kv_plan plan;
  int32_t code = kv_spec_check(spec, error);
  if (code) return code;
  if (!memory || (uintptr_t)memory % 64)
    return kv_fail(error, KV_E_ARGUMENT, "kv_plan_init: plan must not be NULL and must be aligned to 64 bytes");
  uint64_t needed = outline(spec, &plan);
  if (bytes < needed)
    return kv_fail(error, KV_E_MEMORY, "kv_plan_init: plan has %l bytes and needs %l; ask kv_plan_bytes", bytes,
                   needed);
  code = kv_variant_find(variant, &plan.variant, error);
  if (code) return code;
  plan.kernels = kv_variants[plan.variant].kernels;
  kv_fpenv saved = kv_fpenv_enter();
  constants(&plan);
  kv_fpenv_leave(saved);
  plan.magic = KV_PLAN_MAGIC;
  kv_fill(memory, 0, needed);
  kv_copy(memory, &plan, sizeof plan);
  for (uint32_t stream = 0; stream < 3; stream++)
    if (plan.tables[stream])
      kv_transform_make(spec->seed, stream, spec->head_dim, spec->rounds, (uint8_t *)memory + plan.tables[stream]);
  return kv_success(error);
}

int32_t kv_plan_check(const void *plan, kv_error *error) {
  if (!plan || (uintptr_t)plan % 64 || ((const kv_plan *)plan)->magic != KV_PLAN_MAGIC)
    return kv_fail(error, KV_E_ARGUMENT, "plan is NULL, not aligned to 64 bytes, or was not made by kv_plan_init");
  return KV_OK;
}

KV_EXPORT uint32_t kv_plan_variant(const void *plan) {
  return kv_plan_check(plan, 0) ? KV_VARIANTS : ((const kv_plan *)plan)->variant;
}

KV_EXPORT uint64_t kv_plan_page_bytes(const void *plan) {
  return kv_plan_check(plan, 0) ? 0 : ((const kv_plan *)plan)->layout.bytes;
}
