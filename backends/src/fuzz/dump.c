/* Bytes as a dump: refused, or a cache that dumps the same bytes again and goes on like any other. The first byte picks
 * the spec and whether checksums of the file and its pages are made right first; every allocation is counted. */
#include "support.h"

static uint64_t ASKED;

static void *allocate(void *context, uint64_t bytes) {
  (void)context;
  ASKED += bytes;
  return aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
}

static void release(void *context, void *pointer, uint64_t bytes) {
  (void)context;
  (void)bytes;
  free(pointer);
}

/* Pages lie at multiples of 64 bytes and begin with their magic. */
static void mend_pages(uint8_t *file, size_t bytes, size_t page_bytes) {
  for (size_t at = 0; at + page_bytes <= bytes; at += 64)
    if (memcmp(file + at, "KVPG", 4) == 0) mend(file + at, page_bytes, PAGE_CRC);
}

static void go_on(kv_cache *cache, const uint8_t *file, size_t bytes) {
  static float rows[40 * ROW_MAX];
  float q[QUERY_HEADS * MAX_DIM], out[QUERY_HEADS * MAX_DIM];
  kv_error error;
  uint64_t again = 0, length = kv_cache_length(cache, 0);
  uint8_t *copy = malloc(bytes);
  CHECK(kv_cache_dump_bytes(cache, &again, &error) == KV_OK && again == bytes);
  CHECK(kv_cache_dump(cache, copy, again, &error) == KV_OK);
  CHECK(memcmp(copy, file, bytes) == 0);
  free(copy);
  for (int i = 0; i < QUERY_HEADS * MAX_DIM; i++) q[i] = (float)(i % 5 - 2);
  for (int i = 0; i < 40 * ROW_MAX; i++) rows[i] = (float)(i % 11 - 5);
  if (length > 0) CHECK(kv_cache_attend(cache, 0, q, 1, out, &error) == KV_OK);
  CHECK(kv_cache_append(cache, 0, rows, rows, 40, &error) == KV_OK);
  CHECK(kv_cache_length(cache, 0) == length + 40);
  CHECK(kv_cache_attend(cache, 0, q, 1, out, &error) == KV_OK);
  (void)kv_cache_truncate(cache, length / 2, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const kv_allocator allocator = {NULL, allocate, release};
  reader in = {data, size};
  uint32_t pick = (uint32_t)take(&in, 1);
  const kernel *with = kernel_number(pick & 7, NULL);
  kv_layer_spec specs[2] = {with->spec, with->spec};
  kv_cache_config config = {.layers = 1 + (pick >> 5 & 1), .threads = 1, .specs = specs,
                            .identity = (const uint8_t *)"{}", .identity_bytes = 2, .allocator = &allocator};
  size_t bytes = in.size;
  uint8_t *file = take_block(&in, bytes);
  kv_cache *cache = NULL;
  kv_error error;
  int32_t code;
  if (pick & 8) mend_pages(file, bytes, with->page_bytes);
  if (pick & 16) mend(file, bytes, DUMP_CRC);
  ASKED = 0;
  code = kv_cache_restore(&config, file, bytes, &cache, &error);
  /* What it asks for follows from the spec and from the size of the file, whatever the file claims. */
  CHECK(ASKED <= 8 * with->scratch_bytes + (1 << 18) + 4 * bytes);
  CHECK((code == KV_OK) == (cache != NULL));
  if (code == KV_OK)
    go_on(cache, file, bytes);
  else
    CHECK((code == KV_E_PAGE || code == KV_E_IDENTITY) && error.message[0] != 0);
  kv_cache_destroy(cache);
  free(file);
  return 0;
}
