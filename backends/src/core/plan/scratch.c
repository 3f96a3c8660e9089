#include "scratch.h"

#include "core/base/bits.h"
#include "core/base/fail.h"

#define MAGIC 0x5243534bu /* "KSCR" */
#define SLOTS_A_THREAD 4u
#define RECENT_CAPACITY 1024u

/* Hands out 64-byte aligned pieces; with base 0 it only counts. */
typedef struct carver {
  uint8_t *base;
  uint64_t used;
} carver;

static void *carve(carver *c, uint64_t bytes) {
  void *piece = c->base ? c->base + c->used : 0;
  c->used += kv_round_up(bytes, 64);
  return piece;
}

static uint32_t widest(const kv_plan *plan) {
  uint32_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens;
  return d > tokens ? d : tokens;
}

uint32_t kv_recent_capacity(const kv_layer_spec *spec) {
  uint64_t tokens = (uint64_t)spec->sinks + spec->window + spec->page_tokens;
  return tokens < RECENT_CAPACITY ? (uint32_t)kv_round_up(tokens, 16) : RECENT_CAPACITY;
}

static void carve_worker(const kv_plan *plan, carver *c, kv_worker *worker) {
  const uint64_t rows = plan->max_rows, wide = widest(plan);
  kv_worker w = {0};
  w.t = carve(c, rows * plan->t_stride * sizeof *w.t);
  w.sums = carve(c, rows * wide * sizeof *w.sums);
  w.w = carve(c, rows * wide * sizeof *w.w);
  w.scale = carve(c, wide * sizeof *w.scale);
  w.x = carve(c, rows * plan->spec.head_dim * sizeof *w.x);
  if (worker) *worker = w;
}

static kv_fold carve_fold(const kv_plan *plan, carver *c) {
  const uint64_t rows = plan->max_rows;
  kv_fold f;
  f.m = carve(c, rows * sizeof *f.m);
  f.l = carve(c, rows * sizeof *f.l);
  f.acc = carve(c, rows * plan->spec.head_dim * sizeof *f.acc);
  f.touched = carve(c, rows);
  return f;
}

static void carve_job(const kv_plan *plan, carver *c, kv_job *job) {
  const uint64_t rows = plan->max_rows, d = plan->spec.head_dim;
  kv_job j = {0};
  j.low = carve(c, rows * sizeof *j.low);
  j.high = carve(c, rows * sizeof *j.high);
  j.ql = carve(c, rows * d * sizeof *j.ql);
  j.qi = carve(c, rows * d);
  j.qi2 = carve(c, rows * d);
  j.qs = carve(c, rows * sizeof *j.qs);
  j.qs2 = carve(c, rows * sizeof *j.qs2);
  j.bias = carve(c, rows * sizeof *j.bias);
  j.m0 = carve(c, rows * sizeof *j.m0);
  j.l0 = carve(c, rows * sizeof *j.l0);
  j.recent = carve(c, rows * d * sizeof *j.recent);
  j.total = carve_fold(plan, c);
  if (job) *job = j;
}

static kv_space carve_space(const kv_plan *plan, uint32_t threads, carver *c) {
  kv_space s = {0};
  s.threads = threads;
  s.slot_count = threads == 1 ? 1 : threads * SLOTS_A_THREAD;
  carve(c, sizeof(kv_scratch));
  s.workers = carve(c, threads * (uint64_t)sizeof *s.workers);
  s.jobs = carve(c, threads * (uint64_t)sizeof *s.jobs);
  s.slots = carve(c, s.slot_count * (uint64_t)sizeof *s.slots);
  for (uint32_t i = 0; i < threads; i++) {
    carve_worker(plan, c, c->base ? &s.workers[i] : 0);
    carve_job(plan, c, c->base ? &s.jobs[i] : 0);
  }
  for (uint32_t i = 0; i < s.slot_count; i++) {
    kv_fold slot = carve_fold(plan, c);
    if (c->base) s.slots[i] = slot;
  }
  return s;
}

static kv_encoder carve_encoder(const kv_plan *plan, carver *c) {
  const uint64_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens;
  kv_scratch *header = carve(c, sizeof *header);
  kv_encoder e;
  e.ran = header ? &header->ran : 0;
  e.y = carve(c, KV_GROUP * d * sizeof *e.y);
  e.e = carve(c, KV_GROUP * d * sizeof *e.e);
  e.scales = carve(c, tokens * sizeof *e.scales);
  e.norms = carve(c, tokens * sizeof *e.norms);
  e.su = carve(c, tokens * sizeof *e.su);
  e.codes = carve(c, tokens * d);
  e.signs = carve(c, KV_GROUP * d);
  return e;
}

KV_EXPORT uint64_t kv_plan_scratch_bytes(const void *plan, uint32_t threads) {
  carver attend = {0}, encode = {0};
  if (kv_plan_check(plan, 0)) return 0;
  carve_space(plan, threads ? threads : 1, &attend);
  carve_encoder(plan, &encode);
  return attend.used > encode.used ? attend.used : encode.used;
}

KV_EXPORT void kv_scratch_init(void *scratch, uint64_t bytes) {
  if (scratch && bytes >= sizeof(kv_scratch)) *(kv_scratch *)scratch = (kv_scratch){MAGIC, 0};
}

KV_EXPORT uint32_t kv_scratch_ran(const void *scratch) { return scratch ? ((const kv_scratch *)scratch)->ran : 0; }

int32_t kv_scratch_check(const kv_plan *plan, uint32_t threads, const void *scratch, uint64_t bytes,
                         kv_error *error) {
  uint64_t needed = kv_plan_scratch_bytes(plan, threads);
  if (!scratch || (uintptr_t)scratch % 64)
    return kv_fail(error, KV_E_ARGUMENT, "scratch must not be NULL and must be aligned to 64 bytes");
  if (bytes < needed)
    return kv_fail(error, KV_E_MEMORY, "scratch has %l bytes and %u threads need %l; ask kv_plan_scratch_bytes",
                   bytes, threads, needed);
  if (((const kv_scratch *)scratch)->magic != MAGIC)
    return kv_fail(error, KV_E_ARGUMENT, "scratch was not prepared; call kv_scratch_init once before first use");
  return KV_OK;
}

kv_space kv_scratch_space(const kv_plan *plan, uint32_t threads, void *scratch) {
  carver c = {scratch, 0};
  return carve_space(plan, threads, &c);
}

kv_encoder kv_scratch_encoder(const kv_plan *plan, void *scratch) {
  carver c = {scratch, 0};
  return carve_encoder(plan, &c);
}

void kv_scratch_collect(kv_space *space, void *scratch) {
  kv_scratch *header = scratch;
  for (uint32_t i = 0; i < space->threads; i++) header->ran |= space->workers[i].ran;
}
