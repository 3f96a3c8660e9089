/* A spec and fp16 tokens made of any bits: the spec is refused, or tokens are encoded into a page that the library
 * itself accepts and nothing beyond it is written. Tokens that are not finite are what the cache refuses at append. */
#include "support.h"

#define FENCE 64

static kv_layer_spec any_spec(reader *in) {
  kv_layer_spec spec;
  uint8_t *raw = take_block(in, sizeof spec);
  memcpy(&spec, raw, sizeof spec);
  free(raw);
  /* Most specs are wrong in everything; these few bits lead to right ones, and keep them small. */
  if (take(in, 1) & 1) {
    kv_layer_spec near = spec_number((uint32_t)take(in, 1));
    near.key_mode = spec.key_mode % 64;
    near.value_mode = spec.value_mode % 64;
    near.key_centre = spec.key_centre % 3;
    near.value_centre = spec.value_centre % 2;
    near.scale_kind = spec.scale_kind % 3;
    near.rounds = (uint8_t)(1 + spec.rounds % 2);
    near.seed = spec.seed;
    near.head_dim = (uint16_t)(16 * (1 + spec.head_dim % 8));
    spec = near;
  }
  return spec;
}

static uint16_t *rows_of(reader *in, size_t count) {
  uint16_t *rows = take_block(in, 2 * count);
  for (size_t i = 0; i < count; i++)
    if ((rows[i] & 0x7c00) == 0x7c00) rows[i] &= 0xbfff;
  return rows;
}

static void encode(const kernel *with, reader *in) {
  const kv_layer_spec *spec = &with->spec;
  size_t width = (size_t)spec->kv_heads * spec->head_dim, count = width * spec->page_tokens;
  uint16_t *keys = rows_of(in, count), *values = rows_of(in, count);
  uint16_t *key_mean = calloc(width, 2), *value_mean = calloc(width, 2);
  uint8_t *page = aligned(with->page_bytes + FENCE);
  kv_rows key_rows = {keys, width, spec->head_dim}, value_rows = {values, width, spec->head_dim};
  kv_page_id id = {1, 2, 3, spec->sinks, 4};
  kv_error error;
  memset(page, 0xA5, (size_t)with->page_bytes + FENCE);
  CHECK(kv_page_mean(with->plan, &key_rows, key_mean, &error) == KV_OK);
  CHECK(kv_page_mean(with->plan, &value_rows, value_mean, &error) == KV_OK);
  CHECK(kv_page_encode(with->plan, &id, &key_rows, &value_rows, key_mean, value_mean, page, with->page_bytes,
                       with->scratch, with->scratch_bytes, &error) == KV_OK);
  CHECK(kv_page_check(with->plan, &id, page, with->page_bytes, &error) == KV_OK);
  for (int i = 0; i < FENCE; i++) CHECK(page[with->page_bytes + i] == 0xA5);
  free(keys);
  free(values);
  free(key_mean);
  free(value_mean);
  free(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  reader in = {data, size};
  kv_layer_spec spec = any_spec(&in);
  kv_error error;
  kernel with;
  if (kv_supports(&spec, &error) != KV_OK) {
    CHECK(error.code == KV_E_SPEC || error.code == KV_E_ARGUMENT);
    return 0;
  }
  if ((uint64_t)spec.kv_heads * spec.head_dim * spec.page_tokens > 1 << 16 || spec.query_heads > 256) return 0;
  with = make_kernel(&spec, size % 2 ? "scalar" : NULL);
  encode(&with, &in);
  free_kernel(&with);
  return 0;
}
