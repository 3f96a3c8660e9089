/* Calls that read a block, and the one that fills it from another state. */
#include "core/base/bits.h"
#include "core/plan/scratch.h"
#include "block.h"

/* The caller's scratch ends with the pointers to the pages. */
static int32_t split(const kv_block *block, void *scratch, uint64_t scratch_bytes, uint32_t threads,
                     const void ***pages, uint64_t *kernels, kv_error *error) {
  const uint64_t needed = kv_plan_scratch_bytes(block->plan, threads);
  const uint64_t total = kv_align_up(kv_add(needed, kv_index_bytes(block->page_capacity)), 64);
  if (!scratch || scratch_bytes < total)
    return kv_fail(error, KV_E_MEMORY, "block: scratch has %l bytes and needs %l; ask kv_block_scratch_bytes",
                   scratch_bytes, total);
  *kernels = needed;
  *pages = (const void **)((uint8_t *)scratch + needed);
  return KV_OK;
}

KV_EXPORT int32_t kv_block_attend(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                  const float *q, uint32_t n, float *out, void *scratch, uint64_t scratch_bytes,
                                  const kv_parallel *parallel, kv_error *error) {
  kv_block block;
  const void **pages;
  uint64_t kernels;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code == KV_OK)
    code = split(&block, scratch, scratch_bytes, parallel ? parallel->threads : 1, &pages, &kernels, error);
  if (code) return code;
  const kv_state state = kv_block_view(&block, pages);
  return kv_attend(plan, &state, q, n, out, scratch, kernels, parallel, error);
}

KV_EXPORT int32_t kv_block_scores(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                  const float *q, float *out, uint64_t out_floats, void *scratch,
                                  uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error) {
  kv_block block;
  const void **pages;
  uint64_t kernels;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code == KV_OK)
    code = split(&block, scratch, scratch_bytes, parallel ? parallel->threads : 1, &pages, &kernels, error);
  if (code) return code;
  const kv_state state = kv_block_view(&block, pages);
  return kv_scores(plan, &state, q, out, out_floats, scratch, kernels, parallel, error);
}

KV_EXPORT int32_t kv_block_length(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                  uint64_t *length, kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code) return code;
  if (!length) return kv_fail(error, KV_E_ARGUMENT, "block: nowhere to put the length");
  *length = block.header.length;
  return kv_success(error);
}

KV_EXPORT int32_t kv_block_state(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                 const void **pages, uint32_t page_room, kv_state *state, kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code) return code;
  const uint32_t live = block.sealed - block.header.first_page;
  if (!state || (live && !pages) || live > page_room)
    return kv_fail(error, KV_E_ARGUMENT, "block: %u live pages, room for %u pointers, or nowhere to put the state", live,
                   page_room);
  *state = kv_block_view(&block, pages);
  return kv_success(error);
}

/* ---- check ---- */

static int32_t check_halves(const char *what, const uint16_t *data, uint64_t count, kv_error *error) {
  for (uint64_t i = 0; i < count; i++)
    if (!kv_f16_finite(data[i]))
      return kv_fail(error, KV_E_PAGE, "block: value %l of its %s is not finite", i, what);
  return KV_OK;
}

static int32_t check_rows(const kv_layer_spec *spec, const char *what, const kv_rows *rows, uint64_t tokens,
                          kv_error *error) {
  int32_t code = KV_OK;
  for (uint64_t token = 0; code == KV_OK && token < tokens; token++)
    for (uint32_t head = 0; code == KV_OK && head < spec->kv_heads; head++)
      code = check_halves(what, rows->data + token * rows->token_stride + head * rows->head_stride, spec->head_dim, error);
  return code;
}

static int32_t check_pages(const void *plan, const kv_page_id *base, const kv_state *state, kv_error *error) {
  const kv_layer_spec *spec = &((const kv_plan *)plan)->spec;
  kv_page_id id = *base;
  for (uint32_t i = 0; i < state->page_count; i++) {
    id.token_start = spec->sinks + (state->first_page + i) * spec->page_tokens;
    int32_t code = kv_page_check(plan, &id, state->pages[i], kv_plan_page_bytes(plan), error);
    if (code) return code;
  }
  return KV_OK;
}

/* Values and pages of a state whose counts and pointers are right. */
static int32_t check_state(const void *plan, const kv_page_id *id, const kv_state *state, uint64_t sinks,
                           uint64_t residual, kv_error *error) {
  const kv_layer_spec *spec = &((const kv_plan *)plan)->spec;
  const uint64_t mean = (uint64_t)spec->kv_heads * spec->head_dim;
  int32_t code = check_rows(spec, "sink keys", &state->sink_keys, sinks, error);
  if (code == KV_OK) code = check_rows(spec, "sink values", &state->sink_values, sinks, error);
  if (code == KV_OK) code = check_rows(spec, "residual keys", &state->residual_keys, residual, error);
  if (code == KV_OK) code = check_rows(spec, "residual values", &state->residual_values, residual, error);
  if (code == KV_OK && state->key_mean) code = check_halves("key mean", state->key_mean, mean, error);
  if (code == KV_OK && state->value_mean) code = check_halves("value mean", state->value_mean, mean, error);
  return code ? code : check_pages(plan, id, state, error);
}

KV_EXPORT int32_t kv_block_check(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes,
                                 kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code) return code;
  const void *page;
  const uint32_t first = block.header.first_page, live = block.sealed - first;
  block.sealed = first; /* a view without pages: they are checked one by one, with no memory for all pointers */
  kv_state state = kv_block_view(&block, &page);
  code = check_state(plan, id, &state, block.sinks.count, block.residual.count, error);
  for (uint32_t i = 0; code == KV_OK && i < live; i++) {
    page = kv_block_page(&block, (uint64_t)first + i);
    state.pages = &page, state.first_page = first + i, state.page_count = 1;
    code = check_pages(plan, id, &state, error);
  }
  return code ? code : kv_success(error);
}

/* ---- load ---- */

static void copy_rows(const kv_layer_spec *spec, kv_store *to, const kv_rows *keys, const kv_rows *values,
                      uint64_t tokens) {
  const kv_rows out[2] = {kv_store_rows(spec, to, 0), kv_store_rows(spec, to, 1)};
  const kv_rows *in[2] = {keys, values};
  for (uint32_t stream = 0; stream < 2; stream++)
    for (uint32_t head = 0; head < spec->kv_heads; head++)
      for (uint64_t token = 0; token < tokens; token++)
        kv_copy((uint16_t *)out[stream].data + token * out[stream].token_stride + head * out[stream].head_stride,
                in[stream]->data + token * in[stream]->token_stride + head * in[stream]->head_stride,
                spec->head_dim * sizeof(uint16_t));
}

static void copy_mean(const kv_layer_spec *spec, uint16_t *to, const uint16_t *from) {
  if (to && from) kv_copy(to, from, (uint64_t)spec->kv_heads * spec->head_dim * sizeof *to);
}

static int32_t check_counts(const kv_block *block, const kv_state *state, kv_error *error) {
  const kv_layer_spec *spec = &block->plan->spec;
  const uint64_t sealed = kv_pages_sealed(spec, state->length);
  if (block->header.length) return kv_fail(error, KV_E_STATE, "block: it holds tokens; load into a block of zeros");
  if (state->length > KV_MAX_LENGTH || state->first_page + (uint64_t)state->page_count != sealed)
    return kv_fail(error, KV_E_ARGUMENT, "state: %l tokens seal %l pages, it has pages %u to %l", state->length, sealed,
                   state->first_page, state->first_page + (uint64_t)state->page_count);
  if (state->page_count > block->page_capacity)
    return kv_fail(error, KV_E_MEMORY, "block: room for %u pages, the state has %u", block->page_capacity,
                   state->page_count);
  if (sealed && ((block->key_mean && !state->key_mean) || (block->value_mean && !state->value_mean)))
    return kv_fail(error, KV_E_ARGUMENT, "state: a frozen mean of its spec is NULL");
  return KV_OK;
}

KV_EXPORT int32_t kv_block_load(const void *plan, const kv_page_id *id, void *data, uint64_t bytes,
                                const kv_state *state, kv_error *error) {
  kv_block block;
  int32_t code = kv_block_open(plan, id, data, bytes, &block, error);
  if (code) return code;
  if (!state) return kv_fail(error, KV_E_ARGUMENT, "block: state is NULL");
  code = check_counts(&block, state, error);
  if (code) return code;
  const kv_layer_spec *spec = &block.plan->spec;
  kv_block_set_length(&block, state->length);
  code = check_state(plan, id, state, block.sinks.count, block.residual.count, error);
  if (code) return code;
  block.header.first_page = state->first_page;
  copy_mean(spec, block.key_mean, state->key_mean);
  copy_mean(spec, block.value_mean, state->value_mean);
  copy_rows(spec, &block.sinks, &state->sink_keys, &state->sink_values, block.sinks.count);
  copy_rows(spec, &block.residual, &state->residual_keys, &state->residual_values, block.residual.count);
  for (uint32_t i = 0; i < state->page_count; i++)
    kv_copy(kv_block_page(&block, (uint64_t)state->first_page + i), state->pages[i], block.plan->layout.bytes);
  kv_block_close(&block);
  return kv_success(error);
}
