/* Threads: they change no bit, forks live on different threads, a child process gets its own, none is made where one is
 * asked for, and nobody's floating-point control changes. */
#define _DEFAULT_SOURCE
#include <dirent.h>
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

/* Threads of this process; 0 where the system does not say. */
static uint32_t thread_count(void) {
  uint32_t count = 0;
  DIR *tasks = opendir("/proc/self/task");
  if (tasks == NULL) return 0;
  for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* A thread that was joined may be listed a moment longer. */
static uint32_t settled_count(uint32_t expected) {
  uint32_t count = thread_count();
  for (int i = 0; i < 2000 && count > expected; i++, count = thread_count()) usleep(1000);
  return count;
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
    const uint32_t alone = thread_count(); /* an emulator has a thread of its own */
    for (int round = 0; round < 20; round++) attend(cache, 0, &DATA, QUERIES, found);
    if (alone != 0 && thread_count() != alone + 2) _exit(2);
    kv_cache_destroy(cache);
    _exit(memcmp(expected, found, sizeof found) == 0 ? 0 : 1);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  attend(cache, 0, &DATA, QUERIES, found);
  CHECK(memcmp(expected, found, sizeof found) == 0);
  kv_cache_destroy(cache);
}

/* One thread asked for: none made, ever. More: made by the first call that divides its work, ended with the cache. */
static void made_when_needed(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  float out[OUT];
  const uint32_t before = thread_count();
  if (before == 0) puts("cache_threads: threads not counted: no /proc/self/task here");
  for (uint32_t threads = 1; before != 0 && threads <= 4; threads += 3) {
    kv_cache *cache = create(&spec, threads);
    fill_cache(cache);
    CHECK(thread_count() == before);
    for (int round = 0; round < 3; round++) {
      attend(cache, 0, &DATA, QUERIES, out);
      CHECK(thread_count() == before + threads - 1);
    }
    kv_cache_destroy(cache);
    CHECK(settled_count(before) == before);
  }
}

/* Many more than there are CPUs. */
static void beyond_cores(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  const uint32_t counts[] = {17, 64, 256};
  float expected[OUT], found[OUT];
  kv_cache *cache = create(&spec, 1);
  fill_cache(cache);
  attend(cache, 0, &DATA, QUERIES, expected);
  kv_cache_destroy(cache);
  for (uint32_t i = 0; i < 3; i++) {
    cache = create(&spec, counts[i]);
    fill_cache(cache);
    for (int round = 0; round < 20; round++) {
      memset(found, 0xff, sizeof found);
      attend(cache, 0, &DATA, QUERIES, found);
      CHECK(memcmp(expected, found, sizeof found) == 0);
    }
    kv_cache_destroy(cache);
  }
}

static void refused(void) {
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  kv_cache_config config = configure(&spec, 1, &ALLOCATOR);
  for (uint32_t i = 0; i < 3; i++) {
    kv_error error = {0};
    kv_cache *cache = NULL;
    config.threads = (const uint32_t[]){0, 257, UINT32_MAX}[i];
    CHECK(kv_cache_create(&config, &cache, &error) == KV_E_ARGUMENT && cache == NULL);
    CHECK(strstr(error.message, "1 .. 256") != NULL);
  }
}

#if defined(__x86_64__)
static uint32_t control(void) { return __builtin_ia32_stmxcsr(); }
static void set_control(uint32_t to) { __builtin_ia32_ldmxcsr(to); }
#define HOSTILE 0xe040u /* flush to zero, denormals are zero, round towards zero, every exception traps */
#elif defined(__aarch64__)
static uint64_t control(void) {
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr)::"memory");
  return fpcr;
}
static void set_control(uint64_t to) { __asm__ volatile("msr fpcr, %0" ::"r"(to) : "memory"); }
#define HOSTILE 0x1c00000u /* flush to zero, round towards zero */
#endif

/* The host's control register is what it was after every call, and changes no bit of append, attend or scores, on any
 * thread: the pool's are made while it is hostile. */
static void control_register(void) {
#ifdef HOSTILE
  kv_layer_spec spec = turbo_spec(8, 4, 0);
  float expected[OUT], found[OUT];
  kv_cache *plain = create(&spec, 1);
  bytes state;
  fill_cache(plain);
  attend(plain, 0, &DATA, QUERIES, expected);
  state = dump(plain);
  kv_cache_destroy(plain);
  const __typeof__(control()) before = control();
  for (uint32_t threads = 1; threads <= 3; threads += 2) {
    set_control(HOSTILE);
    kv_cache *cache = create(&spec, threads);
    fill_cache(cache);
    CHECK((control() & ~0x3fu) == (HOSTILE)); /* less the flags that exceptions leave */
    attend(cache, 0, &DATA, QUERIES, found);
    CHECK((control() & ~0x3fu) == (HOSTILE));
    set_control(before);
    CHECK(memcmp(expected, found, sizeof found) == 0);
    CHECK(holds(cache, state));
    kv_cache_destroy(cache);
  }
  free(state.data);
#else
  puts("cache_threads: control register not tested: not known on this machine");
#endif
}

int main(void) {
  fill_tokens(&DATA, 4);
  ALLOCATOR = counting(&COUNT);
  made_when_needed();
  same_bits();
  beyond_cores();
  refused();
  control_register();
  forks_on_threads();
  child_process();
  CHECK(atomic_load(&COUNT.blocks) == 0);
  return 0;
}
