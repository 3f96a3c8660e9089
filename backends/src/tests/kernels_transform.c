/* The transform: orthogonal up to its gain, exactly, for every head dim; a permutation; seeded. */
#include "kernels_support.h"

#include "core/base/transform.h"

static void inverse(const kv_transform *t, uint32_t gain) {
  const kv_kernels *k = forced.kernels;
  const uint32_t d = t->head_dim;
  float x[2 * KV_MAX_DIM], y[2 * KV_MAX_DIM];
  uint64_t state = d;
  uint32_t ran = 0;
  /* Small integers: every sum is exact, so T' T x = 2^E x to the last bit, and |T x|^2 = 2^E |x|^2. */
  for (uint32_t c = 0; c < 2 * d; c++) x[c] = (float)(int32_t)(draw(&state) % 7) - 3;
  memcpy(y, x, sizeof x);
  k->forward(t, y, 2, &ran);
  double before = 0, after = 0;
  for (uint32_t c = 0; c < d; c++) {
    before += (double)x[c] * x[c];
    after += (double)y[c] * y[c];
  }
  CHECK(after == before * (double)(1ull << gain));
  k->inverse(t, y, 2, &ran);
  for (uint32_t c = 0; c < 2 * d; c++) CHECK(y[c] == x[c] * (float)(1u << gain));
  CHECK(is_forced(ran));
}

/* The transpose: <T e_i, e_j> = <e_i, T' e_j>. */
static void transpose(const kv_transform *t) {
  const kv_kernels *k = forced.kernels;
  const uint32_t d = t->head_dim;
  float *forward = block(d * d * sizeof *forward), *back = block(d * d * sizeof *back);
  uint32_t ran = 0;
  memset(forward, 0, d * d * sizeof *forward);
  for (uint32_t i = 0; i < d; i++) forward[i * d + i] = 1;
  memcpy(back, forward, d * d * sizeof *back);
  k->forward(t, forward, d, &ran);
  k->inverse(t, back, d, &ran);
  CHECK(is_forced(ran));
  for (uint32_t i = 0; i < d; i++)
    for (uint32_t j = 0; j < d; j++) CHECK(forward[i * d + j] == back[j * d + i]);
  free(forward);
  free(back);
}

static void permutation(const kv_transform *t) {
  uint8_t seen[KV_MAX_DIM] = {0};
  for (uint32_t c = 0; c < t->head_dim; c++) {
    CHECK(t->perm[c] < t->head_dim && !seen[t->perm[c]]);
    seen[t->perm[c]] = 1;
  }
}

static void test(void) {
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16)
    for (uint32_t rounds = 1; rounds <= 2; rounds++) {
      const uint64_t bytes = kv_transform_bytes(d);
      uint8_t *tables = block(bytes), *again = block(bytes);
      kv_transform_make(42, KV_STREAM_KEYS, d, rounds, tables);
      kv_transform_make(42, KV_STREAM_KEYS, d, rounds, again);
      CHECK(memcmp(tables, again, bytes) == 0);
      kv_transform_make(42, KV_STREAM_VALUES, d, rounds, again);
      CHECK(memcmp(tables, again, bytes) != 0);
      kv_transform t = kv_transform_view(tables, d, rounds);
      inverse(&t, kv_transform_gain(d, rounds));
      if (d <= 128) transpose(&t);
      if (rounds == 2) permutation(&t);
      free(tables);
      free(again);
    }
}

int main(void) { return for_each_variant("kernels_transform", 0, test); }
