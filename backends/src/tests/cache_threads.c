/* Threads: they change no bit, forks live on different threads, and a child process gets its own. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_support.h"

#define QUERIES 3
#define OUT (QUERIES * 4 * 64)

static tokens DATA;
static counter COUNT;
static kv_allocator ALLOCATOR;

static kv_cache *create(const kv_layer_spec *spec, uint32_t threads) {
  kv_error error = {0};
  kv_cache *cache = NULL;
  kv_cache_config config = configure(spec, 1, &ALLOCATOR);
  config.threads = threads;
  OK(kv_cache_create(&config, &cache, &error));
  return cache;
}

/* One page a chunk of 16 needs many pages: repeat the tokens. */
static void fill_cache(kv_cache *cache) {
  for (int round = 0; round < 5; round++) append(cache, 0, &DATA, 0, 250);
}

static void same_bits(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  float expected[OUT], found[OUT];
  kv_cache *cache = create(&spec, 1);
  bytes state;
  fill_cache(cache);
  state = dump(cache);
  attend(cache, 0, &DATA, QUERIES, expected);
  kv_cache_destroy(cache);
  for (uint32_t threads = 2; threads <= 5; threads++) {
    cache = create(&spec, threads);
    fill_cache(cache);
    for (int round = 0; round < 50; round++) {
      memset(found, 0xff, sizeof found);
      attend(cache, 0, &DATA, QUERIES, found);
      CHECK(memcmp(expected, found, sizeof found) == 0);
    }
    CHECK(holds(cache, state));
    kv_cache_destroy(cache);
  }
  free(state.data);
}

typedef struct job {
  kv_cache *cache;
  uint32_t first;
  bytes state;
} job;

static void *grow_and_release(void *argument) {
  job *mine = argument;
  float out[OUT];
  for (int round = 0; round < 20; round++) {
    kv_error error = {0};
    kv_cache *copy = NULL;
    OK(kv_cache_fork(mine->cache, &copy, &error));
    append(copy, 0, &DATA, mine->first, 50);
    attend(copy, 0, &DATA, QUERIES, out);
    kv_cache_destroy(copy);
  }
  append(mine->cache, 0, &DATA, mine->first, 50);
  mine->state = dump(mine->cache);
  kv_cache_destroy(mine->cache);
  return NULL;
}

/* Forks that share pages, each used and released on a thread of its own. */
static void forks_on_threads(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_error error = {0};
  pthread_t thread[4];
  job jobs[4];
  kv_cache *parent = create(&spec, 2);
  append(parent, 0, &DATA, 0, 200);
  for (uint32_t i = 0; i < 4; i++) {
    jobs[i] = (job){.first = 10 * i};
    OK(kv_cache_fork(parent, &jobs[i].cache, &error));
  }
  kv_cache_destroy(parent);
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, grow_and_release, &jobs[i]) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  for (int i = 0; i < 4; i++) {
    kv_cache *alone = create(&spec, 1);
    append(alone, 0, &DATA, 0, 200);
    append(alone, 0, &DATA, jobs[i].first, 50);
    CHECK(holds(alone, jobs[i].state));
    kv_cache_destroy(alone);
    free(jobs[i].state.data);
  }
}

/* After fork() the child has no worker threads; it must make its own and give the same bits. */
static void child_process(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  float expected[OUT], found[OUT];
  kv_cache *cache = create(&spec, 3);
  int status = -1;
  pid_t child;
  fill_cache(cache);
  attend(cache, 0, &DATA, QUERIES, expected);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    attend(cache, 0, &DATA, QUERIES, found);
    kv_cache_destroy(cache);
    _exit(memcmp(expected, found, sizeof found) == 0 ? 0 : 1);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  attend(cache, 0, &DATA, QUERIES, found);
  CHECK(memcmp(expected, found, sizeof found) == 0);
  kv_cache_destroy(cache);
}

int main(void) {
  fill_tokens(&DATA, 4);
  ALLOCATOR = counting(&COUNT);
  same_bits();
  forks_on_threads();
  child_process();
  CHECK(atomic_load(&COUNT.blocks) == 0);
  return 0;
}
