/* Life cycle: after any sequence of operations the state is that of a fresh cache with the surviving tokens. */
#include "cache_support.h"

static tokens DATA, OTHER;

static kv_cache *create(const kv_layer_spec *specs, uint32_t layers) {
  kv_error error = {0};
  kv_cache *cache = NULL;
  kv_cache_config config = configure(specs, layers, NULL);
  OK(kv_cache_create(&config, &cache, &error));
  return cache;
}

/* The state of a cache that got exactly these tokens, in one append. */
static bytes fresh(const kv_layer_spec *spec, uint32_t count) {
  kv_cache *cache = create(spec, 1);
  bytes out;
  if (count > 0) append(cache, 0, &DATA, 0, count);
  out = dump(cache);
  kv_cache_destroy(cache);
  return out;
}

static int is_fresh(const kv_cache *cache, const kv_layer_spec *spec, uint32_t count) {
  bytes expected = fresh(spec, count);
  int equal = holds(cache, expected);
  free(expected.data);
  return equal;
}

static void chunking(void) {
  static const uint32_t STEPS[] = {1, 3, 16, 17, 100};
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
    kv_cache *cache = create(&spec, 1);
    for (uint32_t at = 0; at < 150; at += STEPS[i])
      append(cache, 0, &DATA, at, 150 - at < STEPS[i] ? 150 - at : STEPS[i]);
    CHECK(is_fresh(cache, &spec, 150));
    CHECK(kv_cache_length(cache, 0) == 150 && kv_cache_page_count(cache, 0) == (150 - 12) / 16);
    kv_cache_destroy(cache);
  }
}

/* What docs/lifecycle.md says, written down once more; `retired` is the number of the first page held. */
static int32_t rule(const kv_layer_spec *s, uint32_t length, uint32_t n, uint32_t retired) {
  int64_t sealed_now = ((int64_t)length - s->sinks - s->window) / s->page_tokens;
  int64_t sealed = ((int64_t)n - s->sinks - s->window) / s->page_tokens, first = 0;
  if (length < s->sinks + s->window) sealed_now = 0;
  if (n < s->sinks + s->window) sealed = 0;
  if (n == length) return KV_OK;
  if (n > s->sinks && sealed != sealed_now && n != s->sinks + sealed * s->page_tokens) return KV_E_TRUNCATE;
  if (s->span != 0 && (int64_t)n - s->span - s->sinks > 0) first = ((int64_t)n - s->span - s->sinks) / s->page_tokens;
  return s->span != 0 && first < sealed && first < retired ? KV_E_SPAN : KV_OK;
}

#define LONGEST 96

/* From `length`, of which the last append brought 11, to n: exactly what is documented, and then on from there. */
static int32_t truncate_once(const kv_layer_spec *spec, const bytes *states, uint32_t length, uint32_t n) {
  kv_error error = {0};
  kv_cache *cache = create(spec, 1);
  uint32_t before = length > 11 ? length - 11 : 0, retired = 0;
  int32_t code;
  if (before > 0) append(cache, 0, &DATA, 0, before);
  append(cache, 0, &DATA, before, length - before);
  if (spec->span != 0 && before > spec->sinks + spec->span) retired = (before - spec->sinks - spec->span) / 16;
  code = kv_cache_truncate(cache, n, &error);
  CHECK(code == rule(spec, length, n, retired));
  CHECK(holds(cache, states[code == KV_OK ? n : length]));
  if (code == KV_OK && n + 10 <= LONGEST) {
    append(cache, 0, &DATA, n, 10);
    CHECK(holds(cache, states[n + 10]));
  }
  if (code != KV_OK) CHECK(error.layer == 0 && strstr(error.message, "nearest allowed lengths: ") != NULL);
  kv_cache_destroy(cache);
  return code;
}

static void truncation_table(void) {
  static const uint32_t CASES[][3] = {{0, 0, 0},  {0, 4, 0},  {4, 0, 0},   {8, 2, 0},  {20, 4, 0}, {16, 0, 0},
                                      {0, 0, 24}, {8, 4, 20}, {40, 2, 10}, {0, 3, 1}, {5, 0, 64}};
  static const uint32_t LENGTHS[] = {3, 34, 65, LONGEST};
  int seen[16] = {0};
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    kv_layer_spec spec = turbo_spec(CASES[i][0], CASES[i][1], CASES[i][2]);
    bytes states[LONGEST + 1];
    for (uint32_t n = 0; n <= LONGEST; n++) states[n] = fresh(&spec, n);
    for (size_t k = 0; k < sizeof LENGTHS / sizeof *LENGTHS; k++)
      for (uint32_t n = 0; n <= LENGTHS[k]; n++) seen[truncate_once(&spec, states, LENGTHS[k], n)]++;
    for (uint32_t n = 0; n <= LONGEST; n++) free(states[n].data);
  }
  CHECK(seen[KV_OK] > 0 && seen[KV_E_TRUNCATE] > 0 && seen[KV_E_SPAN] > 0);
}

/* One layer that refuses keeps all layers as they are; the lengths it names work. */
static void truncation_of_all_layers(void) {
  kv_layer_spec specs[2] = {turbo_spec(0, 2, 0), turbo_spec(24, 4, 0)};
  kv_error error = {0};
  kv_cache *cache = create(specs, 2);
  bytes before;
  unsigned long long below = 0, above = 0;
  append(cache, 0, &DATA, 0, 80);
  append(cache, 1, &DATA, 0, 90);
  before = dump(cache);
  CHECK(kv_cache_truncate(cache, 81, &error) == KV_E_STATE);
  CHECK(kv_cache_truncate(cache, 60, &error) == KV_E_TRUNCATE && error.layer == 0);
  CHECK(holds(cache, before));
  CHECK(sscanf(strstr(error.message, "lengths: "), "lengths: %llu, %llu", &below, &above) == 2);
  CHECK(below == 2 && above == 76); /* layer 0: at most 2, 18, 34, 50, or from 66; layer 1: at most 4 or from 76 */
  OK(kv_cache_truncate(cache, 2, &error));
  CHECK(kv_cache_length(cache, 0) == 2 && kv_cache_length(cache, 1) == 2);
  kv_cache_destroy(cache);
  free(before.data);
}

static void span_retires_at_the_next_append(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 20);
  kv_error error = {0};
  float out[64 * 4 * 64];
  const void *page;
  uint64_t size;
  kv_cache *cache = create(&spec, 1);
  append(cache, 0, &DATA, 0, 120); /* 6 pages; tokens from 100 on are attended: page 6 on, so none is live */
  CHECK(kv_cache_page_count(cache, 0) == 0);
  attend(cache, 0, &DATA, 64, out); /* the first of them sees token 37, in page 2, still held */
  append(cache, 0, &DATA, 120, 1);
  CHECK(kv_cache_attend(cache, 0, DATA.values, 64, out, &error) == KV_E_SPAN && error.layer == 0);
  attend(cache, 0, &DATA, 1, out);
  CHECK(kv_cache_page(cache, 0, 0, &page, &size, &error) == KV_E_ARGUMENT);
  CHECK(is_fresh(cache, &spec, 121));
  kv_cache_destroy(cache);
}

static void fork_and_reset(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_error error = {0};
  kv_cache *cache = create(&spec, 1), *copy = NULL;
  bytes empty = dump(cache), state;
  append(cache, 0, &DATA, 0, 90);
  state = dump(cache);
  OK(kv_cache_fork(cache, &copy, &error));
  CHECK(holds(copy, state));
  append(copy, 0, &OTHER, 0, 50);
  CHECK(holds(cache, state) && !holds(copy, state));
  append(cache, 0, &DATA, 90, 10);
  CHECK(is_fresh(cache, &spec, 100));
  kv_cache_destroy(cache);
  OK(kv_cache_reset(copy, &error));
  CHECK(holds(copy, empty));
  append(copy, 0, &DATA, 0, 90); /* the frozen mean is that of the new page 0 */
  CHECK(holds(copy, state));
  kv_cache_destroy(copy);
  free(empty.data);
  free(state.data);
}

static void bad_input_changes_nothing(void) {
  static const uint32_t BAD[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x477fe001, 0xc77ff000};
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_error error = {0};
  float *keys = malloc(20 * ROW * sizeof(float)), *values = malloc(20 * ROW * sizeof(float));
  kv_cache *cache = create(&spec, 1);
  bytes before;
  append(cache, 0, &DATA, 0, 40);
  before = dump(cache);
  memcpy(keys, DATA.keys, 20 * ROW * sizeof(float));
  memcpy(values, DATA.values, 20 * ROW * sizeof(float));
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    memcpy(&values[17 * ROW + 64 + 5], &BAD[i], sizeof(float));
    CHECK(kv_cache_append(cache, 0, keys, values, 20, &error) == KV_E_VALUE);
    CHECK(error.layer == 0 && error.token == 17 && error.head == 1 && error.channel == 5);
  }
  CHECK(kv_cache_append(cache, 1, keys, values, 1, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_append(cache, 0, NULL, values, 1, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_append(cache, 0, keys, values, UINT64_MAX, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_append(cache, 0, keys, values, 0, &error) == KV_OK);
  CHECK(holds(cache, before));
  kv_cache_destroy(cache);
  free(before.data);
  free(keys);
  free(values);
}

static void bad_configurations(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0), odd = spec;
  kv_cache_config config = configure(&spec, 1, NULL);
  kv_error error = {0};
  kv_cache *cache = NULL;
  config.layers = 0;
  CHECK(kv_cache_create(&config, &cache, &error) == KV_E_ARGUMENT && cache == NULL);
  config = configure(&spec, 1, NULL);
  config.threads = 0;
  CHECK(kv_cache_create(&config, &cache, &error) == KV_E_ARGUMENT);
  config.threads = UINT32_MAX;
  CHECK(kv_cache_create(&config, &cache, &error) == KV_E_ARGUMENT);
  config = configure(&spec, 1, NULL);
  config.variant = "no-such-variant";
  CHECK(kv_cache_create(&config, &cache, &error) == KV_E_VARIANT);
  odd.head_dim = 65;
  config = configure(&odd, 1, NULL);
  CHECK(kv_cache_create(&config, &cache, &error) == KV_E_SPEC && error.layer == 0);
  CHECK(kv_cache_create(NULL, &cache, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_append(NULL, 0, DATA.keys, DATA.values, 1, &error) == KV_E_ARGUMENT);
  kv_cache_destroy(NULL);
}

/* An empty cache and too many queries. */
static void attend_needs_tokens(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_error error = {0};
  float out[3 * 4 * 64];
  kv_cache *cache = create(&spec, 1);
  CHECK(kv_cache_attend(cache, 0, DATA.values, 1, out, &error) == KV_E_STATE);
  append(cache, 0, &DATA, 0, 2);
  CHECK(kv_cache_attend(cache, 0, DATA.values, 3, out, &error) == KV_E_STATE);
  CHECK(kv_cache_attend(cache, 0, DATA.values, 2, out, &error) == KV_OK);
  kv_cache_destroy(cache);
}

int main(void) {
  fill_tokens(&DATA, 1);
  fill_tokens(&OTHER, 2);
  chunking();
  truncation_table();
  truncation_of_all_layers();
  span_retires_at_the_next_append();
  fork_and_reset();
  bad_input_changes_nothing();
  bad_configurations();
  attend_needs_tokens();
  return 0;
}
