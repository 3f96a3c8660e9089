/* A runtime in C or C++ that uses the cache: appends, attends, dumps.
 *
 *   cc standalone.c $(pkg-config --cflags --libs kvassay) -o standalone && ./standalone cache.kvdump
 *
 * It prints one line a fact and writes the dump, the same bytes as the programs beside it in other languages. The
 * identity text is what kvassay.Spec(...).identity_text gives for the same spec (page format, identity text), so
 * Python restores the file. */
#include <kvassay.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, TOKENS = 300, PROMPT = 200, WIDTH = 2 * 64, QUERY = 4 * 64 };

static const char IDENTITY[] =
    "{\"head_dim\":64,\"identity\":null,\"key_centre\":\"page\",\"keys\":\"turbo:3.5\",\"kv_heads\":2,"
    "\"layer_overrides\":{},\"layers\":2,\"page_tokens\":64,\"query_heads\":4,\"rope\":null,\"rounds\":2,\"scale\":\"u8\","
    "\"seed\":0,\"sinks\":4,\"softmax_scale\":0.125,\"span\":null,\"value_centre\":\"none\",\"values\":\"turbo:3\","
    "\"window\":128}";

/* Number i of a sequence in [-1, 1), exact in binary16: what a model would compute. */
static float number(uint64_t i) {
  uint64_t mixed = ((i + 1) * UINT64_C(0x9E3779B97F4A7C15)) >> 53;
  return ((float)mixed - 1024.0f) / 1024.0f;
}

static void require(int32_t code, const kv_error *error) {
  if (code == KV_OK) return;
  fprintf(stderr, "kvassay: %s (code %d)\n", error->message, (int)code);
  exit(1);
}

static void append(kv_cache *cache, uint32_t layer, uint64_t first, uint64_t tokens) {
  static float keys[PROMPT * WIDTH], values[PROMPT * WIDTH];
  kv_error error;
  for (uint64_t i = 0; i < tokens * WIDTH; i++) {
    keys[i] = number((layer * TOKENS + first) * WIDTH + i); /* after RoPE */
    values[i] = -keys[i];
  }
  require(kv_cache_append(cache, layer, keys, values, tokens, &error), &error);
}

static void attend(kv_cache *cache, uint32_t layer) {
  float q[QUERY], out[QUERY];
  uint32_t bits[4];
  kv_error error;
  for (uint64_t i = 0; i < QUERY; i++) q[i] = number((UINT64_C(1) << 40) | i);
  require(kv_cache_attend(cache, layer, q, 1, out, &error), &error);
  memcpy(bits, out, sizeof bits);
  printf("layer %u attends %08x %08x %08x %08x\n", (unsigned)layer, (unsigned)bits[0], (unsigned)bits[1],
         (unsigned)bits[2], (unsigned)bits[3]);
}

int main(int count, char **arguments) {
  kv_layer_spec specs[LAYERS];
  kv_cache_config config;
  kv_cache *cache;
  kv_stats stats;
  kv_error error;
  uint64_t bytes;
  if (count != 2) return fprintf(stderr, "usage: standalone FILE\n"), 2;

  memset(specs, 0, sizeof specs);
  for (int layer = 0; layer < LAYERS; layer++) {
    specs[layer].kv_heads = 2;
    specs[layer].query_heads = 4;
    specs[layer].head_dim = 64;
    specs[layer].page_tokens = 64;
    specs[layer].key_mode = KV_MODE_TURBO + 7;   /* 3.5 bits */
    specs[layer].value_mode = KV_MODE_TURBO + 6; /* 3 bits */
    specs[layer].key_centre = KV_CENTRE_PAGE;
    specs[layer].scale_kind = KV_SCALE_U8;
    specs[layer].rounds = 2;
    specs[layer].window = 128;
    specs[layer].sinks = 4;
    specs[layer].softmax_scale = 0.125f;
  }
  memset(&config, 0, sizeof config);
  config.layers = LAYERS;
  config.threads = 1;
  config.specs = specs;
  config.identity = (const uint8_t *)IDENTITY;
  config.identity_bytes = sizeof IDENTITY - 1;
  require(kv_cache_create(&config, &cache, &error), &error);
  kv_cache_get_stats(cache, &stats);
  printf("variant %s\n", kv_variant_name(stats.variant));

  /* A prompt at once, then token by token, as a decoder does. */
  for (uint32_t layer = 0; layer < LAYERS; layer++) append(cache, layer, 0, PROMPT);
  for (uint64_t token = PROMPT; token < TOKENS; token++)
    for (uint32_t layer = 0; layer < LAYERS; layer++) append(cache, layer, token, 1);
  for (uint32_t layer = 0; layer < LAYERS; layer++) attend(cache, layer);

  require(kv_cache_dump_bytes(cache, &bytes, &error), &error);
  void *dump = malloc(bytes);
  FILE *file = fopen(arguments[1], "wb");
  if (dump == NULL || file == NULL) return perror(arguments[1]), 1;
  require(kv_cache_dump(cache, dump, bytes, &error), &error);
  if (fwrite(dump, 1, bytes, file) != bytes || fclose(file) != 0) return perror(arguments[1]), 1;
  kv_cache_get_stats(cache, &stats);
  printf("%llu bytes, %llu held\n", (unsigned long long)bytes, (unsigned long long)stats.allocated);
  free(dump);
  kv_cache_destroy(cache);
  return 0;
}
