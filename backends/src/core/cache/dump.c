/* Writing a dump. */
#include "dump.h"

#include <stddef.h>
#include <string.h>

#include "core/base/bits.h"
#include "core/base/crc32.h"

kv_section kv_section_at(const kv_layer_spec *spec, uint64_t page_bytes, uint64_t length, uint64_t after) {
  uint64_t width = (uint64_t)spec->kv_heads * spec->head_dim * sizeof(uint16_t);
  uint64_t sealed = kv_pages_sealed(spec, length), tokens;
  kv_section at = {.start = kv_align_up(after, 64), .page_bytes = page_bytes};
  if (sealed > 0 && spec->key_centre == KV_CENTRE_FROZEN) at.key_mean_bytes = width;
  if (sealed > 0 && spec->value_centre == KV_CENTRE_FROZEN) at.value_mean_bytes = width;
  at.sinks = length < spec->sinks ? length : spec->sinks;
  at.residual = length - at.sinks - sealed * spec->page_tokens;
  at.sink_bytes = kv_mul(at.sinks, width);
  at.residual_bytes = kv_mul(at.residual, width);
  at.first_page = kv_first_live(spec, length);
  at.page_count = sealed - at.first_page;
  tokens = kv_mul(2, kv_add(at.sink_bytes, at.residual_bytes));
  at.pages = kv_align_up(kv_add(kv_add(at.start, at.key_mean_bytes + at.value_mean_bytes), tokens), 64);
  at.end = kv_add(at.pages, kv_mul(at.page_count, page_bytes));
  return at;
}

uint64_t kv_dump_records(uint64_t identity_bytes) { return kv_add(KV_DUMP_HEADER, kv_align_up(identity_bytes, 16)); }

/* A record begins with the spec as it is: little endian, without padding, `reserved` 0. */
#define KV_SPEC_BYTES 40u
_Static_assert(sizeof(kv_layer_spec) == KV_SPEC_BYTES && offsetof(kv_layer_spec, key_mode) == 8 &&
                   offsetof(kv_layer_spec, window) == 16 && offsetof(kv_layer_spec, seed) == 32,
               "docs/page-format.md, \"Dump\"");

void kv_dump_write_record(const kv_layer_spec *spec, uint64_t length, const kv_section *section, uint8_t *record) {
  memcpy(record, spec, KV_SPEC_BYTES);
  kv_store64(record + 40, length);
  kv_store32(record + 48, (uint32_t)section->first_page);
  kv_store32(record + 52, (uint32_t)section->page_count);
  kv_store64(record + 56, section->start);
}

static kv_section section_of(const kv_cache *cache, uint32_t layer, uint64_t after) {
  const kv_shared *shared = cache->shared;
  uint64_t page_bytes = kv_plan_page_bytes(shared->plans[layer]);
  return kv_section_at(&shared->specs[layer], page_bytes, cache->layers[layer].length, after);
}

static uint64_t records_end(const kv_shared *shared) {
  return kv_dump_records(shared->identity_bytes) + (uint64_t)shared->layers * KV_DUMP_RECORD;
}

KV_EXPORT int32_t kv_cache_dump_bytes(const kv_cache *cache, uint64_t *bytes, kv_error *error) {
  int32_t code = kv_usable(cache, error);
  uint64_t end;
  if (code != KV_OK) return code;
  if (bytes == NULL) return kv_fail(error, KV_E_ARGUMENT, "dump: nowhere to put the size");
  end = records_end(cache->shared);
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) end = section_of(cache, layer, end).end;
  *bytes = kv_align_up(end, 64);
  return kv_success(error);
}

static uint8_t *write_stream(const kv_layer_spec *spec, const kv_store *store, int values, uint8_t *to) {
  kv_rows rows = kv_store_rows(spec, store, values);
  size_t bytes = (size_t)store->count * spec->head_dim * sizeof(uint16_t);
  for (uint32_t head = 0; head < spec->kv_heads && bytes != 0; head++, to += bytes)
    memcpy(to, rows.data + head * rows.head_stride, bytes);
  return to;
}

static void write_section(const kv_cache *cache, uint32_t layer, const kv_section *section, uint8_t *file) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  const kv_layer *at = &cache->layers[layer];
  uint8_t *to = file + section->start;
  if (section->key_mean_bytes != 0) memcpy(to, at->key_mean, section->key_mean_bytes);
  to += section->key_mean_bytes;
  if (section->value_mean_bytes != 0) memcpy(to, at->value_mean, section->value_mean_bytes);
  to += section->value_mean_bytes;
  to = write_stream(spec, &at->sinks, 0, to);
  to = write_stream(spec, &at->sinks, 1, to);
  to = write_stream(spec, &at->residual, 0, to);
  to = write_stream(spec, &at->residual, 1, to);
  memset(to, 0, (size_t)(file + section->pages - to));
  for (uint64_t i = 0; i < section->page_count; i++)
    memcpy(file + section->pages + i * section->page_bytes, at->pages[section->first_page - at->first_page + i],
           section->page_bytes);
}

static void write_front(const kv_shared *shared, uint64_t total, uint8_t *file) {
  memset(file, 0, (size_t)kv_dump_records(shared->identity_bytes));
  memcpy(file, "KVDM", 4);
  kv_store16(file + 4, KV_DUMP_VERSION);
  kv_store64(file + 8, total);
  kv_store32(file + 20, shared->layers);
  kv_store32(file + 24, (uint32_t)shared->identity_bytes);
  if (shared->identity_bytes != 0) memcpy(file + KV_DUMP_HEADER, shared->identity, shared->identity_bytes);
}

KV_EXPORT int32_t kv_cache_dump(const kv_cache *cache, void *buffer, uint64_t bytes, kv_error *error) {
  uint64_t total = 0, end;
  uint8_t *file = buffer, *record;
  int32_t code = kv_cache_dump_bytes(cache, &total, error);
  if (code != KV_OK) return code;
  if (buffer == NULL) return kv_fail(error, KV_E_ARGUMENT, "dump: buffer is NULL");
  if (bytes < total) return kv_fail(error, KV_E_MEMORY, "dump: needs %l bytes, the buffer has %l", total, bytes);
  write_front(cache->shared, total, file);
  record = file + kv_dump_records(cache->shared->identity_bytes);
  end = records_end(cache->shared);
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++, record += KV_DUMP_RECORD) {
    kv_section section = section_of(cache, layer, end);
    memset(file + end, 0, (size_t)(section.start - end));
    kv_dump_write_record(&cache->shared->specs[layer], cache->layers[layer].length, &section, record);
    write_section(cache, layer, &section, file);
    end = section.end;
  }
  memset(file + end, 0, (size_t)(total - end));
  kv_store32(file + KV_DUMP_CRC, kv_crc32(0, file, total)); /* the field itself is still 0 */
  return kv_success(error);
}
