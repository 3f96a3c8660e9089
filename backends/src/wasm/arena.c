/* Linear memory never shrinks, and every view a host has of it dies when it grows. So it grows rarely: by half of what
 * there is and at least a megabyte. Free blocks are kept in the order of their addresses and joined with their
 * neighbours, so that a session which gave everything back leaves one block, and the next one finds the same memory.
 */
#include "core/base/memory.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

#define GRAIN 64u            /* alignment, and the least a free block needs to describe itself */
#define PAGE 65536u          /* of linear memory */
#define CHUNK (16u * PAGE)   /* the least growth */
#define MOST_PAGES 65536u    /* 4 GiB */

typedef struct block {
  struct block *next; /* at a higher address */
  uint32_t bytes;
} block;

extern unsigned char __heap_base; /* set by the linker: the end of data and stack */

static struct {
  block *free;
  uint32_t end; /* of the memory that belongs to the arena; 0: not begun */
  uint32_t cap; /* pages of linear memory */
  uint32_t used, high_water;
  uint32_t growths;
  uint64_t refused;
} arena = {.cap = MOST_PAGES};

static uint32_t pages(void) { return (uint32_t)__builtin_wasm_memory_size(0); }

static uint32_t address(const void *p) { return (uint32_t)(uintptr_t)p; }

/* Bytes from `start` become free; joined with the block before and the block after. */
static void add_free(uint32_t start, uint32_t bytes) {
  block *before = 0, *after = arena.free, *made = (block *)(uintptr_t)start;
  while (after && address(after) < start) before = after, after = after->next;
  *made = (block){after, bytes};
  if (after && start + bytes == address(after)) *made = (block){after->next, bytes + after->bytes};
  if (!before) arena.free = made;
  else if (address(before) + before->bytes == start) *before = (block){made->next, before->bytes + made->bytes};
  else before->next = made;
}

static void begin(void) {
  const uint32_t start = (address(&__heap_base) + GRAIN - 1) / GRAIN * GRAIN;
  arena.end = pages() * PAGE;
  if (arena.end > start) add_free(start, arena.end - start);
}

/* Free bytes at the very end, which growth would extend. */
static uint32_t tail(void) {
  for (const block *b = arena.free; b; b = b->next)
    if (address(b) + b->bytes == arena.end) return b->bytes;
  return 0;
}

/* Room for `bytes` in one piece. First by half as much again, and where the cap or the engine forbids that, just enough. */
static int grow(uint32_t bytes) {
  const uint32_t now = pages(), kept = arena.end == now * PAGE ? tail() : 0;
  const uint32_t needed = (bytes - kept + PAGE - 1) / PAGE, least = needed > CHUNK / PAGE ? needed : CHUNK / PAGE;
  uint32_t more = least > now / 2 ? least : now / 2;
  const uint32_t left = arena.cap > now ? arena.cap - now : 0;
  if (needed > left) return 0;
  if (more > left) more = left;
  if (__builtin_wasm_memory_grow(0, more) == (unsigned long)-1) {
    more = needed;
    if (__builtin_wasm_memory_grow(0, more) == (unsigned long)-1) return 0;
  }
  arena.growths++;
  arena.end = (now + more) * PAGE - (now + more == MOST_PAGES ? GRAIN : 0); /* the last address must not be 2^32 */
  add_free(now * PAGE, arena.end - now * PAGE);
  return 1;
}

static void *first_fit(uint32_t bytes) {
  for (block **link = &arena.free; *link; link = &(*link)->next) {
    block *b = *link;
    if (b->bytes < bytes) continue;
    if (b->bytes == bytes) *link = b->next;
    else {
      block *rest = (block *)(uintptr_t)(address(b) + bytes);
      *rest = (block){b->next, b->bytes - bytes};
      *link = rest;
    }
    return b;
  }
  return 0;
}

static uint32_t rounded(uint64_t bytes) { return (uint32_t)((bytes + (bytes == 0) + GRAIN - 1) / GRAIN * GRAIN); }

/* NULL if the cap or the engine does not allow it; kv_wasm_refused then says how much was asked. */
void *kv_memory_take(uint64_t bytes) {
  void *taken = 0;
  if (!arena.end) begin();
  if (bytes <= INT32_MAX - GRAIN) {
    taken = first_fit(rounded(bytes));
    if (!taken && grow(rounded(bytes))) taken = first_fit(rounded(bytes));
  }
  if (!taken) {
    arena.refused = bytes;
    return 0;
  }
  arena.used += rounded(bytes);
  if (arena.used > arena.high_water) arena.high_water = arena.used;
  return taken;
}

void kv_memory_give_back(void *pointer, uint64_t bytes) {
  if (!pointer) return;
  arena.used -= rounded(bytes);
  add_free(address(pointer), rounded(bytes));
}

/* ---- what a host may ask (docs/wasm.md) ---- */

void *EXPORT(kv_wasm_alloc)(uint32_t bytes) { return kv_memory_take(bytes); }

void EXPORT(kv_wasm_free)(void *pointer, uint32_t bytes) { kv_memory_give_back(pointer, bytes); }

/* At the start of a session: 1 if `bytes` can be had in one piece from now on without growth. */
uint32_t EXPORT(kv_wasm_reserve)(uint32_t bytes) {
  void *taken = kv_memory_take(bytes);
  if (!taken) return 0;
  kv_memory_give_back(taken, bytes);
  return 1;
}

void EXPORT(kv_wasm_set_cap)(uint32_t cap_pages) { arena.cap = cap_pages < MOST_PAGES ? cap_pages : MOST_PAGES; }
uint32_t EXPORT(kv_wasm_cap)(void) { return arena.cap; }
uint32_t EXPORT(kv_wasm_pages)(void) { return pages(); }
uint32_t EXPORT(kv_wasm_growths)(void) { return arena.growths; }
uint32_t EXPORT(kv_wasm_used)(void) { return arena.used; }
uint32_t EXPORT(kv_wasm_high_water)(void) { return arena.high_water; }

/* Bytes of the last request that was refused, and forgotten with this call: 0 if none was. */
uint64_t EXPORT(kv_wasm_refused)(void) {
  const uint64_t bytes = arena.refused;
  arena.refused = 0;
  return bytes;
}

/* Bytes that can still be had, growth up to the cap included; not all of them need be in one piece. */
uint64_t EXPORT(kv_wasm_left)(void) {
  uint64_t left = arena.cap > pages() ? (uint64_t)(arena.cap - pages()) * PAGE : 0;
  if (!arena.end) begin();
  for (const block *b = arena.free; b; b = b->next) left += b->bytes;
  return left;
}
