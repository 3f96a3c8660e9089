#include "kernels/isa.h"

/* One stage of sixteen numbers; h is a constant where it is called, so that all loops unroll into vectors. */
static inline void stage(float x[16], uint32_t h) {
  float y[16];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < 16; i++) y[i] = i & h ? x[i - h] - x[i] : x[i] + x[i + h];
  kv_copy(x, y, sizeof y);
}

/* Stages 1, 2, 4 and 8 of sixteen channels. */
static void hadamard16(float *x) {
  float y[16];
  kv_copy(y, x, sizeof y);
  stage(y, 1);
  stage(y, 2);
  stage(y, 4);
  stage(y, 8);
  kv_copy(x, y, sizeof y);
}

/* A stage across groups of sixteen. */
static inline void pair16(float *a, float *b) {
  float x[16], y[16];
  kv_copy(x, a, sizeof x);
  kv_copy(y, b, sizeof y);
  for (uint32_t i = 0; i < 16; i++) a[i] = x[i] + y[i];
  for (uint32_t i = 0; i < 16; i++) b[i] = x[i] - y[i];
}

/* Block Hadamard without scaling: stages h = 1, 2, 4, ..., block / 2. A block is a multiple of 16. */
static void hadamard(float *x, uint32_t d, uint32_t block) {
  for (uint32_t i = 0; i < d; i += 16) hadamard16(x + i);
  for (uint32_t h = 16; h < block; h *= 2)
    for (uint32_t i = 0; i < d; i += 2 * h)
      for (uint32_t j = i; j < i + h; j += 16) pair16(x + j, x + j + h);
}

static void flip(float *x, const uint32_t *sign, uint32_t d) {
  for (uint32_t c = 0; c < d; c++) x[c] = kv_flip(x[c], sign[c]);
}

void KV_KERNEL(forward)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows; rows--, x += d) {
    flip(x, t->sign1, d);
    hadamard(x, d, t->block);
    if (t->rounds < 2) continue;
    for (uint32_t c = 0; c < d; c++) y[c] = kv_flip(x[t->perm[c]], t->sign2[c]);
    hadamard(y, d, t->block);
    kv_copy(x, y, d * sizeof *x);
  }
}

void KV_KERNEL(inverse)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
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
