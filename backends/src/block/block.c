/* The layout of a block, and the checks that make it safe to read. */
#include "block.h"

#include <stddef.h>

#include "core/base/bits.h"
#include "core/base/crc32.h"
#include "core/plan/fields.h"

/* Everything before the pages; offsets only, with data NULL. */
static uint64_t place(const kv_plan *plan, uint8_t *data, kv_block *block) {
  const kv_layer_spec *spec = &plan->spec;
  const uint64_t mean = (uint64_t)2 * spec->kv_heads * spec->head_dim;
  uint64_t key = KV_BLOCK_HEADER, value, sinks, residual;
  value = kv_align_up(key + (spec->key_centre == KV_CENTRE_FROZEN ? mean : 0), 64);
  sinks = kv_align_up(value + (spec->value_centre == KV_CENTRE_FROZEN ? mean : 0), 64);
  residual = kv_align_up(kv_add(sinks, kv_store_bytes(spec, spec->sinks)), 64);
  const uint64_t capacity = (uint64_t)spec->window + spec->page_tokens;
  const uint64_t pages = kv_align_up(kv_add(residual, kv_store_bytes(spec, capacity)), 64);
  block->plan = plan;
  block->page_stride = kv_align_up(plan->layout.bytes, 64);
  if (!data) return pages;
  block->data = data;
  block->key_mean = spec->key_centre == KV_CENTRE_FROZEN ? (uint16_t *)(data + key) : 0;
  block->value_mean = spec->value_centre == KV_CENTRE_FROZEN ? (uint16_t *)(data + value) : 0;
  block->sinks = (kv_store){(uint16_t *)(data + sinks), spec->sinks, 0};
  block->residual = (kv_store){(uint16_t *)(data + residual), capacity, 0};
  block->pages = data + pages;
  return pages;
}

KV_EXPORT int32_t kv_block_bytes(const void *plan, uint64_t tokens, uint64_t *bytes, kv_error *error) {
  kv_block block = {0};
  int32_t code = kv_plan_check(plan, error);
  if (code) return code;
  if (!bytes) return kv_fail(error, KV_E_ARGUMENT, "kv_block_bytes: bytes is NULL; pass where to put the size");
  if (tokens > KV_MAX_LENGTH)
    return kv_fail(error, KV_E_ARGUMENT, "block: %l tokens are more than 2^32 - 1", tokens);
  const uint64_t front = place(plan, 0, &block);
  const uint64_t pages = kv_pages_sealed(&block.plan->spec, tokens);
  const uint64_t total = kv_add(front, kv_mul(pages, block.page_stride));
  if (total > PTRDIFF_MAX) return kv_fail(error, KV_E_ARGUMENT, "block: %l tokens do not fit this machine", tokens);
  *bytes = total;
  return kv_success(error);
}

KV_EXPORT uint64_t kv_block_scratch_bytes(const void *plan, uint64_t block_bytes, uint32_t threads) {
  kv_block block = {0};
  if (kv_plan_check(plan, 0)) return 0;
  const uint64_t front = place(plan, 0, &block);
  const uint64_t pages = block_bytes > front ? (block_bytes - front) / block.page_stride : 0;
  return kv_align_up(kv_add(kv_plan_scratch_bytes(plan, threads), kv_index_bytes(pages)), 64);
}

static uint32_t header_crc(const kv_block_header *header) {
  return kv_crc32_without(header, sizeof *header, offsetof(kv_block_header, crc));
}

static int32_t check_identity(const kv_block_header *have, const kv_block_header *want, kv_error *error) {
  const char *field = have->layer != want->layer           ? "layer"
                      : have->model != want->model         ? "model"
                      : have->tokenizer != want->tokenizer ? "tokenizer"
                      : have->runtime != want->runtime     ? "runtime"
                                                           : 0;
  if (!field) return KV_OK;
  return kv_fail(error, KV_E_IDENTITY, "block: its %s is another cache's; start from a block of zeros", field);
}

static const char *spec_difference(const kv_layer_spec *a, const kv_layer_spec *b) {
#define DIFFERS(field, name) \
  if (__builtin_memcmp(&a->field, &b->field, sizeof a->field)) return #field;
#define NUMBER_DIFFERS(field, name, least, most, fallback) DIFFERS(field, name)
  KV_EACH_SPEC_FIELD(NUMBER_DIFFERS, DIFFERS)
#undef NUMBER_DIFFERS
#undef DIFFERS
  return a->reserved != b->reserved ? "reserved" : 0;
}

static kv_block_header fresh(const kv_block *block, uint64_t bytes) {
  return (kv_block_header){.magic = KV_BLOCK_MAGIC,
                           .version = KV_BLOCK_VERSION,
                           .bytes = bytes,
                           .spec = block->plan->spec,
                           .model = block->id->model,
                           .tokenizer = block->id->tokenizer,
                           .runtime = block->id->runtime,
                           .layer = block->id->layer};
}

/* A header that says of itself what this call expects, and counts that its bytes have room for. */
static int32_t check_header(const kv_block *block, uint64_t bytes, kv_error *error) {
  const kv_block_header *have = &block->header, want = fresh(block, bytes);
  if (have->magic != KV_BLOCK_MAGIC)
    return kv_fail(error, KV_E_PAGE, "block: it begins with 0x%x, neither zeros nor a block; start from zeros",
                   (uint64_t)have->magic);
  if (have->version != KV_BLOCK_VERSION)
    return kv_fail(error, KV_E_PAGE, "block: version %u, this library knows %u", have->version, KV_BLOCK_VERSION);
  if (have->crc != header_crc(have)) return kv_fail(error, KV_E_PAGE, "block: its header is damaged");
  const char *field = spec_difference(&have->spec, &want.spec);
  if (field) return kv_fail(error, KV_E_IDENTITY, "block: its %s is another spec's; start from a block of zeros", field);
  int32_t code = check_identity(have, &want, error);
  if (code) return code;
  if (have->bytes != bytes)
    return kv_fail(error, KV_E_PAGE, "block: made for %l bytes, given %l", have->bytes, bytes);
  const uint64_t sealed = kv_pages_sealed(&have->spec, have->length);
  if (have->length > KV_MAX_LENGTH || have->first_page > sealed || sealed - have->first_page > block->page_capacity)
    return kv_fail(error, KV_E_PAGE, "block: %l tokens with pages from %u on do not fit it", have->length,
                   have->first_page);
  return KV_OK;
}

static int empty(const kv_block_header *header) {
  const uint8_t *byte = (const uint8_t *)header;
  for (uint32_t i = 0; i < sizeof *header; i++)
    if (byte[i]) return 0;
  return 1;
}

void kv_block_set_length(kv_block *block, uint64_t length) {
  const kv_layer_spec *spec = &block->plan->spec;
  block->header.length = length;
  block->sealed = (uint32_t)kv_pages_sealed(spec, length);
  block->sinks.count = length < spec->sinks ? length : spec->sinks;
  block->residual.count = length - block->sinks.count - (uint64_t)block->sealed * spec->page_tokens;
}

int32_t kv_block_open(const void *plan, const kv_page_id *id, const void *data, uint64_t bytes, kv_block *block,
                      kv_error *error) {
  *block = (kv_block){.id = id};
  int32_t code = kv_plan_check(plan, error);
  if (code) return code;
  if (!id) return kv_fail(error, KV_E_ARGUMENT, "block: id is NULL");
  if (!data || (uintptr_t)data % 16)
    return kv_fail(error, KV_E_ARGUMENT, "block: it must not be NULL and must be aligned to 16 bytes");
  const uint64_t front = place(plan, (uint8_t *)data, block); /* written through by the functions that may */
  if (bytes < front)
    return kv_fail(error, KV_E_MEMORY, "block: %l bytes, the smallest for this spec has %l", bytes, front);
  const uint64_t pages = (bytes - front) / block->page_stride;
  block->page_capacity = pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
  kv_copy(&block->header, data, sizeof block->header);
  if (empty(&block->header)) block->header = fresh(block, bytes);
  else code = check_header(block, bytes, error);
  if (code) return code;
  kv_block_set_length(block, block->header.length);
  return KV_OK;
}

void kv_block_close(kv_block *block) {
  block->header.crc = header_crc(&block->header);
  kv_copy(block->data, &block->header, sizeof block->header);
}

uint8_t *kv_block_page(const kv_block *block, uint64_t number) {
  return block->pages + number % block->page_capacity * block->page_stride;
}

kv_state kv_block_view(const kv_block *block, const void **pages) {
  const kv_layer_spec *spec = &block->plan->spec;
  const uint32_t first = block->header.first_page, count = block->sealed - first;
  for (uint32_t i = 0; i < count; i++) pages[i] = kv_block_page(block, (uint64_t)first + i);
  return (kv_state){
      .length = block->header.length,
      .pages = pages,
      .first_page = first,
      .page_count = count,
      .sink_keys = kv_store_rows(spec, &block->sinks, 0),
      .sink_values = kv_store_rows(spec, &block->sinks, 1),
      .residual_keys = kv_store_rows(spec, &block->residual, 0),
      .residual_values = kv_store_rows(spec, &block->residual, 1),
      .key_mean = block->sealed ? block->key_mean : 0,
      .value_mean = block->sealed ? block->value_mean : 0,
  };
}
