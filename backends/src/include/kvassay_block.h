/* kvassay_block.h: one layer of one sequence in one block of the caller's bytes.
 *
 * For runtimes that hold their state as plain tensors or files. A block has no pointers: it may be moved, copied or
 * mapped; bytes that are all zero are an empty cache. What it holds, and when pages are sealed and retired, is what
 * docs/lifecycle.md says of any cache, bit for bit. Working memory and threads are the caller's, as in kvassay.h.
 *
 * A block is checked as foreign bytes by every call as far as memory safety needs; kv_block_check reads all of it.
 * Nothing is changed by a call that fails.
 */
#ifndef KVASSAY_BLOCK_H
#define KVASSAY_BLOCK_H

#include "kvassay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BEGIN declarations */

#define KV_BLOCK_VERSION 1

/* Bytes of a block with room for `tokens` tokens, a multiple of 64. With a span, room is that of the tokens held at
 * once: span, window, one page and the largest single append. Blocks are aligned to 16 bytes. */
int32_t kv_block_bytes(const void *plan, uint64_t tokens, uint64_t *bytes, kv_error *error);
/* For any call below with this block; aligned to 64 and initialised by kv_scratch_init. */
uint64_t kv_block_scratch_bytes(const void *plan, uint64_t block_bytes, uint32_t threads);

/* Everything: the header, every fp16 value, every live page. */
int32_t kv_block_check(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, kv_error *error);
int32_t kv_block_length(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, uint64_t *length,
                        kv_error *error);
/* keys and values [tokens][kv_heads][head_dim]. KV_E_MEMORY if the block has no room for them. */
int32_t kv_block_append(const void *plan, const kv_page_id *id, void *block, uint64_t bytes, const float *keys,
                        const float *values, uint64_t tokens, void *scratch, uint64_t scratch_bytes, kv_error *error);
/* What kv_block_append would refuse, without writing. */
int32_t kv_block_can_append(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, const float *keys,
                            const float *values, uint64_t tokens, kv_error *error);
int32_t kv_block_attend(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, const float *q,
                        uint32_t n, float *out, void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel,
                        kv_error *error);
int32_t kv_block_scores(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, const float *q,
                        float *out, uint64_t out_floats, void *scratch, uint64_t scratch_bytes,
                        const kv_parallel *parallel, kv_error *error);
/* Whether truncation to `length` is possible: KV_OK, or KV_E_TRUNCATE or KV_E_SPAN with the nearest lengths that are. */
int32_t kv_block_reaches(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, uint64_t length,
                         kv_error *error);
int32_t kv_block_truncate(const void *plan, const kv_page_id *id, void *block, uint64_t bytes, uint64_t length,
                          kv_error *error);
/* The state in place. `pages` has room for `page_room` pointers and is what state->pages points to. */
int32_t kv_block_state(const void *plan, const kv_page_id *id, const void *block, uint64_t bytes, const void **pages,
                       uint32_t page_room, kv_state *state, kv_error *error);
/* Into an empty block: a state from elsewhere, as a dump holds it, every page and value checked. */
int32_t kv_block_load(const void *plan, const kv_page_id *id, void *block, uint64_t bytes, const kv_state *state,
                      kv_error *error);

/* END declarations */

#ifdef __cplusplus
}
#endif
#endif
