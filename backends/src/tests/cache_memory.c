/* Memory: every allocation of every operation fails once and nothing changes; nothing leaks; the bill is exact. */
#include "cache_support.h"

static tokens DATA;

typedef struct fixture {
  counter count;
  kv_allocator allocator;
  kv_layer_spec specs[MAX_LAYERS];
  kv_cache_config config;
} fixture;

static void set_up(fixture *f, uint32_t span) {
  memset(f, 0, sizeof *f);
  f->allocator = counting(&f->count);
  f->specs[0] = turbo_spec(8, 4, span);
  f->specs[1] = turbo_spec(0, 0, 0);
  f->specs[1].key_mode = KV_MODE_KIVI + 4;
  f->specs[1].key_centre = KV_CENTRE_NONE;
  f->config = configure(f->specs, 2, &f->allocator);
}

static kv_cache *create(fixture *f) {
  kv_error error = {0};
  kv_cache *cache = NULL;
  OK(kv_cache_create(&f->config, &cache, &error));
  return cache;
}

static void nothing_held(const fixture *f) {
  CHECK(atomic_load(&f->count.blocks) == 0);
  CHECK(atomic_load(&f->count.bytes) == 0);
}

/* Fails call number k, counted from now. */
static void arm(fixture *f, unsigned long long k) { f->count.fail_at = atomic_load(&f->count.calls) + k; }
static void disarm(fixture *f) { f->count.fail_at = 0; }

/* Each k that fails must give KV_E_MEMORY; the first k that is never reached ends the sweep. */
static void create_sweep(void) {
  fixture f;
  unsigned long long k;
  int32_t code = KV_E_MEMORY;
  set_up(&f, 0);
  f.config.threads = 2;
  for (k = 1; code != KV_OK; k++) {
    kv_error error = {0};
    kv_cache *cache = NULL;
    arm(&f, k);
    code = kv_cache_create(&f.config, &cache, &error);
    disarm(&f);
    CHECK(code == KV_OK || (code == KV_E_MEMORY && error.code == code && cache == NULL && error.message[0] != 0));
    kv_cache_destroy(cache);
    nothing_held(&f);
  }
  CHECK(k > 4);
}

/* From `first` tokens append `count` more, failing at every allocation on the way. */
static void append_sweep(uint32_t span, uint32_t first, uint32_t count) {
  fixture f;
  unsigned long long k;
  int32_t code = KV_E_MEMORY;
  kv_cache *cache;
  bytes before, after;
  set_up(&f, span);
  cache = create(&f);
  if (first > 0) append(cache, 0, &DATA, 0, first);
  before = dump(cache);
  for (k = 1; code != KV_OK; k++) {
    kv_error error = {0};
    uint64_t allocated = stats_of(cache).allocated;
    arm(&f, k);
    code = kv_cache_append(cache, 0, DATA.keys + first * ROW, DATA.values + first * ROW, count, &error);
    disarm(&f);
    if (code == KV_OK) break;
    CHECK(code == KV_E_MEMORY && error.layer == 0 && error.message[0] != 0);
    CHECK(holds(cache, before));
    CHECK(stats_of(cache).allocated == allocated);
    CHECK(atomic_load(&f.count.bytes) == allocated);
  }
  CHECK(k > 1);
  after = dump(cache);
  CHECK(!same(before, after));
  kv_cache_destroy(cache);
  nothing_held(&f);

  cache = create(&f);
  append(cache, 0, &DATA, 0, first + count);
  CHECK(holds(cache, after));
  kv_cache_destroy(cache);
  nothing_held(&f);
  free(before.data);
  free(after.data);
}

static void fork_and_restore_sweep(void) {
  fixture f;
  kv_cache *cache;
  bytes state;
  unsigned long long k;
  set_up(&f, 0);
  cache = create(&f);
  append(cache, 0, &DATA, 0, 100);
  append(cache, 1, &DATA, 0, 37);
  state = dump(cache);
  for (int restoring = 0; restoring < 2; restoring++) {
    int32_t code = KV_E_MEMORY;
    for (k = 1; code != KV_OK; k++) {
      kv_error error = {0};
      kv_cache *copy = NULL;
      uint64_t held = atomic_load(&f.count.bytes);
      arm(&f, k);
      code = restoring ? kv_cache_restore(&f.config, state.data, state.size, &copy, &error)
                       : kv_cache_fork(cache, &copy, &error);
      disarm(&f);
      CHECK(code == KV_OK || (code == KV_E_MEMORY && copy == NULL && error.message[0] != 0));
      if (code == KV_OK) CHECK(holds(copy, state));
      kv_cache_destroy(copy);
      CHECK(atomic_load(&f.count.bytes) == held);
      CHECK(holds(cache, state));
    }
    CHECK(k > 5);
  }
  kv_cache_destroy(cache);
  nothing_held(&f);
  free(state.data);
}

/* A lone cache is billed exactly what its allocator handed out, in every phase. */
static void bill(void) {
  fixture f;
  kv_cache *cache;
  kv_error error = {0};
  set_up(&f, 40);
  cache = create(&f);
  CHECK(stats_of(cache).allocated == atomic_load(&f.count.bytes));
  for (uint32_t i = 0; i < 200; i += 5) {
    append(cache, 0, &DATA, i, 5);
    append(cache, 1, &DATA, i, 5);
    CHECK(stats_of(cache).allocated == atomic_load(&f.count.bytes));
    CHECK(stats_of(cache).allocations == atomic_load(&f.count.calls));
  }
  CHECK(stats_of(cache).residual > 0 && stats_of(cache).sinks == 4 * ROW * 2 * 2);
  CHECK(stats_of(cache).pages_encoded == (200 - 12) / 16 + 200 / 16);
  OK(kv_cache_truncate(cache, 0, &error));
  CHECK(stats_of(cache).allocated == atomic_load(&f.count.bytes) && stats_of(cache).codes == 0);
  OK(kv_cache_reset(cache, &error));
  CHECK(stats_of(cache).allocated == atomic_load(&f.count.bytes));
  CHECK(stats_of(cache).residual == 0 && stats_of(cache).sinks == 0 && stats_of(cache).means == 0);
  kv_cache_destroy(cache);
  nothing_held(&f);
}

/* The parts of one page, from docs/page-format.md by hand: 2 heads, 16 tokens, head dim 64. */
static void parts_of_a_page(void) {
  fixture f;
  kv_cache *cache;
  kv_stats stats;
  set_up(&f, 0);
  f.specs[0].window = f.specs[0].sinks = 0;
  f.config.layers = 1;
  cache = create(&f);
  append(cache, 0, &DATA, 0, 16);
  stats = stats_of(cache);
  CHECK(stats.codes == 2 * 16 * 64 * 7 / 16 + 2 * 16 * 64 * 6 / 16);
  CHECK(stats.scales == 2 * (2 * 16 + 2 * 4));
  CHECK(stats.means == 2 * 2 * 64 * 2);
  CHECK(stats.residual == 0 && stats.reserved > 0 && stats.staging == 0 && stats.scratch > 0);
  kv_cache_destroy(cache);
  nothing_held(&f);
}

/* Forks share pages: each is billed in full, the allocator sees them once; any order of destruction frees all. */
static void forks_leak_nothing(void) {
  static const int ORDERS[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (int order = 0; order < 6; order++) {
    fixture f;
    kv_error error = {0};
    kv_cache *caches[3] = {NULL, NULL, NULL};
    bytes state;
    set_up(&f, 0);
    f.config.layers = 1;
    caches[0] = create(&f);
    append(caches[0], 0, &DATA, 0, 60);
    state = dump(caches[0]);
    OK(kv_cache_fork(caches[0], &caches[1], &error));
    CHECK(stats_of(caches[1]).codes == stats_of(caches[0]).codes);
    append(caches[1], 0, &DATA, 60, 40);
    OK(kv_cache_fork(caches[1], &caches[2], &error));
    OK(kv_cache_truncate(caches[2], 4, &error));
    append(caches[2], 0, &DATA, 100, 100);
    CHECK(holds(caches[0], state));
    CHECK(stats_of(caches[0]).allocated + stats_of(caches[1]).allocated + stats_of(caches[2]).allocated >
          atomic_load(&f.count.bytes));
    for (int i = 0; i < 3; i++) kv_cache_destroy(caches[ORDERS[order][i]]);
    nothing_held(&f);
    free(state.data);
  }
}

static void scratch_is_constant(void) {
  fixture f;
  kv_cache *cache;
  uint64_t scratch;
  float out[4 * 64];
  set_up(&f, 0);
  cache = create(&f);
  scratch = stats_of(cache).scratch;
  append(cache, 0, &DATA, 0, 200);
  attend(cache, 0, &DATA, 1, out);
  CHECK(stats_of(cache).scratch == scratch);
  CHECK(stats_of(cache).allocated == atomic_load(&f.count.bytes));
  CHECK(stats_of(cache).pages_scanned == 2 * ((200 - 12) / 16));
  CHECK(stats_of(cache).ran == 1u << stats_of(cache).variant);
  kv_cache_destroy(cache);
}

int main(void) {
  fill_tokens(&DATA, 1);
  create_sweep();
  append_sweep(0, 0, 3);
  append_sweep(0, 0, 200);
  append_sweep(0, 27, 1);
  append_sweep(0, 30, 150);
  append_sweep(20, 120, 60);
  fork_and_restore_sweep();
  bill();
  parts_of_a_page();
  forks_leak_nothing();
  scratch_is_constant();
  return 0;
}
