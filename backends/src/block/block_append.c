/* Append to a block and cut it: as in core/cache_append.c and core/cache_edit.c, but room is what the block has. */
#include "core/base/fpenv.h"
#include "core/page/encode.h"
#include "core/plan/scratch.h"
#include "block.h"

static int32_t check_room(const kv_block *block, uint64_t tokens, kv_error *error) {
  const kv_layer_spec *spec = &block->plan->spec;
  const uint64_t length = block->header.length;
  if (tokens > KV_MAX_LENGTH - length)
    return kv_fail(error, KV_E_ARGUMENT, "append: %l tokens and %l more exceed 2^32 - 1", length, tokens);
  const uint64_t first = kv_first_live(spec, length), held = block->header.first_page;
  const uint64_t live = kv_pages_sealed(spec, length + tokens) - (first > held ? first : held);
  if (live > block->page_capacity)
    return kv_fail(error, KV_E_MEMORY,
                   "block: full: %l tokens and %l more need room for %l pages, it has %u; use a larger block", length,
                   tokens, live, block->page_capacity);
  return KV_OK;
}

/* Encodes the oldest page_tokens of the residual as page `sealed`. */
static void seal(kv_block *block, void *scratch) {
  const kv_layer_spec *spec = &block->plan->spec;
  const kv_rows keys = kv_store_rows(spec, &block->residual, 0), values = kv_store_rows(spec, &block->residual, 1);
  kv_page_id id = *block->id;
  id.token_start = spec->sinks + block->sealed * spec->page_tokens;
  if (block->sealed == 0 && block->key_mean) kv_mean_valid(block->plan, &keys, block->key_mean);
  if (block->sealed == 0 && block->value_mean) kv_mean_valid(block->plan, &values, block->value_mean);
  kv_encode_valid(block->plan, &id, &keys, &values, block->key_mean, block->value_mean,
                  kv_block_page(block, block->sealed), scratch);
  block->sealed++;
  kv_store_drop_oldest(spec, &block->residual, spec->page_tokens);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Tokens that are known to be valid and to have room. */
static KV_NOINLINE void write_tokens(kv_block *block, const float *keys, const float *values, uint64_t tokens, void *scratch) {
  const kv_plan *plan = block->plan;
  const uint64_t width = (uint64_t)plan->spec.kv_heads * plan->spec.head_dim;
  uint32_t *ran = &((kv_scratch *)scratch)->ran;
  uint64_t done = least(tokens, plan->spec.sinks - block->sinks.count);
  if (done) kv_store_write(plan, &block->sinks, keys, values, done, ran);
  while (done < tokens) {
    const uint64_t part = least(tokens - done, block->residual.capacity - block->residual.count);
    kv_store_write(plan, &block->residual, keys + done * width, values + done * width, part, ran);
    block->residual.count += part;
    done += part;
    if (block->residual.count == block->residual.capacity) seal(block, scratch);
  }
}

static int32_t admit(const kv_block *block, const float *keys, const float *values, uint64_t tokens,
                     kv_error *error) {
  if (tokens == 0) return KV_OK;
  if (!keys || !values || (uintptr_t)keys % 4 || (uintptr_t)values % 4)
    return kv_fail(error, KV_E_ARGUMENT, "append: keys and values must not be NULL and must be aligned to 4 bytes");
  int32_t code = check_room(block, tokens, error);
  return code ? code : kv_check_values(&block->plan->spec, block->id->layer, keys, values, tokens, error);
}

KV_EXPORT int32_t kv_block_can_append(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                      const float *keys, const float *values, uint64_t tokens, kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code == KV_OK) code = admit(&block, keys, values, tokens, error);
  return code ? code : kv_success(error);
}

KV_EXPORT int32_t kv_block_append(const void *plan, const kv_page_id *id, void *data, uint64_t bytes, const float *keys,
                                  const float *values, uint64_t tokens, void *scratch, uint64_t scratch_bytes,
                                  kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code == KV_OK) code = admit(&block, keys, values, tokens, error);
  if (code == KV_OK) code = kv_scratch_check(plan, 1, scratch, scratch_bytes, error);
  if (code || tokens == 0) return code ? code : kv_success(error);
  const uint64_t length = block.header.length, first = kv_first_live(&block.plan->spec, length);
  const kv_fpenv saved = kv_fpenv_enter();
  write_tokens(&block, keys, values, tokens, scratch);
  kv_fpenv_leave(saved);
  if (first > block.header.first_page) block.header.first_page = (uint32_t)first;
  block.header.length = length + tokens;
  kv_block_close(&block);
  return kv_success(error);
}

static uint64_t nearest(const kv_extent *at, uint64_t n, int up) {
  while (n <= at->length && kv_reach(at, n) != KV_OK) n = kv_reach_step(at, n, up);
  return n;
}

static int32_t check_reach(const kv_block *block, uint64_t n, kv_error *error) {
  const kv_extent at = {&block->plan->spec, block->header.length, block->header.first_page, block->sealed};
  const int32_t code = kv_reach(&at, n);
  if (code == KV_OK) return KV_OK;
  const char *why = code == KV_E_SPAN ? "a page that its span retired" : "fp16 tokens that exist only as codes";
  return kv_fail(error, code, "truncate to %l: the block needs %s; nearest allowed lengths: %l, %l", n, why,
                 nearest(&at, n, 0), nearest(&at, n, 1));
}

KV_EXPORT int32_t kv_block_reaches(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                   uint64_t length, kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code == KV_OK) code = check_reach(&block, length, error);
  return code ? code : kv_success(error);
}

KV_EXPORT int32_t kv_block_truncate(const void *plan, const kv_page_id *id, void *data, uint64_t bytes, uint64_t length,
                                    kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code) return code;
  if (length > block.header.length)
    return kv_fail(error, KV_E_STATE, "truncate to %l: the block holds only %l tokens", length, block.header.length);
  if (length == block.header.length) return kv_success(error);
  code = check_reach(&block, length, error);
  if (code) return code;
  const uint64_t sealed = kv_pages_sealed(&block.plan->spec, length);
  if (block.header.first_page > sealed) block.header.first_page = (uint32_t)sealed;
  block.header.length = length;
  kv_block_close(&block);
  return kv_success(error);
}
