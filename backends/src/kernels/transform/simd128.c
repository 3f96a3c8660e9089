#include "kernels/simd128.h"

/* Stages 1 and 2: a + b stays where the channel's bit is clear, and swapped + (-x) is a - b. */
KV_ALWAYS v128_t stages4(v128_t x) {
  const v128_t odd = wasm_u32x4_const(0, 0x80000000u, 0, 0x80000000u);
  const v128_t upper = wasm_u32x4_const(0, 0, 0x80000000u, 0x80000000u);
  x = wasm_f32x4_add(wasm_i32x4_shuffle(x, x, 1, 0, 3, 2), wasm_v128_xor(x, odd));
  return wasm_f32x4_add(wasm_i32x4_shuffle(x, x, 2, 3, 0, 1), wasm_v128_xor(x, upper));
}

KV_ALWAYS void pair(v128_t *a, v128_t *b) {
  const v128_t sum = wasm_f32x4_add(*a, *b);
  *b = wasm_f32x4_sub(*a, *b);
  *a = sum;
}

/* Stages 1, 2, 4 and 8 of sixteen channels, of sign * x. */
KV_ALWAYS void sixteen(float *x, const uint32_t *sign) {
  v128_t part[4];
#pragma GCC unroll 4
  for (uint32_t k = 0; k < 4; k++) {
    part[k] = KV_LOAD(x + 4 * k);
    if (sign) part[k] = wasm_v128_xor(part[k], KV_LOAD(sign + 4 * k));
    part[k] = stages4(part[k]);
  }
  pair(&part[0], &part[1]), pair(&part[2], &part[3]);
  pair(&part[0], &part[2]), pair(&part[1], &part[3]);
#pragma GCC unroll 4
  for (uint32_t k = 0; k < 4; k++) KV_STORE(x + 4 * k, part[k]);
}

static void pairs(float *x, uint32_t d, uint32_t h) {
  for (uint32_t i = 0; i < d; i += 2 * h)
    for (uint32_t j = i; j < i + h; j += 4) {
      v128_t a = KV_LOAD(x + j), b = KV_LOAD(x + j + h);
      pair(&a, &b);
      KV_STORE(x + j, a);
      KV_STORE(x + j + h, b);
    }
}

/* Stages h and 2h in one pass over memory. */
static void fours(float *x, uint32_t d, uint32_t h) {
  for (uint32_t i = 0; i < d; i += 4 * h)
    for (uint32_t j = i; j < i + h; j += 4) {
      v128_t part[4];
#pragma GCC unroll 4
      for (uint32_t k = 0; k < 4; k++) part[k] = KV_LOAD(x + j + k * h);
      pair(&part[0], &part[1]), pair(&part[2], &part[3]);
      pair(&part[0], &part[2]), pair(&part[1], &part[3]);
#pragma GCC unroll 4
      for (uint32_t k = 0; k < 4; k++) KV_STORE(x + j + k * h, part[k]);
    }
}

/* Block Hadamard of sign * x; sign NULL: of x. */
static void hadamard(float *x, const uint32_t *sign, uint32_t d, uint32_t block) {
  uint32_t h = 16;
  for (uint32_t c = 0; c < d; c += 16) sixteen(x + c, sign ? sign + c : 0);
  for (; 4 * h <= block; h *= 4) fours(x, d, h);
  if (h < block) pairs(x, d, h);
}

static void flip(float *x, const float *y, const uint32_t *sign, uint32_t d) {
  for (uint32_t c = 0; c < d; c += 4) KV_STORE(x + c, wasm_v128_xor(KV_LOAD(y + c), KV_LOAD(sign + c)));
}

void KV_KERNEL(forward)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows; rows--, x += d) {
    hadamard(x, t->sign1, d, t->block);
    if (t->rounds < 2) continue;
    kv_copy(y, x, d * sizeof *y);
    for (uint32_t c = 0; c < d; c++) x[c] = y[t->perm[c]];
    hadamard(x, t->sign2, d, t->block);
  }
}

void KV_KERNEL(inverse)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows; rows--, x += d) {
    hadamard(x, 0, d, t->block);
    if (t->rounds == 2) {
      flip(y, x, t->sign2, d);
      for (uint32_t c = 0; c < d; c++) x[t->perm[c]] = y[c];
      hadamard(x, 0, d, t->block);
    }
    flip(x, x, t->sign1, d);
  }
}
