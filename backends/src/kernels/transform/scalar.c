#include "../scalar.h"

/* Block Hadamard without scaling: stages h = 1, 2, 4, ..., block / 2. */
static void hadamard(float *x, uint32_t d, uint32_t block) {
  for (uint32_t h = 1; h < block; h *= 2)
    for (uint32_t i = 0; i < d; i += 2 * h)
      for (uint32_t j = i; j < i + h; j++) {
        float a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
}

static void flip(float *x, const uint32_t *sign, uint32_t d) {
  for (uint32_t c = 0; c < d; c++) x[c] = kv_flip(x[c], sign[c]);
}

void kv_forward_scalar(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN_SCALAR(ran);
  for (; rows; rows--, x += d) {
    flip(x, t->sign1, d);
    hadamard(x, d, t->block);
    if (t->rounds < 2) continue;
    for (uint32_t c = 0; c < d; c++) y[c] = kv_flip(x[t->perm[c]], t->sign2[c]);
    hadamard(y, d, t->block);
    kv_copy(x, y, d * sizeof *x);
  }
}

void kv_inverse_scalar(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN_SCALAR(ran);
  for (; rows; rows--, x += d) {
    hadamard(x, d, t->block);
    if (t->rounds == 2) {
      for (uint32_t c = 0; c < d; c++) y[t->perm[c]] = kv_flip(x[c], t->sign2[c]);
      hadamard(y, d, t->block);
      kv_copy(x, y, d * sizeof *x);
    }
    flip(x, t->sign1, d);
  }
}
