/* Dumps: what comes back is equal, what is damaged or foreign is refused and allocates no more than the file justifies. */
#include "cache_support.h"

static tokens DATA;
static counter COUNT;
static kv_allocator ALLOCATOR;

static kv_cache *make(const kv_cache_config *config) {
  kv_error error = {0};
  kv_cache *cache = NULL;
  OK(kv_cache_create(config, &cache, &error));
  append(cache, 0, &DATA, 0, 70);
  append(cache, 1, &DATA, 0, 3);
  return cache;
}

static void specs_of(kv_layer_spec *specs, uint32_t span) {
  specs[0] = turbo_spec(5, 4, span);
  specs[1] = turbo_spec(0, 2, 0);
  specs[1].key_mode = KV_MODE_FP16;
  specs[1].key_centre = KV_CENTRE_NONE;
}

static void round_trip(uint32_t span) {
  kv_layer_spec specs[2];
  kv_cache_config config;
  kv_error error = {0};
  kv_cache *cache, *copy = NULL;
  bytes state, later;
  specs_of(specs, span);
  config = configure(specs, 2, &ALLOCATOR);
  cache = make(&config);
  state = dump(cache);
  CHECK(state.size % 64 == 0);
  OK(kv_cache_restore(&config, state.data, state.size, &copy, &error));
  CHECK(holds(copy, state));
  append(cache, 0, &DATA, 70, 90);
  append(copy, 0, &DATA, 70, 90);
  later = dump(cache);
  CHECK(holds(copy, later));
  CHECK(kv_cache_dump(cache, state.data, 63, &error) == KV_E_MEMORY);
  kv_cache_destroy(cache);
  kv_cache_destroy(copy);
  free(state.data);
  free(later.data);
}

/* Every length that is cut off, and every bit that is flipped. */
static void damage(void) {
  kv_layer_spec specs[2];
  kv_cache_config config;
  kv_error error = {0};
  kv_cache *cache, *copy = NULL;
  bytes state;
  specs_of(specs, 0);
  config = configure(specs, 2, &ALLOCATOR);
  cache = make(&config);
  state = dump(cache);
  kv_cache_destroy(cache);
  for (uint64_t size = 0; size < state.size; size++) {
    uint8_t *cut = malloc((size_t)size + 1);
    memcpy(cut, state.data, (size_t)size);
    CHECK(kv_cache_restore(&config, cut, size, &copy, &error) == KV_E_PAGE && copy == NULL);
    free(cut);
  }
  for (uint64_t bit = 0; bit < 8 * state.size; bit += bit < 8 * 1024 ? 1 : 61) {
    state.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    CHECK(kv_cache_restore(&config, state.data, state.size, &copy, &error) == KV_E_PAGE);
    state.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  CHECK(kv_cache_restore(&config, state.data, state.size, &copy, &error) == KV_OK);
  kv_cache_destroy(copy);
  free(state.data);
}

/* CRC-32 (zlib), bit by bit: the tests do not trust the library's own. */
static void stamp(bytes file) {
  uint32_t crc = 0xffffffff;
  memset(file.data + 16, 0, 4);
  for (uint64_t i = 0; i < file.size; i++) {
    crc ^= file.data[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  crc = ~crc;
  memcpy(file.data + 16, &crc, 4);
}

/* A file with a right CRC that lies at one place. */
static void lie(const kv_cache_config *config, bytes honest, uint64_t at, uint64_t value, uint32_t size,
                int32_t expected, const char *named) {
  kv_error error = {0};
  kv_cache *copy = NULL;
  bytes file = {malloc((size_t)honest.size), honest.size};
  unsigned long long calls, held = atomic_load(&COUNT.bytes);
  int32_t code;
  memcpy(file.data, honest.data, (size_t)honest.size);
  memcpy(file.data + at, &value, size);
  stamp(file);
  calls = atomic_load(&COUNT.calls);
  code = kv_cache_restore(config, file.data, file.size, &copy, &error);
  if (code != expected || strstr(error.message, named) == NULL)
    fprintf(stderr, "byte %d: code %d, %s; expected %d, %s\n", (int)at, (int)code, error.message, (int)expected, named);
  CHECK(code == expected && copy == NULL && strstr(error.message, named) != NULL);
  CHECK(atomic_load(&COUNT.bytes) == held && atomic_load(&COUNT.calls) - calls < 20);
  free(file.data);
}

static void lies(void) {
  kv_layer_spec specs[2];
  kv_cache_config config;
  kv_cache *cache;
  bytes state;
  uint64_t record, section, means = 2 * 128 * 2, half;
  specs_of(specs, 0);
  config = configure(specs, 2, &ALLOCATOR);
  cache = make(&config);
  state = dump(cache);
  kv_cache_destroy(cache);
  record = 32 + (config.identity_bytes + 15) / 16 * 16;
  memcpy(&section, state.data + record + 56, 8);
  CHECK(section == (record + 128 + 63) / 64 * 64);
  half = section + means + 4 * 128 * 2 * 2 + (70 - 4 - 48) * 128 * 2 * 2; /* gap before the pages, if any */

  lie(&config, state, 4, 2, 2, KV_E_PAGE, "version");
  lie(&config, state, 6, 1, 2, KV_E_PAGE, "reserved");
  lie(&config, state, 28, 1, 4, KV_E_PAGE, "reserved");
  lie(&config, state, 20, 0xffffffff, 4, KV_E_PAGE, "layers");
  lie(&config, state, 24, 0xffffffff, 4, KV_E_PAGE, "identity");
  lie(&config, state, 20, 1, 4, KV_E_PAGE, "layers");
  lie(&config, state, 32, 'x', 1, KV_E_IDENTITY, "byte 0");
  lie(&config, state, 32 + config.identity_bytes, 1, 1, KV_E_PAGE, "identity text");
  lie(&config, state, record + 4, 80, 2, KV_E_IDENTITY, "head_dim: 80 in layer 0");
  lie(&config, state, record + 16, 6, 4, KV_E_IDENTITY, "window: 6 in layer 0");
  lie(&config, state, record + 64 + 32, 8, 8, KV_E_IDENTITY, "seed: 8 in layer 1");
  lie(&config, state, record + 14, 1, 2, KV_E_PAGE, "record of layer 0");
  lie(&config, state, record + 40, 71, 8, KV_E_PAGE, "layer 1");
  lie(&config, state, record + 40, 0xffffffff, 8, KV_E_PAGE, "layer 0");
  lie(&config, state, record + 40, UINT64_MAX, 8, KV_E_PAGE, "tokens");
  lie(&config, state, record + 48, 1, 4, KV_E_PAGE, "record of layer 0");
  lie(&config, state, record + 52, 0xffffffff, 4, KV_E_PAGE, "record of layer 0");
  lie(&config, state, record + 56, section + 64, 8, KV_E_PAGE, "record of layer 0");
  lie(&config, state, section, 0x7c00, 2, KV_E_PAGE, "frozen mean");
  lie(&config, state, section + means + 6, 0xfe00, 2, KV_E_PAGE, "sinks");
  lie(&config, state, section + means + 4 * 128 * 2 * 2, 0x7c01, 2, KV_E_PAGE, "residual");
  if (half % 64 != 0) lie(&config, state, half, 1, 1, KV_E_PAGE, "gap");
  lie(&config, state, (half + 63) / 64 * 64 + 100, 0xff, 1, KV_E_PAGE, "CRC");
  lie(&config, state, record + 128, 1, 1, KV_E_PAGE, "gap between sections");
  free(state.data);
}

int main(void) {
  fill_tokens(&DATA, 3);
  ALLOCATOR = counting(&COUNT);
  round_trip(0);
  round_trip(17);
  damage();
  lies();
  CHECK(atomic_load(&COUNT.blocks) == 0 && atomic_load(&COUNT.bytes) == 0);
  return 0;
}
