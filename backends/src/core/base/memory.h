/* Memory of the machine, for caches that were given no allocator. In a WebAssembly module the arena has these. */
#ifndef KV_MEMORY_H
#define KV_MEMORY_H

#include <stdint.h>

/* Aligned to 64; NULL where there is none. */
void *kv_memory_take(uint64_t bytes);
/* `bytes` as they were taken. */
void kv_memory_give_back(void *pointer, uint64_t bytes);

#endif
