/* kvassay_share.h: what caches of one family share, and drafts that may be taken back (docs/lifecycle.md).
 *
 * Goes with kvassay.h: the same errors, and nothing is changed by a call that fails. A library that exports these
 * functions sets KV_FLAG_SHARE in kv_info.flags. Between the marks there are only declarations and integer #defines.
 */
#ifndef KVASSAY_SHARE_H
#define KVASSAY_SHARE_H

#include "kvassay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BEGIN declarations */

#define KV_FLAG_SHARE 4
#define KV_ALL_LAYERS 0xffffffff

/* ---- drafts ---- */

/* Remembers the lengths of one layer, or of all, and keeps the fp16 tokens that pages sealed within `tokens` more
 * tokens would replace. Marks nest; while there is one, nothing is retired. Truncate and reset forget them all. */
int32_t kv_cache_mark(kv_cache *cache, uint32_t layer, uint64_t tokens, kv_error *error);
/* The marked layers lose all tokens since the newest mark but the first `keep`, exactly; the mark is gone then.
 * KV_E_TRUNCATE if a kept token exists only as codes: the message ends with one or two values of `keep` that work. */
int32_t kv_cache_rollback(kv_cache *cache, uint64_t keep, kv_error *error);
int32_t kv_cache_commit(kv_cache *cache, kv_error *error); /* forgets the newest mark, keeps the tokens */
uint32_t kv_cache_marks(const kv_cache *cache);

/* ---- prefixes ---- */

/* An empty layer takes the sinks and the first `pages` sealed pages of the donor's layer, shared, and then `tokens`
 * more tokens, at least the window: as if all of them had been appended. The donor is a fork or of the same pool. */
int32_t kv_cache_adopt(kv_cache *cache, uint32_t layer, const kv_cache *donor, uint32_t pages, const float *keys,
                       const float *values, uint64_t tokens, kv_error *error);

/* ---- pools ---- */

/* Caches of one spec that share tables and memory: blocks of each size come from slabs that double, and blocks given
 * back are used again. Caches of a pool may be used by different threads. */
typedef struct kv_cache_pool kv_cache_pool;

/* Their sum is what the pool holds. */
typedef struct kv_pool_stats {
  uint64_t used;      /* by caches and tables, pages shared by several once */
  uint64_t reserved;  /* in slabs, not in use */
  uint64_t headers;   /* the pool's own bookkeeping */
  uint64_t limit;     /* UINT64_MAX: none */
  uint64_t peak;      /* highest sum */
  uint64_t served;    /* blocks handed out so far */
  uint64_t recycled;  /* of which had been given back before */
} kv_pool_stats;

/* `limit` bounds what is held, in bytes; 0: no limit. */
int32_t kv_cache_pool_create(const kv_cache_config *config, uint64_t limit, kv_cache_pool **pool, kv_error *error);
/* No more caches are made; memory goes when the last of them is destroyed. */
void kv_cache_pool_destroy(kv_cache_pool *pool);
int32_t kv_cache_pool_take(kv_cache_pool *pool, kv_cache **cache, kv_error *error); /* an empty cache */
int32_t kv_cache_pool_restore(kv_cache_pool *pool, const void *buffer, uint64_t bytes, kv_cache **cache,
                              kv_error *error);
void kv_cache_pool_trim(kv_cache_pool *pool); /* gives slabs without a used block back */
void kv_cache_pool_get_stats(kv_cache_pool *pool, kv_pool_stats *stats);

/* END declarations */

#ifdef __cplusplus
}
#endif
#endif
