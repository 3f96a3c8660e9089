/* The k best vectors of each query: scans of codes by the kernels of key scans, and a heap. */
#include "retrieval.h"

#include "best.h"

#include "core/base/bits.h"
#include "core/base/fail.h"
#include "core/base/fpenv.h"
#include "core/base/sums.h"

#define CHUNK_BYTES 32768u /* codes that several groups of queries read in turn */
#define RUN 64u            /* scores that are looked at together */
#define GROUP 16u          /* and of those, if one is good enough */

typedef struct scan {
  const kv_retrieval_plan *plan;
  const uint8_t *tiles;
  uint64_t slab_bytes;
  const float *scales;
  uint64_t count;
  const uint8_t *allowed;
  uint32_t queries, k;
  float *scores;
  int64_t *rows;
  const kv_retrieval_work *work;
} scan;

static void integer_query(const scan *s, const float *z, uint32_t query) {
  const kv_retrieval_plan *plan = s->plan;
  const float *step = kv_retrieval_table(plan, plan->step), *shift = kv_retrieval_table(plan, plan->shift);
  const float *from = z;
  int8_t *qi = (int8_t *)s->work->other; /* one row, before it goes to its slabs */
  uint32_t ran = 0;
  s->work->bias[query] = 0;
  if (plan->shifted) s->work->bias[query] = kv_d16(z, shift, plan->channels) * plan->inverse_block;
  if (plan->shifted && !plan->scaled) s->work->bias[query] = s->work->bias[query] * plan->inverse_block;
  if (plan->scaled) {
    for (uint32_t c = 0; c < plan->channels; c++) s->work->towards[c] = z[c] * step[c];
    from = s->work->towards;
  }
  s->work->factor[query] = plan->kernels->query8(from, plan->channels, qi, &ran) * plan->inverse_block;
  for (uint32_t slab = 0; slab < plan->slabs; slab++)
    kv_copy(s->work->qi + ((uint64_t)slab * s->queries + query) * plan->width, qi + slab * plan->width, plan->width);
}

static void prepare(const scan *s, const float *q) {
  for (uint32_t i = 0; i < s->queries; i += KV_RETRIEVAL_ROWS) {
    const uint32_t rows = s->queries - i < KV_RETRIEVAL_ROWS ? s->queries - i : KV_RETRIEVAL_ROWS;
    kv_retrieval_turn(s->plan, q + (uint64_t)i * s->plan->spec.dim, rows, s->work);
    for (uint32_t r = 0; r < rows; r++)
      integer_query(s, s->work->line + (uint64_t)r * s->plan->channels, i + r);
  }
}

/* Integer sums of `rows` queries from the first on, over n vectors from `first` on, n a multiple of 16. */
static void sums(const scan *s, uint64_t first, uint32_t n, uint32_t query, uint32_t rows) {
  const kv_retrieval_plan *plan = s->plan;
  const uint64_t at = first / 16 * kv_code_bytes(&plan->codec, 16);
  uint32_t ran = 0;
  for (uint32_t slab = 0; slab < plan->slabs; slab++) {
    int32_t *out = slab ? s->work->more : s->work->sums;
    const int8_t *qi = s->work->qi + ((uint64_t)slab * s->queries + query) * plan->width;
    plan->kernels->keyscan(&plan->codec, plan->width, s->tiles + slab * s->slab_bytes + at, n, qi, rows, out, n, &ran);
    if (slab)
      for (uint32_t i = 0; i < rows * n; i++) s->work->sums[i] += out[i];
  }
}

/* Sums of one query to scores; n is a multiple of 16. */
static float *to_scores(const scan *s, const int32_t *sum, uint64_t first, uint32_t n, uint32_t query) {
  const kv_kernels *kernels = s->plan->kernels;
  float *t = s->work->scores;
  uint32_t ran = 0;
  if (s->plan->scaled) {
    kernels->affine_logits(sum, n, s->work->factor[query], s->work->bias[query], t, &ran);
    for (uint32_t i = 0; i < n; i++) t[i] = t[i] * s->scales[first + i];
  } else {
    kernels->logits(sum, s->scales + first, n, s->work->factor[query], t, &ran);
    if (s->plan->shifted) kernels->shift(t, n, s->work->bias[query], &ran);
  }
  return t;
}

static int any_above(const float *t, float worst) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < GROUP; i++) found |= t[i] > worst;
  return found != 0;
}

static void consider(kv_best *best, const uint8_t *allowed, const float *t, uint64_t first, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    while (best->held == best->k && i % GROUP == 0 && i + GROUP <= n && !any_above(t + i, best->scores[0])) i += GROUP;
    if (i == n) break;
    if (best->held == best->k && !(t[i] > best->scores[0])) continue; /* the row is later: equal is not enough */
    if (allowed && !allowed[first + i]) continue;
    if (best->held < best->k) kv_best_push(best, t[i], (int64_t)(first + i));
    else kv_best_sink(best, 0, best->k, t[i], (int64_t)(first + i));
  }
}

/* Scores of n vectors to the best of a query; most runs have none that is good enough. */
static void select_best(const scan *s, const float *t, uint64_t first, uint32_t n, uint32_t query) {
  kv_best best = {s->scores + (uint64_t)query * s->k, s->rows + (uint64_t)query * s->k, s->k, s->work->held[query]};
  const kv_kernels *kernels = s->plan->kernels;
  uint32_t ran = 0;
  if (best.held == best.k && !(kernels->maximum(t, n, &ran) > best.scores[0])) return;
  for (uint32_t i = 0; i < n; i += RUN) {
    const uint32_t run = n - i < RUN ? n - i : RUN;
    if (best.held == best.k && !(kernels->maximum(t + i, run, &ran) > best.scores[0])) continue;
    consider(&best, s->allowed, t + i, first + i, run);
  }
  s->work->held[query] = best.held;
}

/* Vectors of a scan: as many as one query likes, or as stay in the nearest cache for many. */
static uint32_t chunk_of(const kv_retrieval_plan *plan, uint32_t queries) {
  if (queries <= 4) return KV_RETRIEVAL_CHUNK;
  const uint64_t fit = CHUNK_BYTES / kv_code_bytes(&plan->codec, 16) * 16;
  return fit < 128 ? 128 : fit > KV_RETRIEVAL_CHUNK ? KV_RETRIEVAL_CHUNK : (uint32_t)fit;
}

static KV_NOINLINE void search(const scan *s, const float *q) {
  const uint32_t chunk = chunk_of(s->plan, s->queries);
  prepare(s, q);
  for (uint32_t i = 0; i < s->queries; i++) s->work->held[i] = 0;
  for (uint64_t first = 0; first < s->count; first += chunk) {
    const uint32_t n = s->count - first < chunk ? (uint32_t)(s->count - first) : chunk, whole = (n + 15) / 16 * 16;
    for (uint32_t query = 0; query < s->queries; query += KV_RETRIEVAL_ROWS) {
      const uint32_t rows = s->queries - query < KV_RETRIEVAL_ROWS ? s->queries - query : KV_RETRIEVAL_ROWS;
      sums(s, first, whole, query, rows);
      for (uint32_t r = 0; r < rows; r++)
        select_best(s, to_scores(s, s->work->sums + (uint64_t)r * whole, first, whole, query + r), first, n, query + r);
    }
  }
}

static int32_t check(const scan *s, const float *q, kv_error *error) {
  if (!s->queries || !s->k) return kv_fail(error, KV_E_ARGUMENT, "retrieval: no queries, or k is 0");
  if (!s->tiles || !s->scales || !q || !s->scores || !s->rows)
    return kv_fail(error, KV_E_ARGUMENT, "retrieval: tiles, scales, q, scores or rows is NULL");
  const uint64_t slab = (s->count + 15) / 16 * kv_code_bytes(&s->plan->codec, 16);
  if (s->plan->slabs > 1 && s->slab_bytes < slab)
    return kv_fail(error, KV_E_ARGUMENT, "retrieval: slabs of %l bytes, %l vectors fill %l", s->slab_bytes, s->count, slab);
  uint64_t left = s->count;
  if (s->allowed)
    for (uint64_t i = 0; i < s->count; i++) left -= s->allowed[i] == 0;
  if (left < s->k)
    return kv_fail(error, KV_E_ARGUMENT, "retrieval: the %u best of %l vectors; ask for at most as many", s->k, left);
  return KV_OK;
}

KV_EXPORT int32_t kv_retrieval_search(const void *plan, const uint8_t *tiles, uint64_t slab_bytes, const float *scales,
                                      uint64_t count, const uint8_t *allowed, const float *q, uint32_t queries,
                                      uint32_t k, float *scores, int64_t *rows, void *scratch, uint64_t scratch_bytes,
                                      kv_error *error) {
  int32_t code = kv_retrieval_check(plan, queries, scratch, scratch_bytes, error);
  if (code) return code;
  const kv_retrieval_work work = kv_retrieval_cut(plan, queries, scratch);
  const scan s = {plan, tiles, slab_bytes, scales, count, allowed, queries, k, scores, rows, &work};
  code = check(&s, q, error);
  if (code) return code;
  const kv_fpenv saved = kv_fpenv_enter();
  search(&s, q);
  for (uint32_t i = 0; i < queries; i++) {
    kv_best best = {scores + (uint64_t)i * k, rows + (uint64_t)i * k, k, work.held[i]};
    kv_best_sort(&best);
  }
  kv_fpenv_leave(saved);
  return kv_success(error);
}
