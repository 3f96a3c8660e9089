/* Memory of a WebAssembly module: the linear memory above its data and stack, in blocks of 64 bytes. */
#ifndef KV_WASM_ARENA_H
#define KV_WASM_ARENA_H

#include <stdint.h>

/* Aligned to 64. NULL if the cap or the engine does not allow it; kv_wasm_refused then says how much was asked. */
void *kv_arena_take(uint64_t bytes);
/* `bytes` as they were taken. */
void kv_arena_give_back(void *pointer, uint64_t bytes);

#endif
