/* Threads of one cache. They are made by its first parallel call; between calls they wait on a condition, after a short
 * spin, since the rounds of one call follow each other within microseconds.
 *
 * A round is open while the caller works on it. A member that wakes too late finds it closed: the caller waits for
 * those that joined, never for one that the system has not scheduled.
 *
 * After fork() a child has the memory but not the threads, and the locks are in an unknown state; the pool notices
 * by the process id and starts afresh. Should the system refuse a thread, those that exist do the work.
 */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE /* _SC_NPROCESSORS_ONLN, which macOS hides from what is only POSIX */
#include "threads.h"

#if defined(__wasm__) || defined(_WIN32)

int32_t kv_pool_available(void) { return 0; }

uint64_t kv_pool_bytes(uint32_t threads) {
  (void)threads;
  return 0;
}

void kv_pool_init(kv_pool *pool, uint32_t threads) {
  (void)pool;
  (void)threads;
}

void kv_pool_stop(kv_pool *pool) { (void)pool; }

void kv_pool_run(void *pool, uint32_t tasks, void (*task)(void *arg, uint32_t index, uint32_t worker), void *arg) {
  (void)pool;
  for (uint32_t index = 0; index < tasks; index++) task(arg, index, 0);
}

#else

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct member {
  struct kv_pool *pool;
  pthread_t thread;
  uint32_t worker;
} member;

#define OPEN 0x80000000u
#define SPINS 1000 /* some 20 microseconds: a sleeping thread takes as long to wake */

struct kv_pool {
  pthread_mutex_t lock; /* of the two conditions: what they wait for changes outside it, they are signalled within */
  pthread_cond_t work;  /* a round was opened, or stop */
  pthread_cond_t done;  /* the last member left a closed round */
  pid_t owner;          /* process that the threads below live in, 0: none yet */
  uint32_t threads;
  uint32_t started; /* members that have a thread */
  uint32_t spins;   /* 0 where there are more threads than CPUs: a spin would take the time of those that work */
  atomic_int stop;
  atomic_uint round;
  atomic_uint gate; /* members in the round, and whether more may join */
  atomic_uint next; /* first index that nobody took */
  uint32_t tasks;
  void (*task)(void *arg, uint32_t index, uint32_t worker);
  void *arg;
  member members[]; /* threads - 1: the caller is worker 0 */
};

int32_t kv_pool_available(void) { return 1; }

uint64_t kv_pool_bytes(uint32_t threads) { return sizeof(kv_pool) + (threads - 1) * sizeof(member); }

void kv_pool_init(kv_pool *pool, uint32_t threads) {
  pool->owner = 0;
  pool->threads = threads;
}

static void work(kv_pool *pool, uint32_t worker) {
  for (;;) {
    uint32_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    if (index >= pool->tasks) return;
    pool->task(pool->arg, index, worker);
  }
}

static inline void pause_cpu(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* yield returns at once */
#endif
}

/* A member takes part in a round once. */
static int awaited(kv_pool *pool, uint32_t seen) {
  return atomic_load(&pool->stop) ||
         (atomic_load(&pool->round) != seen && (atomic_load(&pool->gate) & OPEN) != 0);
}

static void await_round(kv_pool *pool, uint32_t seen) {
  for (uint32_t i = 0; i < pool->spins; i++) {
    if (awaited(pool, seen)) return;
    pause_cpu();
  }
  pthread_mutex_lock(&pool->lock);
  while (!awaited(pool, seen)) pthread_cond_wait(&pool->work, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

static int join(kv_pool *pool) {
  unsigned gate = atomic_load(&pool->gate);
  while (gate & OPEN)
    if (atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1)) return 1;
  return 0;
}

static void leave(kv_pool *pool) {
  if (atomic_fetch_sub(&pool->gate, 1) != 1) return;
  pthread_mutex_lock(&pool->lock);
  pthread_cond_signal(&pool->done);
  pthread_mutex_unlock(&pool->lock);
}

static void *serve(void *argument) {
  member *self = argument;
  kv_pool *pool = self->pool;
  uint32_t seen = 0;
  for (;;) {
    await_round(pool, seen);
    if (atomic_load(&pool->stop)) return NULL;
    if (!join(pool)) continue;
    seen = atomic_load(&pool->round); /* does not change while somebody is in */
    work(pool, self->worker);
    leave(pool);
  }
}

static void start(kv_pool *pool) {
  sigset_t all, before;
  pool->owner = getpid();
  pool->started = 0;
  pool->spins = (long)pool->threads <= sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
  atomic_init(&pool->stop, 0);
  atomic_init(&pool->round, 0);
  atomic_init(&pool->gate, 0);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->done, NULL);
  sigfillset(&all); /* signals are for the host's threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (uint32_t i = 0; i + 1 < pool->threads; i++) {
    member *one = &pool->members[i];
    *one = (member){.pool = pool, .worker = i + 1};
    if (pthread_create(&one->thread, NULL, serve, one) != 0) break;
    pool->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void open_round(kv_pool *pool) {
  atomic_store(&pool->next, 0);
  atomic_fetch_add(&pool->round, 1);
  atomic_store(&pool->gate, OPEN);
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
}

static void close_round(kv_pool *pool) {
  atomic_fetch_and(&pool->gate, ~OPEN);
  for (uint32_t i = 0; i < pool->spins; i++) {
    if (atomic_load(&pool->gate) == 0) return;
    pause_cpu();
  }
  pthread_mutex_lock(&pool->lock);
  while (atomic_load(&pool->gate) != 0) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

void kv_pool_run(void *context, uint32_t tasks, void (*task)(void *arg, uint32_t index, uint32_t worker), void *arg) {
  kv_pool *pool = context;
  if (tasks < 2) {
    if (tasks == 1) task(arg, 0, 0);
    return;
  }
  if (pool->owner != getpid()) start(pool);
  pool->task = task;
  pool->arg = arg;
  pool->tasks = tasks;
  open_round(pool);
  work(pool, 0);
  close_round(pool);
}

void kv_pool_stop(kv_pool *pool) {
  if (pool->owner != getpid()) return;
  atomic_store(&pool->stop, 1);
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 0; i < pool->started; i++) pthread_join(pool->members[i].thread, NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  pool->owner = 0;
}

#endif
