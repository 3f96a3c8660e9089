/* Threads of one cache. They are made by its first parallel call and wait on a condition between calls.
 *
 * After fork() a child has the memory but not the threads, and the locks are in an unknown state; the pool notices
 * by the process id and starts afresh. Should the system refuse a thread, those that exist do the work.
 */
#define _POSIX_C_SOURCE 200809L
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

struct kv_pool {
  pthread_mutex_t lock;
  pthread_cond_t work; /* a new round, or stop */
  pthread_cond_t done; /* busy fell to 0 */
  pid_t owner;         /* process that the threads below live in, 0: none yet */
  uint32_t threads;
  uint32_t started; /* members that have a thread */
  uint32_t busy;    /* of which still in this round */
  uint32_t round;
  int stop;
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

static void *serve(void *argument) {
  member *self = argument;
  kv_pool *pool = self->pool;
  uint32_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->round == seen && !pool->stop) pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->stop) break;
    seen = pool->round;
    pthread_mutex_unlock(&pool->lock);
    work(pool, self->worker);
    pthread_mutex_lock(&pool->lock);
    if (--pool->busy == 0) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static void start(kv_pool *pool) {
  sigset_t all, before;
  pool->owner = getpid();
  pool->started = pool->busy = pool->round = 0;
  pool->stop = 0;
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

void kv_pool_run(void *context, uint32_t tasks, void (*task)(void *arg, uint32_t index, uint32_t worker), void *arg) {
  kv_pool *pool = context;
  if (tasks < 2) {
    if (tasks == 1) task(arg, 0, 0);
    return;
  }
  if (pool->owner != getpid()) start(pool);
  pthread_mutex_lock(&pool->lock);
  pool->task = task;
  pool->arg = arg;
  pool->tasks = tasks;
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  pool->busy = pool->started;
  pool->round++;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  work(pool, 0);
  pthread_mutex_lock(&pool->lock);
  while (pool->busy != 0) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

void kv_pool_stop(kv_pool *pool) {
  if (pool->owner != getpid()) return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = 1;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 0; i < pool->started; i++) pthread_join(pool->members[i].thread, NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  pool->owner = 0;
}

#endif
