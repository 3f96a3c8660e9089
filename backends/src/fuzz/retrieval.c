/* Stored vectors made of any bits that an index would take, codes and scales as a file may hold them: encoding, packing
 * and searching stay within their memory, all variants agree, and what is found is in the index, allowed, and there once. */
#include "support.h"

#include "kvassay_retrieval.h"

#define FENCE 64

/* Finite, and 0 or of a magnitude within 2^-40 .. 2^40. */
static float *numbers(reader *in, size_t count) {
  uint32_t *bits = take_block(in, 4 * count);
  for (size_t i = 0; i < count; i++)
    if (bits[i] != 0) bits[i] = (bits[i] & 0x807fffffu) | (88 + (bits[i] >> 23 & 0xff) % 79) << 23;
  return (float *)(void *)bits;
}

typedef struct machine {
  void *plan, *scratch;
  uint64_t scratch_bytes;
} machine;

static machine make(const kv_retrieval_spec *spec, const float *shift, const float *gain, const char *variant,
                    uint32_t queries) {
  machine out;
  kv_error error;
  const uint64_t bytes = kv_retrieval_plan_bytes(spec);
  out.plan = aligned(bytes);
  CHECK(kv_retrieval_plan_init(spec, shift, gain, variant, out.plan, bytes, &error) == KV_OK);
  out.scratch_bytes = kv_retrieval_scratch_bytes(out.plan, queries);
  out.scratch = aligned(out.scratch_bytes);
  return out;
}

static void unmake(machine *it) {
  free(it->plan);
  free(it->scratch);
}

/* Codes and scales, the same of both; then tiles, with a fence behind them. */
static void encode(const machine *a, const machine *b, const float *x, uint32_t n, uint32_t channels, uint8_t *tiles,
                   uint64_t slab_bytes, float *scales) {
  const uint32_t padded = (n + 15) / 16 * 16;
  uint8_t *codes = calloc(padded, channels), *same = calloc(padded, channels);
  float *other = calloc(n, 4);
  kv_error error;
  CHECK(codes != NULL && same != NULL && other != NULL);
  CHECK(kv_retrieval_encode(a->plan, x, n, codes, scales, a->scratch, a->scratch_bytes, &error) == KV_OK);
  CHECK(kv_retrieval_encode(b->plan, x, n, same, other, b->scratch, b->scratch_bytes, &error) == KV_OK);
  CHECK(memcmp(codes, same, (size_t)n * channels) == 0 && equal(scales, other, n));
  CHECK(kv_retrieval_pack(a->plan, codes, padded, tiles, slab_bytes, a->scratch, a->scratch_bytes, &error) == KV_OK);
  free(codes);
  free(same);
  free(other);
}

static void search(const machine *a, const machine *b, const uint8_t *tiles, uint64_t slab_bytes, const float *scales,
                   uint32_t n, const uint8_t *allowed, const float *q, uint32_t queries, uint32_t k) {
  float *scores = calloc(queries * k + 1, 4), *other = calloc(queries * k, 4);
  int64_t *rows = calloc(queries * k, 8), *same = calloc(queries * k, 8);
  uint8_t *seen = calloc(n, 1);
  kv_error error;
  CHECK(scores != NULL && other != NULL && rows != NULL && same != NULL && seen != NULL);
  CHECK(kv_retrieval_search(a->plan, tiles, slab_bytes, scales, n, allowed, q, queries, k, scores, rows, a->scratch,
                            a->scratch_bytes, &error) == KV_OK);
  CHECK(kv_retrieval_search(b->plan, tiles, slab_bytes, scales, n, allowed, q, queries, k, other, same, b->scratch,
                            b->scratch_bytes, &error) == KV_OK);
  CHECK(equal(scores, other, queries * k));
  if (finite(scores, queries * k)) CHECK(memcmp(rows, same, 8 * queries * k) == 0);
  for (uint32_t i = 0; i < queries * k; i++) {
    if (i % k == 0) memset(seen, 0, n);
    CHECK(rows[i] >= 0 && rows[i] < n && !seen[rows[i]]++ && (allowed == NULL || allowed[rows[i]]));
  }
  free(scores);
  free(other);
  free(rows);
  free(same);
  free(seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  reader in = {data, size};
  const uint32_t kind = (uint32_t)take(&in, 1), wide = kind & 1 ? 600 : 96;
  const kv_retrieval_spec spec = {1 + (uint32_t)take(&in, 2) % wide, 2 + kind / 2 % 3, take(&in, 1)};
  const uint32_t n = 1 + (uint32_t)take(&in, 1) % 150, queries = 1 + (uint32_t)take(&in, 1) % 20;
  const uint32_t first = (uint32_t)take(&in, 1), mode = kind / 8 % 3;
  machine plain = make(&spec, NULL, NULL, "scalar", 1);
  const uint32_t channels = kv_retrieval_channels(plain.plan), slabs = kv_retrieval_slabs(plain.plan);
  const uint32_t blocks = (n + 15) / 16;
  const uint64_t slab_bytes = (uint64_t)blocks * 2 * (channels / slabs) * spec.bits;
  float *q = numbers(&in, (size_t)queries * spec.dim), *shift = numbers(&in, channels), *gain = numbers(&in, channels);
  for (uint32_t c = 0; c < channels; c++) gain[c] = gain[c] < 0 ? -gain[c] : gain[c] == 0 ? 1 : gain[c];
  unmake(&plain);
  machine a = make(&spec, mode ? shift : NULL, mode == 2 ? gain : NULL, "scalar", queries);
  machine b = make(&spec, mode ? shift : NULL, mode == 2 ? gain : NULL, NULL, queries);
  uint8_t *tiles = aligned(slab_bytes * slabs + FENCE);
  float *scales = calloc(16 * blocks, 4), *x = numbers(&in, (size_t)n * spec.dim);
  CHECK(scales != NULL);
  memset(tiles + slab_bytes * slabs, 0xA5, FENCE);
  encode(&a, &b, x, n, channels, tiles, slab_bytes, scales);
  for (uint32_t i = 0; i < FENCE; i++) CHECK(tiles[slab_bytes * slabs + i] == 0xA5);
  for (uint32_t i = 0; i < n; i++) /* what a file may not hold */
    if (!(scales[i] >= 0) || !finite(&scales[i], 1)) scales[i] = 1;
  for (uint64_t i = 0; kind & 128 && i < slab_bytes * slabs; i++) tiles[i] ^= data[i % size];
  uint8_t *allowed = take_block(&in, n);
  uint32_t left = 0;
  allowed[first % n] = 1;
  for (uint32_t i = 0; i < n; i++) left += allowed[i] != 0;
  search(&a, &b, tiles, slab_bytes, scales, n, NULL, q, queries, 1 + first % n);
  search(&a, &b, tiles, slab_bytes, scales, n, allowed, q, queries, 1 + first % left);
  free(allowed);
  free(tiles);
  free(scales);
  free(x);
  free(q);
  free(shift);
  free(gain);
  unmake(&a);
  unmake(&b);
  return 0;
}
