#include "retrieval.h"

#include "core/base/bits.h"
#include "core/base/fail.h"
#include "core/dispatch/variants.h"

#define STREAM 3u /* of the seed */

KV_EXPORT int32_t kv_retrieval_version(void) { return KV_RETRIEVAL_VERSION; }

static uint32_t take(uint64_t *end, uint64_t bytes) {
  const uint64_t at = *end;
  *end = kv_round_up(at + bytes, 64);
  return (uint32_t)at;
}

/* Everything but the tables; the bytes of all, 0 for a spec that is none. */
static uint64_t outline(const kv_retrieval_spec *spec, kv_retrieval_plan *plan) {
  *plan = (kv_retrieval_plan){0};
  if (!spec || spec->dim < 1 || spec->dim > KV_RETRIEVAL_MAX_DIM || spec->bits < 2 || spec->bits > 4) return 0;
  plan->spec = *spec;
  plan->slabs = (spec->dim + KV_RETRIEVAL_SLAB - 1) / KV_RETRIEVAL_SLAB;
  plan->width = (spec->dim + 16 * plan->slabs - 1) / (16 * plan->slabs) * 16;
  plan->channels = plan->slabs * plan->width;
  plan->block = kv_transform_block(plan->width);
  kv_codec_of(KV_MODE_TURBO + 2 * spec->bits, plan->width, 1, &plan->codec);
  uint64_t end = kv_round_up(sizeof *plan, 64);
  uint32_t *const places[] = {&plan->sign1, &plan->sign2, &plan->place, &plan->shift, &plan->gain, &plan->step};
  for (uint32_t i = 0; i < 6; i++) *places[i] = take(&end, 4ull * plan->channels);
  /* the tables of the generator, which are only wanted while the plan is made */
  return end + kv_transform_bytes(plan->channels);
}

KV_EXPORT uint64_t kv_retrieval_plan_bytes(const kv_retrieval_spec *spec) {
  kv_retrieval_plan plan;
  return outline(spec, &plan);
}

/* The permutation as places in rows that lie slab by slab. */
static void places(const kv_retrieval_plan *plan, const uint16_t *perm, uint32_t *place) {
  for (uint32_t c = 0; c < plan->channels; c++)
    place[c] = perm[c] / plan->width * (KV_RETRIEVAL_ROWS * plan->width) + perm[c] % plan->width;
}

static void make_tables(kv_retrieval_plan *plan, uint64_t bytes) {
  uint8_t *const base = (uint8_t *)plan, *drawn = base + bytes - kv_transform_bytes(plan->channels);
  kv_transform_make(plan->spec.seed, STREAM, plan->channels, 2, drawn);
  const kv_transform t = kv_transform_view(drawn, plan->channels, 2);
  kv_copy(base + plan->sign1, t.sign1, 4ull * plan->channels);
  kv_copy(base + plan->sign2, t.sign2, 4ull * plan->channels);
  places(plan, t.perm, (uint32_t *)(base + plan->place));
}

static void calibrate(kv_retrieval_plan *plan, const float *shift, const float *gain) {
  uint8_t *const base = (uint8_t *)plan;
  float *step = (float *)(base + plan->step);
  kv_copy(base + plan->shift, shift, 4ull * plan->channels);
  if (!gain) return;
  kv_copy(base + plan->gain, gain, 4ull * plan->channels);
  for (uint32_t c = 0; c < plan->channels; c++) step[c] = plan->unit / gain[c];
}

KV_EXPORT int32_t kv_retrieval_plan_init(const kv_retrieval_spec *spec, const float *shift, const float *gain,
                                         const char *variant, void *memory, uint64_t plan_bytes, kv_error *error) {
  kv_retrieval_plan plan;
  const uint64_t bytes = outline(spec, &plan);
  if (!bytes)
    return kv_fail(error, KV_E_SPEC, "retrieval: dim must be 1 .. %u and bits 2, 3 or 4", KV_RETRIEVAL_MAX_DIM);
  if (!memory || (uintptr_t)memory % 64 || plan_bytes < bytes)
    return kv_fail(error, KV_E_ARGUMENT, "retrieval: a plan takes %l bytes, aligned to 64", bytes);
  if (gain && !shift) return kv_fail(error, KV_E_ARGUMENT, "retrieval: a gain without a shift");
  int32_t code = kv_variant_find(variant, &plan.variant, error);
  if (code) return code;
  const kv_codebook *book = plan.codec.span[0].book;
  const uint32_t half = 1u << (spec->bits - 1);
  plan.magic = KV_RETRIEVAL_MAGIC;
  plan.kernels = kv_variants[plan.variant].kernels;
  plan.unit = (float)((double)book->thresholds[0] / ((book->table[half] + book->table[half + 1]) / 2.0));
  plan.inverse_block = 1.0f / (float)plan.block;
  plan.inverse_channels = (float)(1.0 / plan.channels);
  plan.shifted = shift != 0;
  plan.scaled = gain != 0;
  kv_copy(memory, &plan, sizeof plan);
  make_tables(memory, bytes);
  if (shift) calibrate(memory, shift, gain);
  return kv_success(error);
}

static int sound(const kv_retrieval_plan *plan) {
  return plan && (uintptr_t)plan % 64 == 0 && plan->magic == KV_RETRIEVAL_MAGIC;
}

KV_EXPORT uint32_t kv_retrieval_channels(const void *plan) {
  return sound(plan) ? ((const kv_retrieval_plan *)plan)->channels : 0;
}

KV_EXPORT uint32_t kv_retrieval_slabs(const void *plan) {
  return sound(plan) ? ((const kv_retrieval_plan *)plan)->slabs : 0;
}

/* Cuts the working memory, or only measures it with memory NULL. */
static uint64_t cut(const kv_retrieval_plan *plan, uint32_t queries, uint8_t *memory, kv_retrieval_work *work) {
  const uint64_t rows = 4ull * KV_RETRIEVAL_ROWS * plan->channels, sums = 4ull * KV_RETRIEVAL_ROWS * KV_RETRIEVAL_CHUNK;
  const uint64_t sizes[] = {rows, rows, rows, 4ull * plan->channels, sums, plan->slabs > 1 ? sums : 0,
                            (uint64_t)queries * plan->channels, 4ull * queries, 4ull * queries, 4ull * queries,
                            4ull * KV_RETRIEVAL_CHUNK};
  void **const places[] = {(void **)&work->rows, (void **)&work->other, (void **)&work->line,
                           (void **)&work->towards, (void **)&work->sums, (void **)&work->more,
                           (void **)&work->qi, (void **)&work->factor, (void **)&work->bias,
                           (void **)&work->held, (void **)&work->scores};
  uint64_t end = 0;
  for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (memory) *places[i] = memory + end;
    end = kv_round_up(end + sizes[i], 64);
  }
  return end;
}

KV_EXPORT uint64_t kv_retrieval_scratch_bytes(const void *plan, uint32_t queries) {
  kv_retrieval_work work;
  return sound(plan) ? cut(plan, queries, 0, &work) : 0;
}

int32_t kv_retrieval_check(const void *plan, uint32_t queries, const void *scratch, uint64_t bytes, kv_error *error) {
  if (!sound(plan))
    return kv_fail(error, KV_E_ARGUMENT, "retrieval: the plan was not made by kv_retrieval_plan_init, or was moved off 64");
  const uint64_t needed = kv_retrieval_scratch_bytes(plan, queries);
  if (!scratch || (uintptr_t)scratch % 64 || bytes < needed)
    return kv_fail(error, KV_E_MEMORY, "retrieval: scratch must have %l bytes, aligned to 64", needed);
  return KV_OK;
}

kv_retrieval_work kv_retrieval_cut(const kv_retrieval_plan *plan, uint32_t queries, void *scratch) {
  kv_retrieval_work work = {0};
  cut(plan, queries, scratch, &work);
  return work;
}
