/* What the core takes from the C library, for a target that has none: see memory.c. */
#ifndef KV_WASM_STRING_H
#define KV_WASM_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

#endif
