/* A lock, where a build has threads. */
#ifndef KVASSAY_CORE_LOCK_H
#define KVASSAY_CORE_LOCK_H

#if defined(__wasm__)

typedef int kv_lock;
static inline void kv_lock_init(kv_lock *lock) { *lock = 0; }
static inline void kv_lock_take(kv_lock *lock) { (void)lock; }
static inline void kv_lock_give(kv_lock *lock) { (void)lock; }
static inline void kv_lock_end(kv_lock *lock) { (void)lock; }

#elif defined(_WIN32)

#include <windows.h>

typedef CRITICAL_SECTION kv_lock;
static inline void kv_lock_init(kv_lock *lock) { InitializeCriticalSection(lock); }
static inline void kv_lock_take(kv_lock *lock) { EnterCriticalSection(lock); }
static inline void kv_lock_give(kv_lock *lock) { LeaveCriticalSection(lock); }
static inline void kv_lock_end(kv_lock *lock) { DeleteCriticalSection(lock); }

#else

#include <pthread.h>

typedef pthread_mutex_t kv_lock;
static inline void kv_lock_init(kv_lock *lock) { pthread_mutex_init(lock, 0); }
static inline void kv_lock_take(kv_lock *lock) { pthread_mutex_lock(lock); }
static inline void kv_lock_give(kv_lock *lock) { pthread_mutex_unlock(lock); }
static inline void kv_lock_end(kv_lock *lock) { pthread_mutex_destroy(lock); }

#endif
#endif
