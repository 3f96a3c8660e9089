/* A pool of threads behind kv_parallel. */
#ifndef KVASSAY_CORE_THREADS_H
#define KVASSAY_CORE_THREADS_H

#include <stdint.h>

typedef struct kv_pool kv_pool;

int32_t kv_pool_available(void); /* 0 where this build has no threads */
uint64_t kv_pool_bytes(uint32_t threads);
void kv_pool_init(kv_pool *pool, uint32_t threads); /* makes no thread: the first run does */
void kv_pool_stop(kv_pool *pool);                   /* joins them; the memory stays the caller's */
/* kv_parallel.run with the pool as context. The calling thread is worker 0 and takes its share. */
void kv_pool_run(void *pool, uint32_t tasks, void (*task)(void *arg, uint32_t index, uint32_t worker), void *arg);

#endif
