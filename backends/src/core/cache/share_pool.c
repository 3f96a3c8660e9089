/* Pools: an allocator between caches and the caller's, and the tables that all caches of one spec share.
 *
 * Blocks of one size come from slabs of 1, 2, 4, ... blocks. A block that was never used lies untouched, so it is
 * reserved and not resident; one that was given back is used next. Slabs of a size are sorted by address, and room is
 * taken from the first, so that the last ones fall empty. Empty ones go back when the limit is reached, or when asked.
 */
#include <string.h>

#include "kvassay_share.h"
#include "cache.h"
#include "dump.h"
#include "core/base/lock.h"

#define SIZES 64u           /* different sizes that are pooled; further ones go straight to the caller's allocator */
#define SLAB_BYTES 0x200000 /* the largest slab of more than one block */

typedef struct slab {
  uint8_t *base;
  void *returned; /* blocks given back: each begins with the address of the next */
  uint32_t blocks;
  uint32_t used;
  uint32_t touched; /* blocks from here on were never used */
} slab;

typedef struct size {
  uint64_t bytes; /* of a block, a multiple of 64 */
  uint64_t blocks;
  slab *slabs;
  uint32_t count;
  uint32_t capacity;
  uint32_t room; /* no slab before this one has any */
} size;

struct kv_cache_pool {
  kv_lock lock;
  int closed;
  kv_allocator below;
  kv_shared *shared;
  uint64_t limit;
  uint64_t used;     /* bytes in blocks handed out */
  uint64_t reserved; /* in slabs, not handed out */
  uint64_t headers;
  uint64_t peak;
  uint64_t served;
  uint64_t recycled;
  uint32_t count;
  size sizes[SIZES];
};

/* ---- memory from below, within the limit ---- */

static uint64_t held(const kv_cache_pool *pool) { return pool->used + pool->reserved + pool->headers; }

static int fits(const kv_cache_pool *pool, uint64_t bytes) { return bytes <= pool->limit - held(pool); }

static void note_peak(kv_cache_pool *pool) {
  if (held(pool) > pool->peak) pool->peak = held(pool);
}

static void give_below(const kv_cache_pool *pool, void *pointer, uint64_t bytes) {
  pool->below.release(pool->below.context, pointer, bytes);
}

static void drop_slab(kv_cache_pool *pool, size *of, uint32_t at) {
  uint64_t bytes = of->slabs[at].blocks * of->bytes;
  give_below(pool, of->slabs[at].base, bytes);
  pool->reserved -= bytes;
  of->blocks -= of->slabs[at].blocks;
  of->count--;
  memmove(&of->slabs[at], &of->slabs[at + 1], (of->count - at) * sizeof *of->slabs);
  if (of->room > at) of->room--;
}

static void trim(kv_cache_pool *pool) {
  for (uint32_t i = 0; i < pool->count; i++)
    for (uint32_t at = pool->sizes[i].count; at > 0; at--)
      if (pool->sizes[i].slabs[at - 1].used == 0) drop_slab(pool, &pool->sizes[i], at - 1);
}

/* ---- slabs ---- */

static int room_for_slab(kv_cache_pool *pool, size *of) {
  uint32_t capacity = of->capacity != 0 ? 2 * of->capacity : 4;
  uint64_t more = (capacity - of->capacity) * sizeof *of->slabs;
  slab *larger;
  if (of->count < of->capacity) return 1;
  if (!fits(pool, more)) return 0;
  larger = kv_take(&pool->below, capacity * sizeof *larger);
  if (larger == NULL) return 0;
  if (of->count != 0) memcpy(larger, of->slabs, of->count * sizeof *larger);
  if (of->slabs != NULL) give_below(pool, of->slabs, of->capacity * sizeof *larger);
  of->slabs = larger;
  of->capacity = capacity;
  pool->headers += more;
  return 1;
}

static void insert(size *of, slab made) {
  uint32_t at = of->count;
  while (at > 0 && of->slabs[at - 1].base > made.base) at--;
  memmove(&of->slabs[at + 1], &of->slabs[at], (of->count - at) * sizeof made);
  of->slabs[at] = made;
  of->count++;
  if (at < of->room) of->room = at;
}

/* As many blocks as there are, and no more than a slab may have or the limit allows; at least one. */
static int grow(kv_cache_pool *pool, size *of) {
  uint64_t blocks = of->blocks != 0 ? of->blocks : 1, most = SLAB_BYTES / of->bytes;
  slab made = {0};
  if (!room_for_slab(pool, of)) return 0;
  if (blocks > most) blocks = most != 0 ? most : 1;
  while (blocks > 1 && !fits(pool, blocks * of->bytes)) blocks /= 2;
  for (; made.base == NULL && blocks > 0 && fits(pool, blocks * of->bytes); blocks /= 2) {
    made.base = kv_take(&pool->below, blocks * of->bytes);
    made.blocks = (uint32_t)blocks;
  }
  if (made.base == NULL) return 0;
  insert(of, made);
  of->blocks += made.blocks;
  pool->reserved += made.blocks * of->bytes;
  note_peak(pool);
  return 1;
}

static void *block_of(kv_cache_pool *pool, slab *from, uint64_t bytes) {
  void *block = from->returned;
  if (block != NULL) {
    memcpy(&from->returned, block, sizeof from->returned);
    pool->recycled++;
  } else {
    block = from->base + from->touched++ * bytes;
  }
  from->used++;
  pool->served++;
  pool->used += bytes;
  pool->reserved -= bytes;
  return block;
}

/* The class of a size; NULL once there are too many. */
static size *class_of(kv_cache_pool *pool, uint64_t bytes) {
  uint32_t i = 0;
  while (i < pool->count && pool->sizes[i].bytes != bytes) i++;
  if (i == SIZES) return NULL;
  if (i == pool->count) pool->sizes[pool->count++] = (size){.bytes = bytes};
  return &pool->sizes[i];
}

static void *take_block(kv_cache_pool *pool, size *of) {
  while (of->room < of->count && of->slabs[of->room].used == of->slabs[of->room].blocks) of->room++;
  if (of->room == of->count && !grow(pool, of)) {
    trim(pool);
    if (!grow(pool, of)) return NULL;
  }
  return block_of(pool, &of->slabs[of->room], of->bytes);
}

static void *take_alone(kv_cache_pool *pool, uint64_t bytes) {
  void *block;
  if (!fits(pool, bytes)) trim(pool);
  if (!fits(pool, bytes)) return NULL;
  block = kv_take(&pool->below, bytes);
  if (block == NULL) return NULL;
  pool->used += bytes;
  pool->served++;
  note_peak(pool);
  return block;
}

static void give_block(kv_cache_pool *pool, size *of, void *block) {
  uint32_t low = 0, high = of->count;
  slab *from;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (of->slabs[middle].base <= (uint8_t *)block)
      low = middle;
    else
      high = middle;
  }
  from = &of->slabs[low];
  memcpy(block, &from->returned, sizeof from->returned);
  from->returned = block;
  from->used--;
  pool->used -= of->bytes;
  pool->reserved += of->bytes;
  if (low < of->room) of->room = low;
}

/* ---- the allocator of its caches ---- */

static void *pool_allocate(void *context, uint64_t bytes) {
  kv_cache_pool *pool = context;
  uint64_t whole = kv_align_up(bytes != 0 ? bytes : 1, 64);
  size *of;
  void *block;
  kv_lock_take(&pool->lock);
  of = class_of(pool, whole);
  block = of != NULL ? take_block(pool, of) : take_alone(pool, whole);
  kv_lock_give(&pool->lock);
  return block;
}

static void end(kv_cache_pool *pool) {
  trim(pool);
  for (uint32_t i = 0; i < pool->count; i++)
    if (pool->sizes[i].slabs != NULL)
      give_below(pool, pool->sizes[i].slabs, pool->sizes[i].capacity * sizeof(slab));
  kv_lock_end(&pool->lock);
  give_below(pool, pool, sizeof *pool);
}

static void pool_release(void *context, void *pointer, uint64_t bytes) {
  kv_cache_pool *pool = context;
  uint64_t whole = kv_align_up(bytes != 0 ? bytes : 1, 64);
  uint32_t i = 0;
  int last;
  kv_lock_take(&pool->lock);
  while (i < pool->count && pool->sizes[i].bytes != whole) i++;
  if (i < pool->count) {
    give_block(pool, &pool->sizes[i], pointer);
  } else {
    give_below(pool, pointer, whole);
    pool->used -= whole;
  }
  last = pool->closed && pool->used == 0;
  kv_lock_give(&pool->lock);
  if (last) end(pool);
}

/* ---- functions of the header ---- */

KV_EXPORT int32_t kv_cache_pool_create(const kv_cache_config *config, uint64_t limit, kv_cache_pool **out,
                                       kv_error *error) {
  const kv_allocator *below;
  kv_allocator own = {NULL, pool_allocate, pool_release};
  kv_cache_config inner;
  kv_cache_pool *pool;
  int32_t code;
  if (config == NULL || out == NULL) return kv_fail(error, KV_E_ARGUMENT, "pool: config or pool is NULL");
  *out = NULL;
  below = config->allocator != NULL ? config->allocator : &kv_default_allocator;
  if (below->allocate == NULL || below->release == NULL)
    return kv_fail(error, KV_E_ARGUMENT, "allocator: a function is NULL");
  if (limit != 0 && limit < sizeof *pool)
    return kv_fail(error, KV_E_MEMORY, "pool: a limit of %l bytes is less than its own %l", limit, sizeof *pool);
  pool = kv_take(below, sizeof *pool);
  if (pool == NULL) return kv_fail(error, KV_E_MEMORY, "pool: the allocator refused %l bytes", sizeof *pool);
  memset(pool, 0, sizeof *pool);
  kv_lock_init(&pool->lock);
  pool->below = *below;
  pool->limit = limit != 0 ? limit : UINT64_MAX;
  pool->headers = sizeof *pool;
  note_peak(pool);
  own.context = pool;
  inner = *config;
  inner.allocator = &own;
  code = kv_shared_create(&inner, &pool->shared, error);
  if (code != KV_OK) {
    end(pool);
    return code;
  }
  *out = pool;
  return kv_success(error);
}

KV_EXPORT void kv_cache_pool_destroy(kv_cache_pool *pool) {
  if (pool == NULL) return;
  kv_lock_take(&pool->lock);
  pool->closed = 1;
  kv_lock_give(&pool->lock);
  kv_shared_release(pool->shared); /* if no cache is left, this ends the pool */
}

KV_EXPORT int32_t kv_cache_pool_take(kv_cache_pool *pool, kv_cache **cache, kv_error *error) {
  int32_t code;
  if (pool == NULL || cache == NULL) return kv_fail(error, KV_E_ARGUMENT, "pool or cache is NULL");
  *cache = NULL;
  code = kv_cache_new(pool->shared, cache, error);
  return code == KV_OK ? kv_success(error) : code;
}

KV_EXPORT int32_t kv_cache_pool_restore(kv_cache_pool *pool, const void *buffer, uint64_t bytes, kv_cache **cache,
                                        kv_error *error) {
  int32_t code;
  if (pool == NULL || cache == NULL || buffer == NULL)
    return kv_fail(error, KV_E_ARGUMENT, "restore: pool, buffer or cache is NULL");
  *cache = NULL;
  code = kv_dump_restore(pool->shared, buffer, bytes, cache, error);
  return code == KV_OK ? kv_success(error) : code;
}

KV_EXPORT void kv_cache_pool_trim(kv_cache_pool *pool) {
  if (pool == NULL) return;
  kv_lock_take(&pool->lock);
  trim(pool);
  kv_lock_give(&pool->lock);
}

KV_EXPORT void kv_cache_pool_get_stats(kv_cache_pool *pool, kv_pool_stats *stats) {
  if (stats == NULL) return;
  memset(stats, 0, sizeof *stats);
  if (pool == NULL) return;
  kv_lock_take(&pool->lock);
  *stats = (kv_pool_stats){pool->used, pool->reserved, pool->headers, pool->limit, pool->peak, pool->served,
                           pool->recycled};
  kv_lock_give(&pool->lock);
}
