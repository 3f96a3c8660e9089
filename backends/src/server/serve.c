/* The library behind standard input and output, for a machine that can only emulate this one. One client, one request
 * at a time. A request is a head and `bytes` of data, the reply likewise; both are little endian, structures are those
 * of kvassay.h as 64-bit machines lay them out. A reply whose code is not KV_OK carries the kv_error.
 *
 * A request that is not what its command takes ends the program with status 2: the sides do not understand each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvassay.h"

#define MAGIC 0x5153564bu /* "KVSQ" */
#define MOST_BYTES (UINT64_C(1) << 32)

enum {
  HELLO,    /* kv_info's numbers, then build id and variant names, each ended by a zero byte */
  RUNS,     /* count: a variant */
  SUPPORTS, /* a kv_layer_spec */
  CREATE,   /* count: threads, layer: layers; settings, the specs, the identity text; the reply is a number */
  RESTORE,  /* the same, zeros up to a multiple of 64, the dump */
  APPEND,   /* count tokens: keys, values */
  ATTEND,   /* count queries */
  SCORES,   /* one query; the reply has as many floats as fit query heads times length */
  LENGTHS,  /* u64 a layer */
  PAGES,    /* u64 size of a page, the pages of a layer one after the other */
  TRUNCATE, /* count: length */
  FORK,     /* the reply is a number */
  RESET,
  CLOSE,
  DUMP,
  STATS, /* a kv_stats */
  COMMANDS
};

typedef struct head {
  uint32_t magic;
  uint32_t command; /* of a reply: the code */
  uint32_t cache, layer;
  uint64_t count, bytes;
} head;

typedef struct settings {
  uint64_t model, tokenizer, runtime;
  char variant[16];
  uint64_t identity_bytes;
} settings;

typedef struct held {
  kv_cache *cache; /* NULL: closed */
  uint32_t layers;
  kv_layer_spec *specs;
} held;

static held *caches;
static uint32_t cache_count;

static head request;
static uint8_t *data; /* of the request, aligned to 64 */
static uint64_t data_room;

static _Noreturn void quit(const char *why) {
  fprintf(stderr, "serve: command %u: %s\n", request.command, why);
  exit(2);
}

static void *room(uint64_t bytes) {
  void *pointer = bytes <= MOST_BYTES ? aligned_alloc(64, (bytes + 63) / 64 * 64 + 64) : NULL;
  if (!pointer) quit("out of memory");
  return pointer;
}

static void expect(int as_expected) {
  if (!as_expected) quit("not what it takes");
}

/* ---- replies ---- */

static void reply(const void *bytes, uint64_t count) {
  const head h = {.magic = MAGIC, .command = KV_OK, .bytes = count};
  if (fwrite(&h, sizeof h, 1, stdout) != 1 || fwrite(bytes, 1, count, stdout) != count) exit(1);
}

static void refuse(int32_t code, const kv_error *error) {
  const head h = {.magic = MAGIC, .command = (uint32_t)code, .bytes = sizeof *error};
  if (fwrite(&h, sizeof h, 1, stdout) != 1 || fwrite(error, sizeof *error, 1, stdout) != 1) exit(1);
}

static void answer(int32_t code, const kv_error *error) {
  if (code == KV_OK) reply(NULL, 0);
  else refuse(code, error);
}

/* ---- caches by number ---- */

static held *cache_of_request(void) {
  expect(request.cache < cache_count && caches[request.cache].cache);
  return &caches[request.cache];
}

static const kv_layer_spec *layer_of_request(const held *one) {
  expect(request.layer < one->layers);
  return &one->specs[request.layer];
}

static void hold(kv_cache *cache, uint32_t layers, const kv_layer_spec *specs) {
  uint32_t number = 0;
  while (number < cache_count && caches[number].cache) number++;
  if (number == cache_count) {
    caches = realloc(caches, ++cache_count * sizeof *caches);
    if (!caches) quit("out of memory");
  }
  caches[number] = (held){cache, layers, room(layers * sizeof *specs)};
  memcpy(caches[number].specs, specs, layers * sizeof *specs);
  reply(&number, sizeof number);
}

/* ---- commands ---- */

static void hello(void) {
  const kv_info *info = kv_get_info();
  char text[1024];
  uint64_t used = 6 * sizeof(uint32_t);
  memcpy(text, info, used);
  for (uint32_t i = 0; i <= info->variant_count; i++) {
    const char *word = i ? kv_variant_name(i - 1) : info->build_id;
    const uint64_t length = strlen(word) + 1;
    expect(used + length <= sizeof text);
    memcpy(text + used, word, length);
    used += length;
  }
  reply(text, used);
}

static void create(void) {
  const settings *set = (const settings *)data;
  const uint64_t spec_bytes = (uint64_t)request.layer * sizeof(kv_layer_spec);
  kv_error error = {0};
  kv_cache *cache = NULL;
  expect(request.bytes >= sizeof *set && request.layer > 0 && request.layer <= 65536 && request.count <= UINT32_MAX);
  const uint64_t left = request.bytes - sizeof *set;
  expect(left >= spec_bytes && set->identity_bytes <= left - spec_bytes && set->variant[15] == 0);
  const kv_cache_config config = {.layers = request.layer,
                                  .threads = (uint32_t)request.count,
                                  .specs = (const kv_layer_spec *)(set + 1),
                                  .variant = set->variant,
                                  .identity = data + sizeof *set + spec_bytes,
                                  .identity_bytes = set->identity_bytes,
                                  .model = set->model,
                                  .tokenizer = set->tokenizer,
                                  .runtime = set->runtime};
  uint64_t prefix = sizeof *set + spec_bytes + set->identity_bytes;
  int32_t code;
  if (request.command == CREATE) {
    expect(request.bytes == prefix);
    code = kv_cache_create(&config, &cache, &error);
  } else {
    prefix = (prefix + 63) / 64 * 64;
    expect(request.bytes >= prefix);
    code = kv_cache_restore(&config, data + prefix, request.bytes - prefix, &cache, &error);
  }
  if (code == KV_OK) hold(cache, config.layers, config.specs);
  else refuse(code, &error);
}

static void append(const held *one) {
  const kv_layer_spec *spec = layer_of_request(one);
  const uint64_t row = (uint64_t)spec->kv_heads * spec->head_dim;
  const float *keys = (const float *)data;
  kv_error error = {0};
  expect(request.count <= MOST_BYTES && request.bytes == 8 * request.count * row);
  answer(kv_cache_append(one->cache, request.layer, keys, keys + request.count * row, request.count, &error), &error);
}

/* `floats` are those of the result. */
static void read_out(const held *one, uint64_t floats) {
  float *out = room(4 * floats);
  kv_error error = {0};
  int32_t code;
  if (request.command == ATTEND)
    code = kv_cache_attend(one->cache, request.layer, (const float *)data, (uint32_t)request.count, out, &error);
  else code = kv_cache_scores(one->cache, request.layer, (const float *)data, out, floats, &error);
  if (code == KV_OK) reply(out, 4 * floats);
  else refuse(code, &error);
  free(out);
}

static void attend(const held *one) {
  const kv_layer_spec *spec = layer_of_request(one);
  const uint64_t floats = request.count * spec->query_heads * spec->head_dim;
  expect(request.count <= UINT32_MAX && request.bytes == 4 * floats);
  read_out(one, floats);
}

static void scores(const held *one) {
  const kv_layer_spec *spec = layer_of_request(one);
  expect(request.bytes == 4ull * spec->query_heads * spec->head_dim);
  read_out(one, kv_cache_length(one->cache, request.layer) * spec->query_heads);
}

static void lengths(const held *one) {
  uint64_t *length = room(one->layers * sizeof *length);
  for (uint32_t i = 0; i < one->layers; i++) length[i] = kv_cache_length(one->cache, i);
  reply(length, one->layers * sizeof *length);
  free(length);
}

static void pages(const held *one) {
  layer_of_request(one);
  const uint32_t count = kv_cache_page_count(one->cache, request.layer);
  uint8_t *all = room(sizeof(uint64_t));
  uint64_t each = 0;
  for (uint32_t i = 0; i < count; i++) {
    const void *page = NULL;
    kv_error error = {0};
    if (kv_cache_page(one->cache, request.layer, i, &page, &each, &error) != KV_OK) quit(error.message);
    if (i == 0) free(all), all = room(sizeof each + count * each);
    memcpy(all + sizeof each + i * each, page, each);
  }
  memcpy(all, &each, sizeof each);
  reply(all, sizeof each + count * each);
  free(all);
}

static void fork_cache(const held *one) {
  kv_cache *copy = NULL;
  kv_error error = {0};
  const held from = *one; /* the table may move */
  const int32_t code = kv_cache_fork(from.cache, &copy, &error);
  if (code == KV_OK) hold(copy, from.layers, from.specs);
  else refuse(code, &error);
}

static void close_cache(held *one) {
  kv_cache_destroy(one->cache);
  free(one->specs);
  *one = (held){0};
  reply(NULL, 0);
}

static void dump(const held *one) {
  uint64_t bytes = 0;
  kv_error error = {0};
  int32_t code = kv_cache_dump_bytes(one->cache, &bytes, &error);
  uint8_t *out = room(code == KV_OK ? bytes : 0);
  if (code == KV_OK) code = kv_cache_dump(one->cache, out, bytes, &error);
  if (code == KV_OK) reply(out, bytes);
  else refuse(code, &error);
  free(out);
}

static void serve_cache(held *one) {
  kv_error error = {0};
  kv_stats stats;
  switch (request.command) {
    case APPEND: append(one); return;
    case ATTEND: attend(one); return;
    case SCORES: scores(one); return;
  }
  expect(request.bytes == 0);
  switch (request.command) {
    case LENGTHS: lengths(one); return;
    case PAGES: pages(one); return;
    case TRUNCATE: answer(kv_cache_truncate(one->cache, request.count, &error), &error); return;
    case FORK: fork_cache(one); return;
    case RESET: answer(kv_cache_reset(one->cache, &error), &error); return;
    case CLOSE: close_cache(one); return;
    case DUMP: dump(one); return;
    default: kv_cache_get_stats(one->cache, &stats), reply(&stats, sizeof stats);
  }
}

static void serve(void) {
  kv_error error = {0};
  switch (request.command) {
    case HELLO: expect(request.bytes == 0), hello(); return;
    case RUNS:
      expect(request.bytes == 0 && request.count <= UINT32_MAX);
      answer(kv_variant_runs((uint32_t)request.count, &error), &error);
      return;
    case SUPPORTS:
      expect(request.bytes == sizeof(kv_layer_spec));
      answer(kv_supports((const kv_layer_spec *)data, &error), &error);
      return;
    case CREATE:
    case RESTORE: create(); return;
    default: expect(request.command < COMMANDS), serve_cache(cache_of_request());
  }
}

/* The next request; 0 where the client is gone. */
static int receive(void) {
  if (fread(&request, sizeof request, 1, stdin) != 1) return 0;
  if (request.magic != MAGIC || request.bytes > MOST_BYTES) quit("no request");
  if (request.bytes > data_room) {
    free(data);
    data = room(request.bytes);
    data_room = request.bytes;
  }
  return fread(data, 1, request.bytes, stdin) == request.bytes;
}

int main(void) {
  while (receive()) {
    serve();
    if (fflush(stdout) != 0) return 1;
  }
  return 0;
}
