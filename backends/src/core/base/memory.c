#include "memory.h"

#if !defined(__wasm__)

#include <stdlib.h>

#if defined(_WIN32)

void *kv_memory_take(uint64_t bytes) { return _aligned_malloc((size_t)bytes, 64); }

void kv_memory_give_back(void *pointer, uint64_t bytes) {
  (void)bytes;
  _aligned_free(pointer);
}

#else

void *kv_memory_take(uint64_t bytes) { return aligned_alloc(64, (size_t)((bytes + 63) & ~(uint64_t)63)); }

void kv_memory_give_back(void *pointer, uint64_t bytes) {
  (void)bytes;
  free(pointer);
}

#endif
#endif
