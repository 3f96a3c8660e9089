#include "avx2_eight.h"

/* A stage within eight channels: a + b stays where the channel's bit is clear, and swapped + (-x) is a - b. */
#define STAGE(x, swapped, signs) _mm256_add_ps(swapped, _mm256_xor_ps(x, signs))

static inline __m256 stages8(__m256 x) {
  const float m = -0.0f;
  x = STAGE(x, _mm256_permute_ps(x, 0xb1), _mm256_setr_ps(0, m, 0, m, 0, m, 0, m));
  x = STAGE(x, _mm256_permute_ps(x, 0x4e), _mm256_setr_ps(0, 0, m, m, 0, 0, m, m));
  return STAGE(x, _mm256_permute2f128_ps(x, x, 0x01), _mm256_setr_ps(0, 0, 0, 0, m, m, m, m));
}

static inline __m256 flipped(const float *x, const uint32_t *sign) {
  return _mm256_xor_ps(_mm256_loadu_ps(x), _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)sign)));
}

/* Stages 1, 2, 4 and 8 of sixteen channels. */
static inline void sixteen(float *x, __m256 a, __m256 b) {
  a = stages8(a), b = stages8(b);
  _mm256_storeu_ps(x, _mm256_add_ps(a, b));
  _mm256_storeu_ps(x + 8, _mm256_sub_ps(a, b));
}

/* Stages 16 and above. */
static void wide_stages(float *x, uint32_t d, uint32_t block) {
  uint32_t h = 16;
  for (; 4 * h <= block; h *= 4) fours(x, d, h);
  if (h < block) pairs(x, d, h);
}

static void hadamard(float *x, uint32_t d, uint32_t block) {
  for (uint32_t c = 0; c < d; c += 16) sixteen(x + c, _mm256_loadu_ps(x + c), _mm256_loadu_ps(x + c + 8));
  wide_stages(x, d, block);
}

/* Hadamard of sign * x. */
static void hadamard_flipped(float *x, const uint32_t *sign, uint32_t d, uint32_t block) {
  for (uint32_t c = 0; c < d; c += 16) sixteen(x + c, flipped(x + c, sign + c), flipped(x + c + 8, sign + c + 8));
  wide_stages(x, d, block);
}

static void flip(float *x, const float *y, const uint32_t *sign, uint32_t d) {
  for (uint32_t c = 0; c < d; c += 8) _mm256_storeu_ps(x + c, flipped(y + c, sign + c));
}

static void forward_eight(const kv_transform *t, float *x) {
  float y[8 * KV_MAX_DIM], z[8 * KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  __m256 in[8];
  for (uint32_t c = 0; c < d; c += 8) {
    transposed(x + c, d, in);
    first_stages(in, t->sign1 + c, y + 8 * c);
  }
  const float *last = forward_rest(t, y, z);
  for (uint32_t c = 0; c < d; c += 8) {
    transposed(last + 8 * c, 8, in);
    for (uint32_t i = 0; i < 8; i++) _mm256_storeu_ps(x + i * d + c, in[i]);
  }
}

/* Gathered one by one: vpgatherdd costs more on every CPU of this instruction set's first ten years. */
void KV_KERNEL(forward)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows >= 8; rows -= 8, x += 8 * d) forward_eight(t, x);
  for (; rows; rows--, x += d) {
    hadamard_flipped(x, t->sign1, d, t->block);
    if (t->rounds < 2) continue;
    kv_copy(y, x, d * sizeof *y);
    for (uint32_t c = 0; c < d; c++) x[c] = y[t->perm[c]];
    hadamard_flipped(x, t->sign2, d, t->block);
  }
}

void KV_KERNEL(inverse)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran) {
  float y[KV_MAX_DIM];
  const uint32_t d = t->head_dim;
  KV_RAN(ran);
  for (; rows; rows--, x += d) {
    hadamard(x, d, t->block);
    if (t->rounds == 2) {
      flip(y, x, t->sign2, d);
      for (uint32_t c = 0; c < d; c++) x[t->perm[c]] = y[c];
      hadamard(x, d, t->block);
    }
    flip(x, x, t->sign1, d);
  }
}
