/* A block against a cache: equal outputs, scores and pages after any chunks, cuts and loads, and refusals that
 * change nothing. */
#include "cache_support.h"
#include "kvassay_block.h"

#define MOST 512u

static tokens DATA;

typedef struct pair {
  kv_layer_spec spec;
  kv_page_id id;
  void *plan, *scratch;
  uint64_t scratch_bytes, bytes;
  uint8_t *block;
  kv_cache *cache;
} pair;

static void *room(uint64_t bytes) {
  void *p = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
  CHECK(p != NULL);
  memset(p, 0, (size_t)bytes);
  return p;
}

static pair make(kv_layer_spec spec, uint64_t capacity) {
  kv_error error = {0};
  pair p = {.spec = spec};
  kv_cache_config config = configure(&p.spec, 1, NULL);
  uint64_t bytes = 0;
  OK(kv_plan_bytes(&spec, &bytes, &error));
  p.plan = room(bytes);
  OK(kv_plan_init(&spec, NULL, p.plan, bytes, &error));
  OK(kv_block_bytes(p.plan, capacity, &p.bytes, &error));
  p.block = room(p.bytes);
  p.scratch_bytes = kv_block_scratch_bytes(p.plan, p.bytes, 1);
  p.scratch = room(p.scratch_bytes);
  kv_scratch_init(p.scratch, p.scratch_bytes);
  p.id = (kv_page_id){.model = config.model, .tokenizer = config.tokenizer, .runtime = config.runtime};
  OK(kv_cache_create(&config, &p.cache, &error));
  return p;
}

static void release(pair *p) {
  kv_cache_destroy(p->cache);
  free(p->block);
  free(p->scratch);
  free(p->plan);
}

static uint64_t length(const pair *p) {
  kv_error error = {0};
  uint64_t n = 0;
  OK(kv_block_length(p->plan, &p->id, p->block, p->bytes, &n, &error));
  return n;
}

static int32_t add(pair *p, uint64_t from, uint64_t count, kv_error *error) {
  const uint64_t width = (uint64_t)p->spec.kv_heads * p->spec.head_dim;
  return kv_block_append(p->plan, &p->id, p->block, p->bytes, DATA.keys + from * width, DATA.values + from * width, count,
                         p->scratch, p->scratch_bytes, error);
}

static void both_add(pair *p, uint32_t from, uint32_t count) {
  kv_error error = {0};
  append(p->cache, 0, &DATA, from, count);
  OK(add(p, from, count, &error));
}

static void expect_equal(pair *p) {
  kv_error error = {0};
  const uint32_t width = p->spec.query_heads * p->spec.head_dim;
  const uint64_t n = kv_cache_length(p->cache, 0), floats = n * p->spec.query_heads;
  float out[2][3 * 4 * 64], *scores[2];
  const void *pages[MOST], *page;
  uint64_t page_bytes;
  kv_state state;
  CHECK(length(p) == n);
  OK(kv_block_check(p->plan, &p->id, p->block, p->bytes, &error));
  if (n == 0) return;
  CHECK(width * 3 <= sizeof out[0] / sizeof(float));
  for (uint32_t queries = 1; queries <= (n < 3 ? n : 3); queries += 2) {
    OK(kv_cache_attend(p->cache, 0, DATA.keys, queries, out[0], &error));
    OK(kv_block_attend(p->plan, &p->id, p->block, p->bytes, DATA.keys, queries, out[1], p->scratch, p->scratch_bytes, NULL,
                       &error));
    CHECK(memcmp(out[0], out[1], (size_t)queries * width * sizeof(float)) == 0);
  }
  for (int i = 0; i < 2; i++) scores[i] = room(floats * sizeof(float));
  OK(kv_cache_scores(p->cache, 0, DATA.keys, scores[0], floats, &error));
  OK(kv_block_scores(p->plan, &p->id, p->block, p->bytes, DATA.keys, scores[1], floats, p->scratch, p->scratch_bytes, NULL,
                     &error));
  CHECK(memcmp(scores[0], scores[1], floats * sizeof(float)) == 0);
  OK(kv_block_state(p->plan, &p->id, p->block, p->bytes, pages, MOST, &state, &error));
  const uint32_t live = kv_cache_page_count(p->cache, 0); /* without those that the next append retires */
  CHECK(state.page_count >= live);
  for (uint32_t i = 0; i < live; i++) {
    OK(kv_cache_page(p->cache, 0, i, &page, &page_bytes, &error));
    CHECK(memcmp(page, pages[state.page_count - live + i], page_bytes) == 0);
  }
  for (int i = 0; i < 2; i++) free(scores[i]);
}

/* Chunks of 1, 2, 3, ... tokens, and every truncation that one of the two accepts. */
static void life(kv_layer_spec spec) {
  pair p = make(spec, 200);
  kv_error error = {0};
  for (uint32_t chunk = 1, at = 0; at + chunk <= 200; at += chunk, chunk++) {
    both_add(&p, at, chunk);
    expect_equal(&p);
  }
  for (uint64_t n = length(&p); n-- > 0;) {
    const int32_t code = kv_cache_truncate(p.cache, n, &error);
    uint8_t *before = room(p.bytes);
    memcpy(before, p.block, p.bytes);
    CHECK(kv_block_reaches(p.plan, &p.id, p.block, p.bytes, n, &error) == code);
    CHECK(kv_block_truncate(p.plan, &p.id, p.block, p.bytes, n, &error) == code);
    if (code != KV_OK) CHECK(memcmp(before, p.block, p.bytes) == 0);
    free(before);
    if (code == KV_OK && n % 7 == 0) expect_equal(&p);
  }
  CHECK(length(&p) == 0);
  both_add(&p, 50, 70);
  expect_equal(&p);
  release(&p);
}

/* With a span the room of retired pages is used again. */
static void ring(void) {
  pair p = make(turbo_spec(5, 4, 40), 40 + 4 + 5 + 16 + 16);
  for (uint32_t at = 0; at < 400; at += 8) both_add(&p, at % 100, 8);
  expect_equal(&p);
  release(&p);
}

static void expect_unchanged(pair *p, int32_t code, int32_t expected, const uint8_t *before) {
  CHECK(code == expected);
  CHECK(memcmp(before, p->block, p->bytes) == 0);
}

static void refusals(void) {
  pair p = make(turbo_spec(5, 4, 0), 100);
  kv_error error = {0};
  kv_page_id other = p.id;
  uint8_t *before = room(p.bytes);
  float bad[2 * 64];
  both_add(&p, 0, 95);
  memcpy(before, p.block, p.bytes);
  expect_unchanged(&p, add(&p, 0, 30, &error), KV_E_MEMORY, before);
  CHECK(strstr(error.message, "full") != NULL);
  memcpy(bad, DATA.keys, sizeof bad);
  bad[70] = 1e9f;
  expect_unchanged(&p,
                   kv_block_append(p.plan, &p.id, p.block, p.bytes, bad, bad, 1, p.scratch, p.scratch_bytes, &error),
                   KV_E_VALUE, before);
  CHECK(error.head == 1 && error.channel == 6 && error.token == 0);
  other.model ^= 1;
  expect_unchanged(&p, kv_block_append(p.plan, &other, p.block, p.bytes, DATA.keys, DATA.values, 1, p.scratch,
                                       p.scratch_bytes, &error),
                   KV_E_IDENTITY, before);
  CHECK(strstr(error.message, "model") != NULL);
  CHECK(kv_block_check(p.plan, &p.id, p.block, p.bytes - 64, &error) == KV_E_PAGE);
  CHECK(kv_block_check(p.plan, &p.id, p.block, 64, &error) == KV_E_MEMORY);
  CHECK(kv_block_check(p.plan, &p.id, p.block + 4, p.bytes - 4, &error) == KV_E_ARGUMENT);
  for (uint32_t bit = 0; bit < 128 * 8; bit++) { /* the header: refused by every call, not by the check alone */
    p.block[bit / 8] ^= (uint8_t)(1u << bit % 8);
    CHECK(add(&p, 0, 1, &error) != KV_OK);
    p.block[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  CHECK(memcmp(before, p.block, p.bytes) == 0);
  p.block[p.bytes - 100] ^= 4; /* in the last page */
  CHECK(kv_block_check(p.plan, &p.id, p.block, p.bytes, &error) == KV_E_PAGE);
  free(before);
  release(&p);
}

static void load(uint32_t span) {
  pair from = make(turbo_spec(5, 4, span), 200), to = make(turbo_spec(5, 4, span), 300);
  kv_error error = {0};
  const void *pages[MOST];
  kv_state state;
  both_add(&from, 0, 150);
  OK(kv_block_state(from.plan, &from.id, from.block, from.bytes, pages, MOST, &state, &error));
  OK(kv_block_load(to.plan, &to.id, to.block, to.bytes, &state, &error));
  CHECK(kv_block_load(to.plan, &to.id, to.block, to.bytes, &state, &error) == KV_E_STATE);
  append(to.cache, 0, &DATA, 0, 150);
  expect_equal(&to);
  both_add(&to, 150, 40);
  expect_equal(&to);
  release(&from);
  release(&to);
}

int main(void) {
  fill_tokens(&DATA, 1);
  life(turbo_spec(5, 4, 0));
  life(turbo_spec(0, 0, 0));
  life(turbo_spec(20, 3, 50));
  kv_layer_spec fp16 = turbo_spec(0, 2, 0);
  fp16.key_mode = fp16.value_mode = KV_MODE_FP16;
  fp16.key_centre = fp16.value_centre = KV_CENTRE_NONE;
  life(fp16);
  ring();
  refusals();
  load(0);
  load(40);
  return 0;
}
