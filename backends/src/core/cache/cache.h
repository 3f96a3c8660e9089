/* The cache's own structures, private to core/cache*.c and core/dump*.c.
 *
 * Memory. Everything comes from the caller's allocator: one block shared by a cache and its forks (specs, plans,
 * identity text), one block a cache (this struct, its layers, their frozen means), scratch, the thread pool, and a
 * layer's token stores, page index and pages. The allocator is called from whichever thread uses a cache, so one
 * that serves forks on several threads has to be safe for that.
 *
 * A page is its bytes followed by the number of caches that hold it; the last one releases it.
 */
#ifndef KVASSAY_CORE_CACHE_H
#define KVASSAY_CORE_CACHE_H

#include <stdatomic.h>

#include "kvassay.h"
#include "core/base/fail.h"
#include "core/plan/plan.h"
#include "core/base/threads.h"

#define KV_MAX_LAYERS 65535u
#define KV_MAX_THREADS 256u
#define KV_MAX_LENGTH UINT32_MAX /* a page header has 32 bits for the position of a token */

/* What a cache and its forks have in common; nothing but the count ever changes. */
typedef struct kv_shared {
  atomic_uint holders;
  uint32_t layers;
  uint32_t threads;
  kv_allocator allocator;
  kv_page_id id; /* the hashes; layer and token start are filled in a page at a time */
  uint64_t bytes;
  uint64_t scratch_bytes;
  uint64_t identity_bytes;
  uint8_t *identity;
  kv_layer_spec *specs;
  void **plans; /* one a layer; layers of equal spec share one */
} kv_shared;

/* fp16 tokens of both streams, [2][kv_heads][capacity][head_dim], keys first; the first `count` are in use. */
typedef struct kv_store {
  uint16_t *data;
  uint64_t capacity;
  uint64_t count;
} kv_store;

/* pages[0 .. page_count) are held. first_page + page_count == kv_pages_sealed(spec, length) at all times. */
typedef struct kv_layer {
  uint64_t length;
  kv_store sinks;
  kv_store residual;
  void **pages;
  uint32_t page_capacity;
  uint32_t page_count;
  uint32_t first_page;
  uint64_t retire_to; /* pages before this number are retired once there is no mark */
  uint16_t *key_mean; /* room for the frozen means, NULL if the spec has none; meant once a page is sealed */
  uint16_t *value_mean;
} kv_layer;

/* One layer of a mark: its length, and the oldest tokens of its residual, in the mark's own block. */
typedef struct kv_marked {
  uint64_t length;
  uint64_t retire_to;
  kv_store residual;
} kv_marked;

/* Layers first .. first + count - 1 as they were; the fp16 tokens follow. */
typedef struct kv_mark {
  struct kv_mark *below;
  uint64_t bytes;
  uint32_t first;
  uint32_t count;
  kv_marked layers[];
} kv_mark;

struct kv_cache {
  kv_shared *shared;
  kv_mark *mark; /* the newest */
  uint64_t block_bytes;
  uint64_t means_bytes; /* of which for frozen means */
  void *scratch;
  kv_pool *pool; /* NULL with one thread */
  uint64_t allocated;
  uint64_t peak_allocated;
  uint64_t allocations;
  uint64_t pages_encoded;
  uint64_t pages_scanned;
  kv_layer layers[];
};

/* ---- sizes: sums and products that stay at UINT64_MAX once they are too large ---- */

uint64_t kv_add(uint64_t a, uint64_t b);
uint64_t kv_mul(uint64_t a, uint64_t b);
uint64_t kv_align_up(uint64_t bytes, uint64_t multiple); /* multiple: a power of two */

/* ---- errors ---- */

int32_t kv_at_layer(int32_t code, uint32_t layer, kv_error *error); /* names the layer in a failure; returns code */
/* What every call on a cache asks first. */
int32_t kv_usable(const kv_cache *cache, kv_error *error);
int32_t kv_usable_layer(const kv_cache *cache, uint32_t layer, kv_error *error);
/* Tokens for an append, [tokens][kv_heads][head_dim]: KV_E_VALUE names the first number that does not fit fp16. */
int32_t kv_check_values(const kv_layer_spec *spec, uint32_t layer, const float *keys, const float *values,
                        uint64_t tokens, kv_error *error);

/* ---- memory, counted ---- */

extern const kv_allocator kv_default_allocator;
void *kv_take(const kv_allocator *allocator, uint64_t bytes); /* NULL also for sizes no machine has */
void *kv_cache_take(kv_cache *cache, uint64_t bytes);
void kv_cache_give_back(kv_cache *cache, void *pointer, uint64_t bytes);
void kv_cache_count(kv_cache *cache, uint64_t bytes); /* bills bytes that another cache asked for */

int32_t kv_shared_create(const kv_cache_config *config, kv_shared **shared, kv_error *error);
void kv_shared_hold(kv_shared *shared);
void kv_shared_release(kv_shared *shared);
int32_t kv_cache_new(kv_shared *shared, kv_cache **cache, kv_error *error); /* holds shared if it succeeds */

void kv_cache_forget_marks(kv_cache *cache);

uint64_t kv_page_allocation(const kv_cache *cache, uint32_t layer); /* page bytes and the count behind them */
void *kv_page_take(kv_cache *cache, uint32_t layer);                /* held once */
void kv_page_hold(kv_cache *cache, uint32_t layer, void *page);
void kv_page_drop(kv_cache *cache, uint32_t layer, void *page);
uint64_t kv_index_bytes(uint64_t pages);

/* ---- token stores ---- */

uint64_t kv_store_bytes(const kv_layer_spec *spec, uint64_t tokens);
kv_rows kv_store_rows(const kv_layer_spec *spec, const kv_store *store, int values);
/* Data for `capacity` tokens, nothing in use. KV_E_MEMORY leaves `store` as it was. */
int32_t kv_store_take(kv_cache *cache, const kv_layer_spec *spec, uint64_t capacity, kv_store *store, kv_error *error);
void kv_store_give_back(kv_cache *cache, const kv_layer_spec *spec, kv_store *store);
void kv_store_copy(const kv_layer_spec *spec, kv_store *to, const kv_store *from); /* the tokens in use */
/* Writes tokens of float32 [tokens][kv_heads][head_dim] behind those in use, where there must be room. Not 0: some
 * number does not fit fp16. They are in use once they are counted. */
int kv_store_write(const kv_plan *plan, const kv_store *store, const float *keys, const float *values, uint64_t tokens,
                   uint32_t *ran);
void kv_store_drop_oldest(const kv_layer_spec *spec, kv_store *store, uint64_t tokens);
/* Tokens first .. first + count - 1 of `from` in front of the store's own. There must be room. */
void kv_store_put_before(const kv_layer_spec *spec, kv_store *store, const kv_store *from, uint64_t first,
                         uint64_t count);

/* ---- life-cycle rules (docs/lifecycle.md), functions of spec and length alone ---- */

uint64_t kv_pages_sealed(const kv_layer_spec *spec, uint64_t length);
uint64_t kv_first_live(const kv_layer_spec *spec, uint64_t length); /* number of the first live page, at most sealed */

/* How far a layer reaches: what truncation depends on. */
typedef struct kv_extent {
  const kv_layer_spec *spec;
  uint64_t length;
  uint64_t first_page;
  uint64_t sealed; /* pages, retired ones included */
} kv_extent;

int32_t kv_reach(const kv_extent *at, uint64_t n); /* KV_OK if it can be cut to n tokens, KV_E_TRUNCATE, KV_E_SPAN */
uint64_t kv_reach_step(const kv_extent *at, uint64_t n, int up); /* from a refused n to the next that may do */

kv_state kv_layer_state(const kv_cache *cache, uint32_t layer);
void kv_layer_retire(kv_cache *cache, uint32_t layer, uint64_t first); /* drops held pages before number `first` */
void kv_layer_keep_pages(kv_cache *cache, uint32_t layer, uint64_t count); /* drops pages from number `count` on */

#endif
