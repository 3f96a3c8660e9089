/* Drafts, adopted prefixes and pools: exact, or refused with nothing changed; memory counted, recycled, given back. */
#define _DEFAULT_SOURCE
#include <pthread.h>

#include "cache_support.h"
#include "kvassay_share.h"

static tokens DATA;
static counter COUNT;
static kv_allocator ALLOCATOR;

static kv_cache *create(const kv_layer_spec *spec) {
  kv_error error = {0};
  kv_cache *cache = NULL;
  kv_cache_config config = configure(spec, 1, &ALLOCATOR);
  OK(kv_cache_create(&config, &cache, &error));
  return cache;
}

static bytes state_at(const kv_layer_spec *spec, uint32_t length) {
  kv_cache *cache = create(spec);
  bytes out;
  if (length > 0) append(cache, 0, &DATA, 0, length);
  out = dump(cache);
  kv_cache_destroy(cache);
  return out;
}

/* A draft of up to the window is always taken back exactly, wherever the pages fall. */
static void drafts(uint32_t window, uint32_t span) {
  kv_layer_spec spec = turbo_spec(window, 4, span);
  kv_error error = {0};
  for (uint32_t length = 0; length < 70; length += 3) {
    for (uint32_t draft = 0; draft <= window; draft += 5) {
      for (uint32_t keep = 0; keep <= draft; keep += 4) {
        kv_cache *cache = create(&spec);
        bytes expected = state_at(&spec, length + keep);
        uint64_t held;
        if (length > 0) append(cache, 0, &DATA, 0, length);
        held = stats_of(cache).allocated;
        OK(kv_cache_mark(cache, KV_ALL_LAYERS, draft, &error));
        CHECK(stats_of(cache).allocated > held && stats_of(cache).staging > 0);
        if (draft > 0) append(cache, 0, &DATA, length, draft);
        OK(kv_cache_rollback(cache, keep, &error));
        CHECK(holds(cache, expected) && kv_cache_marks(cache) == 0 && stats_of(cache).staging == 0);
        CHECK(stats_of(cache).allocated == atomic_load(&COUNT.bytes));
        append(cache, 0, &DATA, length + keep, 40);
        kv_cache_destroy(cache);
        free(expected.data);
      }
    }
  }
  CHECK(atomic_load(&COUNT.blocks) == 0);
}

/* Without a window a draft that seals a page can be taken back whole, or to what the page holds; else by name. */
static void refusals(void) {
  kv_layer_spec spec = turbo_spec(0, 4, 0);
  kv_cache *cache = create(&spec);
  kv_error error = {0};
  bytes before;
  CHECK(kv_cache_rollback(cache, 0, &error) == KV_E_STATE && kv_cache_commit(cache, &error) == KV_E_STATE);
  append(cache, 0, &DATA, 0, 30);
  before = dump(cache);
  OK(kv_cache_mark(cache, 0, 10, &error));
  append(cache, 0, &DATA, 30, 10); /* seals tokens 20 .. 35 */
  CHECK(kv_cache_rollback(cache, 11, &error) == KV_E_STATE);
  CHECK(kv_cache_rollback(cache, 3, &error) == KV_E_TRUNCATE);
  CHECK(strstr(error.message, "nearest allowed lengths: 0, 6") != NULL && error.layer == 0);
  CHECK(kv_cache_marks(cache) == 1 && kv_cache_length(cache, 0) == 40);
  OK(kv_cache_rollback(cache, 0, &error));
  CHECK(holds(cache, before));

  /* Marks nest; truncate and reset forget them. */
  OK(kv_cache_mark(cache, KV_ALL_LAYERS, 5, &error));
  OK(kv_cache_mark(cache, KV_ALL_LAYERS, 5, &error));
  append(cache, 0, &DATA, 30, 5);
  OK(kv_cache_commit(cache, &error));
  OK(kv_cache_rollback(cache, 0, &error));
  CHECK(holds(cache, before));
  OK(kv_cache_mark(cache, KV_ALL_LAYERS, 5, &error));
  OK(kv_cache_truncate(cache, 20, &error));
  CHECK(kv_cache_marks(cache) == 0 && stats_of(cache).staging == 0);
  OK(kv_cache_mark(cache, KV_ALL_LAYERS, 5, &error));
  OK(kv_cache_reset(cache, &error));
  CHECK(kv_cache_marks(cache) == 0);
  OK(kv_cache_mark(cache, KV_ALL_LAYERS, 5, &error)); /* destroyed with one */
  kv_cache_destroy(cache);
  free(before.data);
  CHECK(atomic_load(&COUNT.blocks) == 0);
}

/* Pages, sinks and means of a donor and the tokens after them make what all tokens make; any allocation may fail. */
static void prefixes(uint32_t window) {
  kv_layer_spec spec = turbo_spec(window, 4, 0);
  kv_cache *donor = create(&spec);
  kv_error error = {0};
  append(donor, 0, &DATA, 0, 120);
  for (uint32_t pages = 1; pages <= (120 - 4 - window) / 16; pages++) {
    uint32_t shared = 4 + 16 * pages;
    for (uint32_t more = window; more < window + 60; more += 7) {
      int32_t code = KV_E_MEMORY;
      for (unsigned long long k = 1; code != KV_OK; k++) {
        kv_cache *cache = NULL;
        bytes empty, expected = state_at(&spec, shared + more);
        uint64_t held;
        OK(kv_cache_fork(donor, &cache, &error));
        OK(kv_cache_reset(cache, &error));
        empty = dump(cache);
        held = stats_of(cache).allocated;
        COUNT.fail_at = atomic_load(&COUNT.calls) + k;
        code = kv_cache_adopt(cache, 0, donor, pages, DATA.keys + shared * ROW, DATA.values + shared * ROW, more,
                              &error);
        COUNT.fail_at = 0;
        CHECK(code == KV_OK || (code == KV_E_MEMORY && holds(cache, empty) && stats_of(cache).allocated <= held));
        if (code == KV_OK) CHECK(holds(cache, expected));
        kv_cache_destroy(cache);
        free(empty.data);
        free(expected.data);
      }
    }
  }
  kv_cache_destroy(donor);
  CHECK(atomic_load(&COUNT.blocks) == 0);
}

static void prefixes_refused(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_cache *donor = create(&spec), *stranger = create(&spec), *cache = NULL;
  kv_error error = {0};
  float bad[8 * ROW];
  append(donor, 0, &DATA, 0, 60);
  OK(kv_cache_fork(donor, &cache, &error));
  memcpy(bad, DATA.keys, sizeof bad);
  bad[3 * ROW + 70] = __builtin_nanf("");
  CHECK(kv_cache_adopt(cache, 0, donor, 1, DATA.keys, DATA.values, 8, &error) == KV_E_STATE);
  OK(kv_cache_reset(cache, &error));
  CHECK(kv_cache_adopt(cache, 0, stranger, 1, DATA.keys, DATA.values, 8, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_adopt(cache, 0, cache, 1, DATA.keys, DATA.values, 8, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_adopt(cache, 0, donor, 0, DATA.keys, DATA.values, 8, &error) == KV_E_STATE);
  CHECK(kv_cache_adopt(cache, 0, donor, 4, DATA.keys, DATA.values, 8, &error) == KV_E_STATE);
  CHECK(kv_cache_adopt(cache, 0, donor, 1, DATA.keys, DATA.values, 7, &error) == KV_E_STATE);
  CHECK(kv_cache_adopt(cache, 1, donor, 1, DATA.keys, DATA.values, 8, &error) == KV_E_ARGUMENT);
  CHECK(kv_cache_adopt(cache, 0, donor, 1, bad, DATA.values, 8, &error) == KV_E_VALUE);
  CHECK(error.token == 3 && error.head == 1 && error.channel == 6 && kv_cache_length(cache, 0) == 0);
  OK(kv_cache_adopt(cache, 0, donor, 1, DATA.keys, DATA.values, 8, &error));
  kv_cache_destroy(donor);
  kv_cache_destroy(stranger);
  kv_cache_destroy(cache);
  CHECK(atomic_load(&COUNT.blocks) == 0);
}

static kv_pool_stats pool_stats(kv_cache_pool *pool) {
  kv_pool_stats stats;
  kv_cache_pool_get_stats(pool, &stats);
  CHECK(stats.used + stats.reserved + stats.headers <= stats.peak && stats.peak <= stats.limit);
  CHECK(stats.used + stats.reserved + stats.headers == atomic_load(&COUNT.bytes));
  return stats;
}

/* Sequences come and go: memory is used again, shared pages count once, and all of it goes in the end. */
static void pools(int pool_first) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_cache_config config = configure(&spec, 1, &ALLOCATOR);
  kv_cache_pool *pool = NULL;
  kv_cache *caches[4], *fork = NULL, *restored = NULL;
  kv_error error = {0};
  kv_pool_stats one = {0}, many;
  bytes state = state_at(&spec, 200);
  OK(kv_cache_pool_create(&config, 0, &pool, &error));
  for (int i = 0; i < 4; i++) OK(kv_cache_pool_take(pool, &caches[i], &error));
  for (int round = 0; round < 30; round++) {
    for (int i = 0; i < 4; i++) {
      append(caches[i], 0, &DATA, 0, 200);
      CHECK(holds(caches[i], state));
    }
    many = pool_stats(pool);
    for (int i = 0; i < 4; i++) OK(kv_cache_reset(caches[i], &error));
    if (round == 0) one = many;
    CHECK(many.peak == one.peak && many.used == one.used);
  }
  CHECK(pool_stats(pool).recycled > pool_stats(pool).served / 2);
  append(caches[0], 0, &DATA, 0, 200);
  one = pool_stats(pool);
  OK(kv_cache_fork(caches[0], &fork, &error));
  OK(kv_cache_pool_restore(pool, state.data, state.size, &restored, &error));
  CHECK(holds(restored, state) && holds(fork, state));
  CHECK(stats_of(fork).codes == stats_of(restored).codes && stats_of(fork).codes > 0);
  kv_cache_destroy(restored);
  kv_cache_pool_trim(pool);
  CHECK(pool_stats(pool).used - one.used < stats_of(fork).allocated - stats_of(fork).codes);
  if (pool_first) kv_cache_pool_destroy(pool);
  for (int i = 0; i < 4; i++) kv_cache_destroy(caches[i]);
  CHECK(holds(fork, state));
  kv_cache_destroy(fork);
  if (!pool_first) kv_cache_pool_destroy(pool);
  CHECK(atomic_load(&COUNT.blocks) == 0 && atomic_load(&COUNT.bytes) == 0);
  free(state.data);
}

/* A full pool refuses, changes nothing, and goes on once there is room. */
static void limits(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_cache_config config = configure(&spec, 1, &ALLOCATOR);
  kv_cache_pool *pool = NULL;
  kv_cache *cache = NULL, *other = NULL;
  kv_error error = {0};
  kv_pool_stats stats;
  uint32_t length = 0;
  bytes before;
  CHECK(kv_cache_pool_create(&config, 100, &pool, &error) == KV_E_MEMORY && pool == NULL);
  OK(kv_cache_pool_create(&config, 0, &pool, &error));
  OK(kv_cache_pool_take(pool, &cache, &error));
  OK(kv_cache_pool_take(pool, &other, &error));
  stats = pool_stats(pool);
  kv_cache_destroy(cache);
  kv_cache_destroy(other);
  kv_cache_pool_destroy(pool);
  OK(kv_cache_pool_create(&config, stats.used + stats.reserved + stats.headers + 60000, &pool, &error));
  OK(kv_cache_pool_take(pool, &cache, &error));
  OK(kv_cache_pool_take(pool, &other, &error));
  append(other, 0, &DATA, 0, 100);
  for (;; length += 8) {
    before = dump(cache);
    if (kv_cache_append(cache, 0, DATA.keys, DATA.values, 8, &error) != KV_OK) break;
    free(before.data);
  }
  CHECK(error.code == KV_E_MEMORY && length > 100 && holds(cache, before));
  stats = pool_stats(pool);
  kv_cache_destroy(other);
  append(cache, 0, &DATA, 0, 8);
  CHECK(pool_stats(pool).peak <= stats.limit);
  kv_cache_destroy(cache);
  kv_cache_pool_destroy(pool);
  free(before.data);
  CHECK(atomic_load(&COUNT.blocks) == 0);
}

typedef struct job {
  kv_cache_pool *pool;
  bytes state;
} job;

static void *live(void *argument) {
  job *mine = argument;
  for (int round = 0; round < 40; round++) {
    kv_error error = {0};
    kv_cache *cache = NULL;
    OK(kv_cache_pool_take(mine->pool, &cache, &error));
    for (uint32_t i = 0; i < 200; i += 20) append(cache, 0, &DATA, i, 20);
    CHECK(holds(cache, mine->state));
    kv_cache_destroy(cache);
  }
  return NULL;
}

static void threads(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_cache_config config = configure(&spec, 1, &ALLOCATOR);
  pthread_t running[3];
  kv_error error = {0};
  job work = {.state = state_at(&spec, 200)};
  OK(kv_cache_pool_create(&config, 0, &work.pool, &error));
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&running[i], NULL, live, &work) == 0);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(running[i], NULL) == 0);
  kv_cache_pool_destroy(work.pool);
  CHECK(atomic_load(&COUNT.blocks) == 0);
  free(work.state.data);
}

int main(void) {
  fill_tokens(&DATA, 5);
  ALLOCATOR = counting(&COUNT);
  drafts(20, 0);
  drafts(20, 30);
  drafts(16, 9);
  refusals();
  prefixes(0);
  prefixes(20);
  prefixes_refused();
  pools(0);
  pools(1);
  limits();
  threads();
  return 0;
}
