/* Sound pages and dumps for the targets to start from, since no fuzzer finds one by itself: seeds FOLDER. */
#include "support.h"

static const char *FOLDER;

static void save(const char *target, uint32_t number, uint32_t pick, const void *bytes, uint64_t size) {
  char path[4096];
  FILE *stream;
  uint8_t first = (uint8_t)pick;
  snprintf(path, sizeof path, "%s/%s/seed-%u", FOLDER, target, number);
  stream = fopen(path, "wb");
  CHECK(stream != NULL);
  CHECK(fwrite(&first, 1, 1, stream) == 1 && fwrite(bytes, 1, (size_t)size, stream) == size);
  CHECK(fclose(stream) == 0);
}

static void one_spec(uint32_t number) {
  static const uint32_t lengths[] = {0, 3, 20, 60, 100};
  static float rows[100 * ROW_MAX];
  kv_layer_spec specs[2] = {spec_number(number), spec_number(number)};
  for (int i = 0; i < 100 * ROW_MAX; i++) rows[i] = (float)(i * 2654435761u >> 16 & 0xff) / 64 - 2;
  for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    kv_cache_config config = {.layers = 1 + i % 2, .threads = 1, .specs = specs, .identity = (const uint8_t *)"{}",
                              .identity_bytes = 2};
    kv_cache *cache = NULL;
    kv_error error;
    uint64_t bytes = 0;
    uint8_t *file;
    const void *page;
    CHECK(kv_cache_create(&config, &cache, &error) == KV_OK);
    for (uint32_t layer = 0; layer < config.layers; layer++)
      CHECK(kv_cache_append(cache, layer, rows, rows, lengths[i], &error) == KV_OK);
    CHECK(kv_cache_dump_bytes(cache, &bytes, &error) == KV_OK);
    file = malloc(bytes);
    CHECK(kv_cache_dump(cache, file, bytes, &error) == KV_OK);
    save("dump", 8 * i + number, number | 24 | (config.layers - 1) << 5, file, bytes);
    if (kv_cache_page_count(cache, 0) > 0) {
      CHECK(kv_cache_page(cache, 0, 0, &page, &bytes, &error) == KV_OK);
      save("page", number, number | 24, page, bytes);
    }
    free(file);
    kv_cache_destroy(cache);
  }
}

int main(int count, char **names) {
  if (count != 2) return 2;
  FOLDER = names[1];
  for (uint32_t number = 0; number < SPECS; number++) one_spec(number);
  return 0;
}
