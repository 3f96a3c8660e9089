/* Stored vectors through kvassay_retrieval.h, on every variant that runs here: bits against checksums that the reference
 * scorer gave (harness/tests/retrieval/test_retrieval_golden.py makes the same inputs), searches against the whole
 * ranking, refusals. Every buffer has exactly its size, so that an address sanitizer sees a step beyond. */
#include "kernels_support.h"

#include "kvassay_retrieval.h"
#include "retrieval/retrieval.h"

enum { VECTORS = 300, ROWS = 304, QUERIES = 21, BEST = 17 };

typedef struct shape {
  uint32_t dim, bits, calibrated, checksum; /* calibrated 1: shift and gain; 2: shift alone */
} shape;

static const shape SHAPES[] = {
    {1, 4, 0, 0x9905ef1a},   {64, 4, 0, 0xa4737476},  {80, 3, 0, 0xe51d1e67},   {128, 2, 0, 0x8edc35f9},
    {200, 4, 1, 0x0da4dfd0}, {600, 3, 1, 0x2846b7d1}, {1040, 2, 0, 0xa68c95ab},
    {64, 2, 2, 0x3e5a5122},  {530, 4, 2, 0x8b04340b},
};

typedef struct stored {
  const shape *shape;
  void *plan, *scratch;
  uint64_t scratch_bytes, slab_bytes, tile_bytes;
  uint32_t channels, slabs;
  float *x, *q, *shift, *gain, *scales;
  uint8_t *tiles;
} stored;

static uint32_t crc(uint32_t sum, const void *bytes, uint64_t count) {
  const uint8_t *at = bytes;
  sum = ~sum;
  for (uint64_t i = 0; i < count; i++) {
    sum ^= at[i];
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return ~sum;
}

static float *draw_floats(uint64_t *state, uint64_t count) {
  float *x = block(4 * count);
  for (uint64_t i = 0; i < count; i++) x[i] = draw_float(state);
  return x;
}

/* Zeros, repeats and lengths over twenty octaves. */
static float *vectors(uint64_t *state, uint32_t dim) {
  float *x = draw_floats(state, (uint64_t)VECTORS * dim);
  for (uint32_t i = 0; i < VECTORS; i++)
    for (uint32_t c = 0; c < dim; c++) {
      float *at = &x[i * dim + c];
      if (i % 7 == 3) *at = 0;
      if (i % 5 == 1) *at *= (float)(1u << i % 21) * 0x1p-10f;
      if (i % 11 == 5) *at = x[c];
    }
  return x;
}

/* Among them one channel, all channels alike (no window of a scan may then be wide), and none. */
static float *queries(uint64_t *state, uint32_t dim) {
  float *q = draw_floats(state, (uint64_t)QUERIES * dim);
  for (uint32_t c = 0; c < dim; c++) {
    q[dim + c] = c == dim / 2;
    q[2 * dim + c] = 1;
    q[3 * dim + c] = 0;
  }
  return q;
}

#ifdef KV_BUILT /* against the library as it is, which shows no kernels */
#define PLANNED forced.name
static void count_scans(void *plan) { (void)plan; }
#else
/* Of the implementation that is given the scan is used, whatever runs around it; that it ran is counted. */
#ifdef KV_EMULATE
#define PLANNED "scalar"
#else
#define PLANNED forced.name
#endif
static kv_kernels counting;

static void counted(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                    uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  uint32_t own = 0;
  forced.kernels->keyscan(codec, d, tiles, tokens, q, rows, out, stride, &own);
  CHECK(is_forced(own));
  *ran |= own;
}

static void count_scans(void *plan) {
  kv_retrieval_plan *made = plan;
  counting = *made->kernels;
  counting.keyscan = counted;
  made->kernels = &counting;
}
#endif

static stored make(const shape *shape) {
  stored it = {.shape = shape};
  const kv_retrieval_spec spec = {shape->dim, shape->bits, shape->dim};
  const uint64_t bytes = kv_retrieval_plan_bytes(&spec);
  uint64_t state = shape->dim * 8 + shape->bits;
  kv_error error;
  it.plan = block(bytes);
  CHECK(kv_retrieval_plan_init(&spec, NULL, NULL, PLANNED, it.plan, bytes, &error) == KV_OK);
  it.channels = kv_retrieval_channels(it.plan);
  it.slabs = kv_retrieval_slabs(it.plan);
  it.x = vectors(&state, shape->dim);
  it.q = queries(&state, shape->dim);
  it.shift = draw_floats(&state, it.channels);
  it.gain = draw_floats(&state, it.channels);
  for (uint32_t c = 0; c < it.channels; c++) {
    it.shift[c] *= 0.25f;
    it.gain[c] = 1 + 0.5f * it.gain[c];
  }
  if (shape->calibrated)
    CHECK(kv_retrieval_plan_init(&spec, it.shift, shape->calibrated == 2 ? NULL : it.gain, PLANNED, it.plan, bytes,
                                 &error) == KV_OK);
  count_scans(it.plan);
  it.scratch_bytes = kv_retrieval_scratch_bytes(it.plan, QUERIES);
  it.scratch = block(it.scratch_bytes);
  it.slab_bytes = (uint64_t)ROWS * it.channels / it.slabs * shape->bits / 8;
  it.tile_bytes = it.slabs * it.slab_bytes;
  it.tiles = block(it.tile_bytes);
  it.scales = block(4 * ROWS);
  return it;
}

/* Rotated rows, codes, scales and tiles to the checksum. */
static uint32_t fill(stored *it) {
  const uint64_t least = kv_retrieval_scratch_bytes(it->plan, 1), count = (uint64_t)VECTORS * it->channels;
  float *y = block(4 * count), *scales = block(4 * VECTORS);
  uint8_t *codes = block(count), *padded = block((uint64_t)ROWS * it->channels);
  void *scratch = block(least);
  kv_error error;
  CHECK(kv_retrieval_rotate(it->plan, it->x, VECTORS, y, scratch, least, &error) == KV_OK);
  CHECK(kv_retrieval_encode(it->plan, it->x, VECTORS, codes, scales, scratch, least, &error) == KV_OK);
  memset(padded, 0, (uint64_t)ROWS * it->channels);
  memcpy(padded, codes, count);
  CHECK(kv_retrieval_pack(it->plan, padded, ROWS, it->tiles, it->slab_bytes, scratch, least, &error) == KV_OK);
  memset(it->scales, 0, 4 * ROWS);
  memcpy(it->scales, scales, 4 * VECTORS);
  uint32_t sum = crc(crc(0, y, 4 * count), codes, count);
  free(y), free(codes), free(padded), free(scales), free(scratch);
  return crc(crc(sum, it->scales, 4 * ROWS), it->tiles, it->tile_bytes);
}

static int32_t search(const stored *it, const uint8_t *allowed, uint32_t first, uint32_t count, uint32_t k, float *scores,
                      int64_t *rows, kv_error *error) {
  const float *q = it->q + (uint64_t)first * it->shape->dim;
  return kv_retrieval_search(it->plan, it->tiles, it->slab_bytes, it->scales, VECTORS, allowed, q, count, k, scores,
                             rows, it->scratch, it->scratch_bytes, error);
}

/* A search for `count` queries from the first on gives the first k of the ranking that the mask lets through. */
static void check_against(const stored *it, const float *scores, const int64_t *rows, const uint8_t *allowed,
                          uint32_t first, uint32_t count, uint32_t k) {
  float *some = block(4 * count * k);
  int64_t *found = block(8 * count * k);
  kv_error error;
  CHECK(search(it, allowed, first, count, k, some, found, &error) == KV_OK);
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0, n = 0; n < k; j++) {
      const uint64_t at = (uint64_t)(first + i) * VECTORS + j;
      if (allowed && !allowed[rows[at]]) continue;
      CHECK(found[i * k + n] == rows[at] && memcmp(&some[i * k + n], &scores[at], 4) == 0);
      n++;
    }
  free(some), free(found);
}

static uint32_t check_searches(const stored *it) {
  float *scores = block(4 * QUERIES * VECTORS);
  int64_t *rows = block(8 * QUERIES * VECTORS);
  uint8_t *allowed = block(VECTORS);
  kv_error error;
  CHECK(search(it, NULL, 0, QUERIES, VECTORS, scores, rows, &error) == KV_OK);
  for (uint32_t i = 0; i < QUERIES * VECTORS; i++) {
    CHECK(scores[i] - scores[i] == 0 && rows[i] >= 0 && rows[i] < VECTORS);
    if (i % VECTORS == 0) continue;
    CHECK(scores[i - 1] > scores[i] || (scores[i - 1] == scores[i] && rows[i - 1] < rows[i]));
  }
  for (uint32_t i = 0; i < VECTORS; i++) allowed[i] = i % 3 > 0;
  check_against(it, scores, rows, NULL, 0, QUERIES, BEST);
  check_against(it, scores, rows, allowed, 0, QUERIES, BEST);
  check_against(it, scores, rows, allowed, 5, 5, 2 * VECTORS / 3);
  for (uint32_t i = 0; i < QUERIES; i++) check_against(it, scores, rows, NULL, i, 1, 1 + i);
  const uint32_t sum = crc(crc(0, scores, 4 * QUERIES * VECTORS), rows, 8 * QUERIES * VECTORS);
  free(scores), free(rows), free(allowed);
  return sum;
}

static void check_refusals(stored *it) {
  float scores[BEST];
  int64_t rows[BEST];
  uint8_t *none = block(VECTORS);
  const kv_retrieval_spec bad[] = {{0, 4, 0}, {KV_RETRIEVAL_MAX_DIM + 1, 4, 0}, {64, 1, 0}, {64, 5, 0}};
  const kv_retrieval_spec good = {64, 4, 0};
  kv_error error;
  memset(none, 0, VECTORS);
  for (uint32_t i = 0; i < 4; i++) {
    CHECK(kv_retrieval_plan_bytes(&bad[i]) == 0);
    CHECK(kv_retrieval_plan_init(&bad[i], NULL, NULL, NULL, it->plan, 1 << 20, &error) == KV_E_SPEC);
  }
  CHECK(kv_retrieval_plan_bytes(NULL) == 0);
  const uint64_t bytes = kv_retrieval_plan_bytes(&good);
  uint8_t *plan = block(bytes);
  memset(plan, 0, bytes);
  CHECK(kv_retrieval_plan_init(&good, NULL, NULL, NULL, plan, bytes - 1, &error) == KV_E_ARGUMENT);
  CHECK(kv_retrieval_plan_init(&good, NULL, NULL, NULL, plan + 1, bytes, &error) == KV_E_ARGUMENT);
  CHECK(kv_retrieval_plan_init(&good, NULL, it->gain, NULL, plan, bytes, &error) == KV_E_ARGUMENT);
  CHECK(kv_retrieval_plan_init(&good, NULL, NULL, "none", plan, bytes, &error) == KV_E_VARIANT);
  CHECK(kv_retrieval_channels(plan) == 0 && kv_retrieval_slabs(plan) == 0 && kv_retrieval_scratch_bytes(plan, 1) == 0);
  CHECK(search(it, NULL, 0, 0, 1, scores, rows, &error) == KV_E_ARGUMENT);
  CHECK(search(it, NULL, 0, 1, 0, scores, rows, &error) == KV_E_ARGUMENT);
  CHECK(search(it, NULL, 0, 1, VECTORS + 1, scores, rows, &error) == KV_E_ARGUMENT);
  CHECK(search(it, none, 0, 1, 1, scores, rows, &error) == KV_E_ARGUMENT);
  CHECK(search(it, NULL, 0, 1, 1, NULL, rows, &error) == KV_E_ARGUMENT);
  it->scratch_bytes = kv_retrieval_scratch_bytes(it->plan, 1) - 1;
  CHECK(search(it, NULL, 0, 1, 1, scores, rows, &error) == KV_E_MEMORY);
  CHECK(kv_retrieval_encode(it->plan, it->x, 1, none, scores, it->scratch, it->scratch_bytes, &error) == KV_E_MEMORY);
  it->scratch_bytes++;
  CHECK(kv_retrieval_encode(it->plan, NULL, 1, none, scores, it->scratch, it->scratch_bytes, &error) == KV_E_ARGUMENT);
  CHECK(kv_retrieval_rotate(it->plan, it->x, 1, NULL, it->scratch, it->scratch_bytes, &error) == KV_E_ARGUMENT);
  CHECK(kv_retrieval_pack(it->plan, none, 15, it->tiles, it->slab_bytes, it->scratch, it->scratch_bytes, &error) ==
        KV_E_ARGUMENT);
  free(none), free(plan);
}

static void test(void) {
  for (uint32_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
    stored it = make(&SHAPES[i]);
    const uint32_t parts[2] = {fill(&it), check_searches(&it)}, sum = crc(0, parts, sizeof parts);
    if (sum != SHAPES[i].checksum)
      fprintf(stderr, "%s, %u x %u bits: checksum 0x%08x, not 0x%08x\n", forced.name, SHAPES[i].dim, SHAPES[i].bits, sum,
              SHAPES[i].checksum);
    CHECK(sum == SHAPES[i].checksum);
    check_refusals(&it);
    free(it.plan), free(it.scratch), free(it.x), free(it.q), free(it.shift), free(it.gain), free(it.scales);
    free(it.tiles);
  }
}

#if defined(KV_BUILT)
int main(void) {
  kv_error error;
  for (uint32_t v = 0; kv_variant_name(v); v++) {
    forced.name = kv_variant_name(v);
    if (kv_variant_runs(v, &error) == KV_OK) test();
    else printf("retrieval: not run: %s\n", error.message);
  }
  return closing("retrieval");
}
#elif !defined(KV_EMULATE)
int main(void) {
  CHECK(kv_retrieval_version() == KV_RETRIEVAL_VERSION);
  return for_each_variant("retrieval", 0, test);
}
#endif
