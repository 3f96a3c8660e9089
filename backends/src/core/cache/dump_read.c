/* Reading a dump. The bytes may be anything: nothing is read before it is known to be there, and nothing is allocated
 * before the size of the file has been checked against what the layer records imply. */
#include <string.h>

#include "core/base/bits.h"
#include "core/base/crc32.h"
#include "core/plan/fields.h"
#include "dump.h"

/* ---- the front: header, identity, layer records ---- */

static int32_t check_header(const uint8_t *file, uint64_t bytes, kv_error *error) {
  uint32_t crc;
  if (bytes < KV_DUMP_HEADER || kv_load64(file + 8) != bytes || bytes % 64 != 0)
    return kv_fail(error, KV_E_PAGE, "dump size: %l bytes given, the header says %l", bytes,
                   bytes < KV_DUMP_HEADER ? (uint64_t)0 : kv_load64(file + 8));
  if (memcmp(file, "KVDM", 4) != 0) return kv_fail(error, KV_E_PAGE, "dump magic: this is not a kvassay dump");
  if (kv_load16(file + 4) != KV_DUMP_VERSION)
    return kv_fail(error, KV_E_PAGE, "dump version: found %u, this library reads %u", (uint32_t)kv_load16(file + 4),
                   (uint32_t)KV_DUMP_VERSION);
  if (kv_load16(file + 6) != 0 || kv_load32(file + 28) != 0)
    return kv_fail(error, KV_E_PAGE, "dump header: reserved fields are not 0");
  crc = kv_crc32_without(file, bytes, KV_DUMP_CRC);
  if (crc != kv_load32(file + KV_DUMP_CRC))
    return kv_fail(error, KV_E_PAGE, "dump CRC: the file is damaged (%x computed, %x stored)", (uint64_t)crc,
                   (uint64_t)kv_load32(file + KV_DUMP_CRC));
  return KV_OK;
}

static int32_t check_zero(const uint8_t *file, uint64_t from, uint64_t to, const char *where, kv_error *error) {
  for (uint64_t i = from; i < to; i++)
    if (file[i] != 0) return kv_fail(error, KV_E_PAGE, "dump: byte %l, a gap %s, is not 0", i, where);
  return KV_OK;
}

/* What the identity text and the number of layers must be. */
typedef struct owner {
  const uint8_t *identity;
  uint64_t identity_bytes;
  uint32_t layers;
} owner;

static int32_t check_identity(const owner *expected, const uint8_t *file, uint64_t bytes, kv_error *error) {
  const uint8_t *text = file + KV_DUMP_HEADER;
  uint64_t layers = kv_load32(file + 20), size = kv_load32(file + 24), same = 0;
  uint64_t records = kv_dump_records(size);
  if (records > bytes || layers > (bytes - records) / KV_DUMP_RECORD)
    return kv_fail(error, KV_E_PAGE, "dump: %l bytes cannot hold %l of identity text and %l layers", bytes, size,
                   layers);
  while (same < size && same < expected->identity_bytes && text[same] == expected->identity[same]) same++;
  if (same != size || same != expected->identity_bytes)
    return kv_fail(error, KV_E_IDENTITY, "identity text: differs at byte %l", same);
  if (layers != expected->layers)
    return kv_fail(error, KV_E_PAGE, "dump: %l layers, but its identity text has %u", layers, expected->layers);
  return check_zero(file, KV_DUMP_HEADER + size, records, "after the identity text", error);
}

static const kv_spec_field RECORD_FIELDS[] = KV_SPEC_FIELDS;

static int32_t check_record(const uint8_t *found, const uint8_t *expected, uint32_t layer, kv_error *error) {
  for (size_t i = 0; i < sizeof RECORD_FIELDS / sizeof *RECORD_FIELDS; i++) {
    uint64_t dumped = 0, wanted = 0;
    if (memcmp(found + RECORD_FIELDS[i].offset, expected + RECORD_FIELDS[i].offset, RECORD_FIELDS[i].bytes) == 0)
      continue;
    memcpy(&dumped, found + RECORD_FIELDS[i].offset, RECORD_FIELDS[i].bytes);
    memcpy(&wanted, expected + RECORD_FIELDS[i].offset, RECORD_FIELDS[i].bytes);
    return kv_fail(error, KV_E_IDENTITY, "%s: %l in layer %u of the dump, %l in the spec (as stored)",
                   RECORD_FIELDS[i].name, dumped, layer, wanted);
  }
  if (memcmp(found, expected, KV_DUMP_RECORD) != 0)
    return kv_fail(error, KV_E_PAGE, "dump: the record of layer %u contradicts its own length", layer);
  return KV_OK;
}

static uint64_t record_length(const uint8_t *file, uint32_t layer) {
  const uint8_t *record = file + kv_dump_records(kv_load32(file + 24)) + (uint64_t)layer * KV_DUMP_RECORD;
  return kv_load64(record + 40);
}

static uint64_t sections_start(const uint8_t *file, uint32_t layers) {
  return kv_dump_records(kv_load32(file + 24)) + (uint64_t)layers * KV_DUMP_RECORD;
}

static int32_t check_records(const kv_shared *shared, const uint8_t *file, uint64_t bytes, kv_error *error) {
  const uint8_t *record = file + kv_dump_records(kv_load32(file + 24));
  uint64_t end = sections_start(file, shared->layers);
  for (uint32_t layer = 0; layer < shared->layers; layer++, record += KV_DUMP_RECORD) {
    const kv_layer_spec *spec = &shared->specs[layer];
    uint64_t length = record_length(file, layer);
    uint8_t expected[KV_DUMP_RECORD];
    kv_section section;
    int32_t code;
    if (length > KV_MAX_LENGTH)
      return kv_fail(error, KV_E_PAGE, "dump: layer %u claims %l tokens, more than 2^32 - 1", layer, length);
    section = kv_section_at(spec, kv_plan_page_bytes(shared->plans[layer]), length, end);
    kv_dump_write_record(spec, length, &section, expected);
    code = check_record(record, expected, layer, error);
    if (code != KV_OK) return kv_at_layer(code, layer, error);
    if (section.end > bytes)
      return kv_fail(error, KV_E_PAGE, "dump: layer %u claims %l tokens, more than the file holds", layer, length);
    end = section.end;
  }
  if (kv_align_up(end, 64) != bytes) return kv_fail(error, KV_E_PAGE, "dump: bytes follow the last section");
  return KV_OK;
}

/* ---- the sections ---- */

static int32_t check_finite(const uint8_t *f16, uint64_t bytes, uint32_t layer, const char *what, kv_error *error) {
  for (uint64_t i = 0; i < bytes; i += 2)
    if (!kv_f16_finite(kv_load16(f16 + i)))
      return kv_fail(error, KV_E_PAGE, "dump: layer %u, %s: element %l is NaN or infinite", layer, what, i / 2);
  return KV_OK;
}

static void read_stream(const kv_layer_spec *spec, kv_store *store, int values, const uint8_t *from, uint64_t tokens) {
  uint16_t *rows = store->data + (values ? store->capacity * spec->kv_heads * spec->head_dim : 0);
  size_t bytes = (size_t)tokens * spec->head_dim * sizeof(uint16_t);
  for (uint32_t head = 0; head < spec->kv_heads; head++)
    memcpy(rows + head * store->capacity * spec->head_dim, from + head * bytes, bytes);
}

/* Both streams, keys first. */
static int32_t read_store(kv_cache *cache, uint32_t layer, kv_store *store, const uint8_t *from, uint64_t tokens,
                          uint64_t stream_bytes, const char *what, kv_error *error) {
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  int32_t code = check_finite(from, 2 * stream_bytes, layer, what, error);
  if (code != KV_OK || tokens == 0) return code;
  code = kv_store_take(cache, spec, tokens, store, error);
  if (code != KV_OK) return code;
  read_stream(spec, store, 0, from, tokens);
  read_stream(spec, store, 1, from + stream_bytes, tokens);
  store->count = tokens;
  return KV_OK;
}

static int32_t read_mean(uint16_t *mean, const uint8_t *from, uint64_t bytes, uint32_t layer, kv_error *error) {
  int32_t code = check_finite(from, bytes, layer, "frozen mean", error);
  if (code == KV_OK && bytes != 0) memcpy(mean, from, bytes);
  return code;
}

static int32_t read_pages(kv_cache *cache, uint32_t layer, const kv_section *section, const uint8_t *file,
                          kv_error *error) {
  const kv_shared *shared = cache->shared;
  kv_layer *at = &cache->layers[layer];
  kv_page_id id = shared->id;
  at->first_page = (uint32_t)section->first_page;
  if (section->page_count == 0) return KV_OK;
  at->pages = kv_cache_take(cache, kv_index_bytes(section->page_count));
  if (at->pages == NULL) return kv_fail(error, KV_E_MEMORY, "restore: the allocator refused the page index");
  at->page_capacity = (uint32_t)section->page_count;
  id.layer = layer;
  for (uint64_t i = 0; i < section->page_count; i++) {
    void *page = kv_page_take(cache, layer);
    int32_t code;
    if (page == NULL) return kv_fail(error, KV_E_MEMORY, "restore: the allocator refused page %l", i);
    at->pages[at->page_count++] = page;
    memcpy(page, file + section->pages + i * section->page_bytes, section->page_bytes);
    id.token_start = shared->specs[layer].sinks + (uint32_t)(section->first_page + i) * shared->specs[layer].page_tokens;
    code = kv_page_check(shared->plans[layer], &id, page, section->page_bytes, error);
    if (code != KV_OK) return code;
  }
  return KV_OK;
}

static int32_t read_section(kv_cache *cache, uint32_t layer, const kv_section *section, const uint8_t *file,
                            kv_error *error) {
  kv_layer *at = &cache->layers[layer];
  const uint8_t *key_mean = file + section->start, *value_mean = key_mean + section->key_mean_bytes;
  const uint8_t *sinks = value_mean + section->value_mean_bytes, *residual = sinks + 2 * section->sink_bytes;
  const uint8_t *end = residual + 2 * section->residual_bytes;
  int32_t code = read_mean(at->key_mean, key_mean, section->key_mean_bytes, layer, error);
  if (code == KV_OK) code = read_mean(at->value_mean, value_mean, section->value_mean_bytes, layer, error);
  if (code == KV_OK)
    code = read_store(cache, layer, &at->sinks, sinks, section->sinks, section->sink_bytes, "sinks", error);
  if (code == KV_OK)
    code = read_store(cache, layer, &at->residual, residual, section->residual, section->residual_bytes, "residual",
                      error);
  if (code == KV_OK) code = check_zero(file, (uint64_t)(end - file), section->pages, "before the pages", error);
  if (code == KV_OK) code = read_pages(cache, layer, section, file, error);
  return code;
}

static int32_t read_sections(kv_cache *cache, const uint8_t *file, uint64_t bytes, kv_error *error) {
  const kv_shared *shared = cache->shared;
  uint64_t end = sections_start(file, shared->layers);
  for (uint32_t layer = 0; layer < shared->layers; layer++) {
    uint64_t length = record_length(file, layer);
    kv_section section = kv_section_at(&shared->specs[layer], kv_plan_page_bytes(shared->plans[layer]), length, end);
    int32_t code = check_zero(file, end, section.start, "between sections", error);
    if (code == KV_OK) code = read_section(cache, layer, &section, file, error);
    if (code != KV_OK) return kv_at_layer(code, layer, error);
    cache->layers[layer].length = length;
    end = section.end;
  }
  return check_zero(file, end, bytes, "at the end", error);
}

static int32_t check_front(const owner *expected, const uint8_t *file, uint64_t bytes, kv_error *error) {
  int32_t code = check_header(file, bytes, error);
  return code == KV_OK ? check_identity(expected, file, bytes, error) : code;
}

static int32_t read_cache(kv_shared *shared, const uint8_t *file, uint64_t bytes, kv_cache **cache,
                          kv_error *error) {
  int32_t code = check_records(shared, file, bytes, error);
  if (code == KV_OK) code = kv_cache_new(shared, cache, error);
  if (code != KV_OK) return code;
  code = read_sections(*cache, file, bytes, error);
  if (code == KV_OK) return KV_OK;
  kv_cache_destroy(*cache);
  *cache = NULL;
  return code;
}

int32_t kv_dump_restore(kv_shared *shared, const uint8_t *file, uint64_t bytes, kv_cache **cache, kv_error *error) {
  owner expected = {shared->identity, shared->identity_bytes, shared->layers};
  int32_t code = check_front(&expected, file, bytes, error);
  return code == KV_OK ? read_cache(shared, file, bytes, cache, error) : code;
}

KV_EXPORT int32_t kv_cache_restore(const kv_cache_config *config, const void *buffer, uint64_t bytes, kv_cache **cache,
                                   kv_error *error) {
  kv_shared *shared = NULL;
  owner expected;
  int32_t code;
  if (cache == NULL || buffer == NULL || config == NULL)
    return kv_fail(error, KV_E_ARGUMENT, "restore: config, buffer or cache is NULL");
  *cache = NULL;
  if (config->identity == NULL && config->identity_bytes != 0)
    return kv_fail(error, KV_E_ARGUMENT, "identity: %l bytes, but no text", config->identity_bytes);
  expected = (owner){config->identity, config->identity_bytes, config->layers};
  code = check_front(&expected, buffer, bytes, error);
  if (code == KV_OK) code = kv_shared_create(config, &shared, error);
  if (code != KV_OK) return code;
  code = read_cache(shared, buffer, bytes, cache, error);
  if (code == KV_OK) (*cache)->allocations++; /* the shared block */
  kv_shared_release(shared);
  return code == KV_OK ? kv_success(error) : code;
}
