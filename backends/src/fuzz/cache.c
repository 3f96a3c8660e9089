/* The life cycle as a program: each byte is an operation on one of three caches of a pool, beside a list of the tokens
 * that each should hold. Any allocation may fail. After a refusal a cache is what it was; at the end each equals a new
 * cache that was given its tokens at once. */
#include "kvassay_share.h"
#include "support.h"

#define CACHES 3
#define MAX_TOKENS 400
#define ROWS 256

typedef struct subject {
  kv_cache *cache;
  uint32_t count;
  uint8_t tokens[MAX_TOKENS]; /* numbers of rows */
  uint32_t marks;
  uint32_t marked[8];
} subject;

static float KEYS[ROWS * ROW_MAX], VALUES[ROWS * ROW_MAX];
static uint64_t CALLS, FAIL_AT, BLOCKS;

static void *allocate(void *context, uint64_t bytes) {
  void *block;
  (void)context;
  if (++CALLS == FAIL_AT) return NULL;
  block = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
  CHECK(block != NULL);
  memset(block, 0xA5, (size_t)bytes);
  BLOCKS++;
  return block;
}

static void release(void *context, void *pointer, uint64_t bytes) {
  (void)context;
  (void)bytes;
  BLOCKS--;
  free(pointer);
}

static const kv_allocator ALLOCATOR = {NULL, allocate, release};

static void make_rows(void) {
  static int made;
  if (made) return;
  for (uint32_t i = 0; i < ROWS * ROW_MAX; i++) {
    KEYS[i] = (float)(i * 2654435761u >> 16 & 0x3ff) / 128 - 4;
    VALUES[i] = (float)(i * 2246822519u >> 16 & 0x3ff) / 128 - 4;
  }
  made = 1;
}

/* Keys and values of these tokens, in memory of just that size. */
static float *gather(const kv_layer_spec *spec, const float *from, const uint8_t *tokens, uint32_t count) {
  size_t width = (size_t)spec->kv_heads * spec->head_dim;
  float *out = malloc((count != 0 ? count : 1) * width * sizeof *out);
  for (uint32_t i = 0; i < count; i++) memcpy(out + i * width, from + tokens[i] * (size_t)ROW_MAX, width * sizeof *out);
  return out;
}

static int32_t give(kv_cache *cache, const kv_layer_spec *spec, const uint8_t *tokens, uint32_t count,
                    const kv_cache *donor, uint32_t pages, kv_error *error) {
  float *k = gather(spec, KEYS, tokens, count), *v = gather(spec, VALUES, tokens, count);
  int32_t code = donor != NULL ? kv_cache_adopt(cache, 0, donor, pages, k, v, count, error)
                               : kv_cache_append(cache, 0, k, v, count, error);
  free(k);
  free(v);
  return code;
}

static uint8_t *dump_of(const kv_cache *cache, uint64_t *bytes) {
  kv_error error;
  uint8_t *out;
  CHECK(kv_cache_dump_bytes(cache, bytes, &error) == KV_OK);
  out = malloc(*bytes);
  CHECK(kv_cache_dump(cache, out, *bytes, &error) == KV_OK);
  return out;
}

static int same(const kv_cache *cache, const uint8_t *expected, uint64_t bytes) {
  uint64_t now;
  uint8_t *found = dump_of(cache, &now);
  int equal = now == bytes && memcmp(found, expected, bytes) == 0;
  free(found);
  return equal;
}

static void append(subject *s, const kv_layer_spec *spec, reader *in) {
  uint32_t count = (uint32_t)take(in, 1) % 80, room = MAX_TOKENS - s->count;
  kv_error error;
  if (count > room) count = room;
  for (uint32_t i = 0; i < count; i++) s->tokens[s->count + i] = (uint8_t)take(in, i == 0 ? 1 : 0) + (uint8_t)(31 * i);
  if (give(s->cache, spec, s->tokens + s->count, count, NULL, 0, &error) == KV_OK)
    s->count += count;
  else
    CHECK(error.code == KV_E_MEMORY);
}

static void adopt(subject *s, const kv_layer_spec *spec, const subject *donor, reader *in) {
  uint32_t pages = (uint32_t)take(in, 1) % 8, more = (uint32_t)take(in, 1) % 80;
  uint32_t shared = spec->sinks + pages * spec->page_tokens;
  uint8_t tokens[MAX_TOKENS];
  kv_error error;
  int32_t code;
  if (shared + more > MAX_TOKENS) return;
  for (uint32_t i = 0; i < more; i++) tokens[i] = (uint8_t)(7 * i);
  code = give(s->cache, spec, tokens, more, donor->cache, pages, &error);
  if (code != KV_OK) {
    CHECK(code == KV_E_MEMORY || code == KV_E_STATE || code == KV_E_ARGUMENT);
    return;
  }
  CHECK(s->count == 0 && shared <= donor->count && more >= spec->window);
  memcpy(s->tokens, donor->tokens, shared);
  memcpy(s->tokens + shared, tokens, more);
  s->count = shared + more;
}

static void edit(subject *s, const kv_layer_spec *spec, uint32_t what, reader *in) {
  uint32_t n = (uint32_t)take(in, 2);
  kv_error error;
  float q[QUERY_HEADS * MAX_DIM] = {1, 2, 3}, out[QUERY_HEADS * MAX_DIM];
  switch (what) {
    case 0:
      n %= s->count + 1;
      if (kv_cache_truncate(s->cache, n, &error) == KV_OK) {
        s->count = n;
        s->marks = 0;
      }
      break;
    case 1:
      CHECK(kv_cache_reset(s->cache, &error) == KV_OK);
      s->count = s->marks = 0;
      break;
    case 2:
      if (s->marks < 8 && kv_cache_mark(s->cache, n & 256 ? 0 : KV_ALL_LAYERS, n % 100, &error) == KV_OK)
        s->marked[s->marks++] = s->count;
      break;
    case 3:
      if (kv_cache_rollback(s->cache, n % 64, &error) == KV_OK)
        s->count = s->marked[--s->marks] + n % 64;
      else
        CHECK(error.code == KV_E_STATE || error.code == KV_E_TRUNCATE || error.code == KV_E_MEMORY);
      break;
    case 4: CHECK((kv_cache_commit(s->cache, &error) == KV_OK) == (s->marks > 0)); s->marks -= s->marks > 0; break;
    default:
      if (s->count > 0) CHECK(kv_cache_attend(s->cache, 0, q, 1, out, &error) == KV_OK);
      if (s->count > 0) CHECK(finite(out, (size_t)spec->query_heads * spec->head_dim));
      break;
  }
  CHECK(kv_cache_marks(s->cache) == s->marks);
}

static void replace(subject *s, kv_cache *made, const subject *from) {
  kv_cache_destroy(s->cache);
  if (from != s) *s = *from;
  s->cache = made;
  s->marks = 0;
}

static void step(kv_cache_pool *pool, subject *all, const kv_layer_spec *spec, reader *in) {
  uint32_t byte = (uint32_t)take(in, 1), what = byte % 16;
  subject *s = &all[byte / 16 % CACHES], *other = &all[(byte / 16 + 1) % CACHES];
  uint64_t bytes, count = s->count;
  uint8_t *before = dump_of(s->cache, &bytes);
  kv_cache *made = NULL;
  kv_error error;
  FAIL_AT = byte & 128 ? CALLS + 1 + take(in, 1) % 8 : 0;
  switch (what) {
    case 0: case 1: case 2: case 3: case 4: append(s, spec, in); break;
    case 5: adopt(s, spec, other, in); break;
    case 6: if (kv_cache_fork(other->cache, &made, &error) == KV_OK) replace(s, made, other); break;
    case 7: if (kv_cache_pool_restore(pool, before, bytes, &made, &error) == KV_OK) replace(s, made, s); break;
    case 8: kv_cache_pool_trim(pool); break;
    default: edit(s, spec, what - 9, in); break;
  }
  FAIL_AT = 0;
  CHECK(kv_cache_length(s->cache, 0) == s->count);
  if (what != 6 && s->count == count && what < 9) CHECK(same(s->cache, before, bytes));
  free(before);
}

/* A cache that got the tokens in one append, outside of the pool. */
static void verify(const subject *s, const kv_cache_config *config, const kv_layer_spec *spec) {
  kv_cache *fresh = NULL;
  kv_error error;
  uint64_t bytes;
  uint8_t *expected;
  CHECK(kv_cache_create(config, &fresh, &error) == KV_OK);
  CHECK(give(fresh, spec, s->tokens, s->count, NULL, 0, &error) == KV_OK);
  expected = dump_of(fresh, &bytes);
  CHECK(same(s->cache, expected, bytes));
  free(expected);
  kv_cache_destroy(fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  reader in = {data, size};
  uint32_t first = (uint32_t)take(&in, 1);
  kv_layer_spec spec = spec_number(first % SPECS);
  kv_cache_config config = {.layers = 1, .threads = 1, .specs = &spec, .allocator = &ALLOCATOR};
  subject all[CACHES] = {0};
  kv_cache_pool *pool = NULL;
  kv_pool_stats stats;
  kv_error error;
  make_rows();
  FAIL_AT = 0;
  BLOCKS = 0;
  CHECK(kv_cache_pool_create(&config, first & 8 ? 1 << 20 : 0, &pool, &error) == KV_OK);
  for (int i = 0; i < CACHES; i++) CHECK(kv_cache_pool_take(pool, &all[i].cache, &error) == KV_OK);
  for (int i = 0; i < 40 && in.size > 0; i++) {
    step(pool, all, &spec, &in);
    kv_cache_pool_get_stats(pool, &stats);
    CHECK(stats.used + stats.reserved + stats.headers <= stats.peak && stats.peak <= stats.limit);
  }
  for (int i = 0; i < CACHES; i++) verify(&all[i], &config, &spec);
  if (first & 16) kv_cache_pool_destroy(pool);
  for (int i = 0; i < CACHES; i++) kv_cache_destroy(all[i].cache);
  if (!(first & 16)) kv_cache_pool_destroy(pool);
  CHECK(BLOCKS == 0);
  return 0;
}
