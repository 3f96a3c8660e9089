/* Where things lie in a block, private to this folder.
 *
 *   header | key mean | value mean | sinks | residual | pages
 *
 * Parts begin at multiples of 64. Token stores are [2][kv_heads][capacity][head_dim] like those of a cache. Page
 * `number` is in place number % page_capacity. */
#ifndef KVASSAY_BLOCK_BLOCK_H
#define KVASSAY_BLOCK_BLOCK_H

#include "kvassay_block.h"
#include "core/cache/cache.h"
#include "core/plan/plan.h"

#define KV_BLOCK_MAGIC 0x4b42564bu /* "KVBK" */
#define KV_BLOCK_HEADER 128u

/* The first bytes of a block; all zero in an empty one. */
typedef struct kv_block_header {
  uint32_t magic;
  uint32_t version;
  uint64_t bytes;
  kv_layer_spec spec;
  uint64_t model, tokenizer, runtime;
  uint64_t length;
  uint32_t layer;
  uint32_t first_page;
  uint32_t crc; /* of the other fields */
  uint32_t reserved[7];
} kv_block_header;

_Static_assert(sizeof(kv_block_header) == KV_BLOCK_HEADER, "the struct is the header: little endian, no padding");

/* A block whose header has been checked. */
typedef struct kv_block {
  const kv_plan *plan;
  const kv_page_id *id;
  uint8_t *data;
  kv_block_header header;
  kv_store sinks, residual;
  uint16_t *key_mean, *value_mean; /* NULL if the spec has none */
  uint8_t *pages;
  uint64_t page_stride;
  uint32_t page_capacity;
  uint32_t sealed; /* pages sealed so far, retired ones included */
} kv_block;

int32_t kv_block_open(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes, kv_block *block,
                      kv_error *error);
/* Writes the header back: the last step of every change. */
void kv_block_close(kv_block *block);
uint8_t *kv_block_page(const kv_block *block, uint64_t number);
/* `pages` has room for the live pages. */
kv_state kv_block_view(const kv_block *block, const void **pages);
/* Length, and the counts of the stores that follow from it. */
void kv_block_set_length(kv_block *block, uint64_t length);

#endif
