/* kv_attend and kv_scores on their own: threads and floating-point modes change nothing, what is refused is
 * refused by name and leaves the output alone, and nothing is read beyond the rows that are held. */
#include "kernels_support.h"

#include <math.h>

#define LENGTH 560u /* 34 pages: two whole chunks and a part */
#define MAX_PAGES 64u

/* A layer in memory of exactly its size. */
typedef struct layer {
  kv_layer_spec spec;
  void *plan;
  void *pages[MAX_PAGES];
  uint16_t *rows[4], *key_mean, *value_mean; /* sink keys and values, residual keys and values */
  kv_state state;
} layer;

static uint16_t *copy_rows(const uint16_t *from, uint64_t count) {
  uint16_t *to = malloc(count * 2 + 2);
  memcpy(to, from, count * 2);
  return realloc(to, count ? count * 2 : 2);
}

static void seal(layer *l, const uint16_t *keys, const uint16_t *values, uint32_t pages) {
  const kv_layer_spec *spec = &l->spec;
  const uint64_t row = (uint64_t)spec->kv_heads * spec->head_dim, bytes = kv_plan_page_bytes(l->plan);
  uint64_t scratch_bytes;
  void *scratch = scratch_of(l->plan, 1, &scratch_bytes);
  kv_error error;
  for (uint32_t i = 0; i < pages; i++) {
    uint64_t first = spec->sinks + (uint64_t)i * spec->page_tokens;
    kv_rows k = {keys + first * row, row, spec->head_dim}, v = {values + first * row, row, spec->head_dim};
    kv_page_id id = {0, 0, 0, (uint32_t)first, 0};
    if (i == 0) CHECK(kv_page_mean(l->plan, &k, l->key_mean, &error) == KV_OK);
    if (i == 0) CHECK(kv_page_mean(l->plan, &v, l->value_mean, &error) == KV_OK);
    l->pages[i] = malloc(bytes);
    CHECK(kv_page_encode(l->plan, &id, &k, &v, l->key_mean, l->value_mean, l->pages[i], bytes, scratch, scratch_bytes,
                         &error) == KV_OK);
  }
  free(scratch);
}

static layer make(kv_layer_spec spec) {
  layer l = {.spec = spec, .plan = plan_of(&spec)};
  const uint64_t row = (uint64_t)spec.kv_heads * spec.head_dim, pages = kv_sealed(&spec, LENGTH);
  const uint64_t residual = spec.sinks + pages * spec.page_tokens;
  uint64_t random = spec.seed;
  uint16_t *keys = draw_rows(&random, LENGTH * row), *values = draw_rows(&random, LENGTH * row);
  CHECK(pages <= MAX_PAGES);
  l.key_mean = malloc(row * 2);
  l.value_mean = malloc(row * 2);
  seal(&l, keys, values, (uint32_t)pages);
  l.rows[0] = copy_rows(keys, spec.sinks * row);
  l.rows[1] = copy_rows(values, spec.sinks * row);
  l.rows[2] = copy_rows(keys + residual * row, (LENGTH - residual) * row);
  l.rows[3] = copy_rows(values + residual * row, (LENGTH - residual) * row);
  kv_rows r[4];
  for (int i = 0; i < 4; i++) r[i] = (kv_rows){l.rows[i], row, spec.head_dim};
  l.state = (kv_state){LENGTH, NULL, 0, (uint32_t)pages, r[0], r[1], r[2], r[3], l.key_mean, l.value_mean};
  free(keys);
  free(values);
  return l;
}

static void release(layer *l) {
  for (int i = 0; i < 4; i++) free(l->rows[i]);
  for (uint32_t i = 0; i < MAX_PAGES; i++) free(l->pages[i]);
  free(l->key_mean);
  free(l->value_mean);
  free(l->plan);
}

/* A pool without threads: tasks in reverse, workers by turns. A result that depends on either shows. */
static void run_backwards(void *context, uint32_t tasks, void (*task)(void *, uint32_t, uint32_t), void *arg) {
  const uint32_t threads = *(uint32_t *)context;
  for (uint32_t i = tasks; i-- > 0;) task(arg, i, (i * 7 + 3) % threads);
}

static int32_t run(const layer *l, int scores, const float *q, uint32_t n, uint32_t threads, float *out,
                   kv_error *error) {
  kv_state state = l->state;
  kv_parallel parallel = {&threads, threads, 0, run_backwards};
  uint64_t bytes;
  void *scratch = scratch_of(l->plan, threads, &bytes);
  const uint64_t held = state.page_count * sizeof(void *);
  const void **pages = malloc(held + !held); /* of these alone, so that a sanitizer sees a retired one looked up */
  if (held) memcpy(pages, l->pages + state.first_page, held);
  state.pages = pages;
  int32_t code = scores ? kv_scores(l->plan, &state, q, out, (uint64_t)l->spec.query_heads * state.length, scratch,
                                    bytes, &parallel, error)
                        : kv_attend(l->plan, &state, q, n, out, scratch, bytes, &parallel, error);
  CHECK(code == KV_OK ? is_forced(kv_scratch_ran(scratch)) : kv_scratch_ran(scratch) == 0);
  free(pages);
  free(scratch);
  return code;
}

static float *queries(const layer *l, uint32_t n) {
  uint64_t state = 5, count = (uint64_t)n * l->spec.query_heads * l->spec.head_dim;
  float *q = malloc(count * sizeof *q);
  for (uint64_t i = 0; i < count; i++) q[i] = 4 * draw_float(&state);
  return q;
}

static void threads_change_nothing(kv_layer_spec spec) {
  layer l = make(spec);
  enum { N = 9 };
  const uint64_t row = (uint64_t)spec.query_heads * spec.head_dim, scores = (uint64_t)spec.query_heads * LENGTH;
  float *q = queries(&l, N), *one = malloc(N * row * 4), *many = malloc(N * row * 4);
  float *s1 = malloc(scores * 4), *s2 = malloc(scores * 4);
  kv_error error;
  CHECK(run(&l, 0, q, N, 1, one, &error) == KV_OK && run(&l, 1, q, 1, 1, s1, &error) == KV_OK);
  for (uint64_t i = 0; i < N * row; i++) CHECK(isfinite(one[i]));
  for (uint32_t threads = 2; threads <= 7; threads += threads < 3 ? 1 : 4) {
    CHECK(run(&l, 0, q, N, threads, many, &error) == KV_OK && memcmp(one, many, N * row * 4) == 0);
    CHECK(run(&l, 0, q + (N - 1) * row, 1, threads, many, &error) == KV_OK);
    CHECK(memcmp(one + (N - 1) * row, many, row * 4) == 0); /* the last query of n is the query alone */
    CHECK(run(&l, 1, q, 1, threads, s2, &error) == KV_OK && memcmp(s1, s2, scores * 4) == 0);
  }
  free(q);
  free(one);
  free(many);
  free(s1);
  free(s2);
  release(&l);
}

#if defined(__x86_64__)
#define FLUSH_AND_ROUND_DOWN (0x1f80u | 0x8040u | 0x2000u)
static void modes_change_nothing(void) {
  kv_layer_spec spec = spec_of(0x16, 0x16);
  layer l = make(spec);
  const uint64_t row = (uint64_t)spec.query_heads * spec.head_dim;
  float *q = queries(&l, 1), *one = malloc(row * 4), *other = malloc(row * 4);
  kv_error error;
  CHECK(run(&l, 0, q, 1, 1, one, &error) == KV_OK);
  const uint32_t before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(FLUSH_AND_ROUND_DOWN);
  int32_t code = run(&l, 0, q, 1, 3, other, &error);
  layer again = make(spec); /* plan, means and pages too */
  const uint32_t after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  CHECK(code == KV_OK && memcmp(one, other, row * 4) == 0);
  CHECK((after & ~0x3fu) == FLUSH_AND_ROUND_DOWN);
  CHECK(memcmp(l.pages[3], again.pages[3], kv_plan_page_bytes(l.plan)) == 0);
  CHECK(memcmp(l.plan, again.plan, sizeof(kv_plan)) == 0);
  free(q);
  free(one);
  free(other);
  release(&l);
  release(&again);
}
#else
static void modes_change_nothing(void) {}
#endif

static void spans_and_sinks(void) {
  kv_layer_spec spec = spec_of(0x18, 0x38);
  spec.span = 100;
  layer l = make(spec);
  float *q = queries(&l, 60), *out = malloc(60ull * spec.query_heads * spec.head_dim * 4);
  float *scores = malloc((uint64_t)spec.query_heads * LENGTH * 4);
  kv_error error;
  l.state.first_page = (LENGTH - 100 - spec.sinks) / 16; /* what one query no longer needs was retired */
  l.state.page_count -= l.state.first_page;
  CHECK(run(&l, 1, q, 1, 1, scores, &error) == KV_OK);
  for (uint32_t h = 0; h < spec.query_heads; h++)
    for (uint32_t j = 0; j < LENGTH; j++)
      CHECK(isfinite(scores[h * LENGTH + j]) == (j < spec.sinks || j >= LENGTH - 100));
  CHECK(run(&l, 0, q, 1, 1, out, &error) == KV_OK);
  out[0] = 77;
  CHECK(run(&l, 0, q, 60, 2, out, &error) == KV_E_SPAN && out[0] == 77 && error.token >= 0);
  free(q);
  free(out);
  free(scores);
  release(&l);
}

static void refusals(void) {
  kv_layer_spec spec = spec_of(0x16, 0x16);
  layer l = make(spec);
  float *q = queries(&l, 1), *out = malloc((uint64_t)spec.query_heads * LENGTH * 4);
  kv_error error;
  const float bad[] = {NAN, INFINITY, -INFINITY, 65505.0f, -65520.0f};
  for (int i = 0; i < 5; i++) {
    float good = q[3 * 80 + 17];
    q[3 * 80 + 17] = bad[i];
    out[0] = 77;
    CHECK(run(&l, 0, q, 1, 1, out, &error) == KV_E_VALUE && error.head == 3 && error.channel == 17 && out[0] == 77);
    CHECK(run(&l, 1, q, 1, 1, out, &error) == KV_E_VALUE && error.head == 3 && error.channel == 17 && out[0] == 77);
    q[3 * 80 + 17] = good;
  }
  CHECK(run(&l, 0, NULL, 1, 1, out, &error) == KV_E_ARGUMENT && run(&l, 0, q, 1, 1, NULL, &error) == KV_E_ARGUMENT);
  CHECK(run(&l, 0, q, 0, 1, out, &error) == KV_E_ARGUMENT);
  CHECK(run(&l, 0, q, LENGTH + 1, 1, out, &error) == KV_E_STATE);
  l.state.page_count--;
  CHECK(run(&l, 0, q, 1, 1, out, &error) == KV_E_ARGUMENT);
  l.state.page_count++;
  l.state.residual_keys.data = NULL;
  CHECK(run(&l, 0, q, 1, 1, out, &error) == KV_E_ARGUMENT && error.layer == -1 && error.head == -1);
  l.state.length = 0;
  CHECK(run(&l, 0, q, 1, 1, out, &error) == KV_E_STATE);
  CHECK(kv_attend(NULL, &l.state, q, 1, out, NULL, 0, NULL, NULL) == KV_E_ARGUMENT);
  uint64_t bytes;
  void *scratch = scratch_of(l.plan, 1, &bytes), *plan = block(64);
  l.state.length = 2; /* sinks alone */
  l.state.page_count = 0;
  CHECK(kv_attend(l.plan, &l.state, q, 1, out, scratch, bytes - 1, NULL, &error) == KV_E_MEMORY);
  CHECK(kv_attend(l.plan, &l.state, q, 1, out, (char *)scratch + 4, bytes, NULL, &error) == KV_E_ARGUMENT);
  CHECK(kv_scores(l.plan, &l.state, q, out, 11, scratch, bytes, NULL, &error) == KV_E_MEMORY);
  CHECK(kv_attend(l.plan, &l.state, q, 1, out, scratch, bytes, NULL, &error) == KV_OK);
  CHECK(kv_plan_init(&spec, "avx9000", plan, 64, &error) != KV_OK);
  CHECK(kv_variant_runs(99, &error) == KV_E_VARIANT && kv_variant_name(99) == NULL);
  free(scratch);
  free(plan);
  free(q);
  free(out);
  release(&l);
}

static void bogus_variant(void) {
  kv_layer_spec spec = spec_of(0x16, 0x16);
  kv_error error;
  uint64_t bytes;
  CHECK(kv_plan_bytes(&spec, &bytes, &error) == KV_OK);
  void *plan = block(bytes);
  CHECK(kv_plan_init(&spec, "avx9000", plan, bytes, &error) == KV_E_VARIANT);
  CHECK(kv_plan_init(&spec, "", plan, bytes, &error) == KV_E_VARIANT);
  CHECK(kv_plan_init(&spec, NULL, plan, bytes, &error) == KV_OK && kv_plan_variant(plan) < kv_get_info()->variant_count);
  free(plan);
}

static void specs(void) {
  static const uint8_t keys[] = {0, 0x14, 0x15, 0x16, 0x17, 0x18, 0x24, 0x25, 0x26, 0x27, 0x28, 0x34, 0x36, 0x38};
  kv_error error;
  for (uint32_t mode = 0; mode < 256; mode++) {
    kv_layer_spec spec = spec_of((uint8_t)mode, 0), value = spec_of(0, (uint8_t)mode);
    int known = memchr(keys, (int)mode, sizeof keys) != NULL;
    CHECK((kv_supports(&spec, &error) == KV_OK) == known);
    CHECK((kv_supports(&value, &error) == KV_OK) == (known && mode >> 4 != 2));
  }
  for (uint32_t d = 0; d < 700; d++) {
    kv_layer_spec spec = spec_of(0x16, 0x16);
    spec.head_dim = (uint16_t)d;
    CHECK((kv_supports(&spec, &error) == KV_OK) == (d >= 16 && d <= 576 && d % 16 == 0));
  }
  kv_layer_spec centred = spec_of(0, 0x16);
  centred.key_centre = KV_CENTRE_PAGE;
  CHECK(kv_supports(&centred, &error) == KV_E_SPEC && kv_supports(NULL, NULL) == KV_E_ARGUMENT);
}

static void test(void) {
  static const uint8_t modes[][2] = {{0x16, 0x17}, {0x25, 0x14}, {0x34, 0x38}, {0, 0}};
  for (int i = 0; i < 4; i++) {
    kv_layer_spec spec = spec_of(modes[i][0], modes[i][1]);
    if (spec.key_mode) spec.key_centre = i == 1 ? KV_CENTRE_FROZEN : KV_CENTRE_PAGE;
    if (spec.value_mode) spec.value_centre = KV_CENTRE_FROZEN;
    if (i == 2) spec.span = 400;
    threads_change_nothing(spec);
  }
  kv_layer_spec many = spec_of(0x18, 0x18);
  many.query_heads = 80; /* a group of 40 does not fit one block of rows */
  threads_change_nothing(many);
  modes_change_nothing();
  spans_and_sinks();
  refusals();
}

int main(void) {
  bogus_variant();
  specs();
  return for_each_variant("kernels_attend", 0, test);
}
