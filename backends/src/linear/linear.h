/* linear.h: y = x W^T over quantized weights, for float inputs rounded to 8 bits by blocks of 32.
 *
 * Eight rows of W lie beside each other, so that eight sums go on in the lanes of one register. The numbers are those
 * of GGUF's blocks, w = step * q (q8_0) or step * q + minimum (q4_1); a block of eight rows has, little endian,
 *   q4_1, 160 bytes: fp16 step[8], fp16 minimum[8], codes[4][8][4]: byte [j][r][i] has column 4j + i of row r in its low
 *                    half and column 16 + 4j + i in its high half;
 *   q8_0, 272 bytes: fp16 step[8], int8 codes[8][8][4]: [j][r][i] is column 4j + i of row r.
 *
 * Every variant adds in the same order, so all give the same bits: y = sum + minima, where over the blocks of a row, in
 * order, sum += (exact integer product) * (step * scale of x) and minima += minimum * (sum of x's block). */
#ifndef KV_LINEAR_H
#define KV_LINEAR_H

#include <stdint.h>

#define KV_LINEAR_BLOCK 32u
#define KV_LINEAR_ROWS 8u

typedef enum kv_weights { KV_WEIGHTS_Q4_1, KV_WEIGHTS_Q8_0 } kv_weights;

/* 32 inputs: value c is q[c] * scale. */
typedef struct kv_rounded {
  int8_t q[KV_LINEAR_BLOCK];
  float scale;
} kv_rounded;

typedef struct kv_linear {
  kv_weights kind;
  uint32_t blocks;     /* of a row: columns / 32 */
  uint64_t groups;     /* of eight rows, the outputs */
  uint64_t tokens;
  const uint8_t *matrix;
  const kv_rounded *x; /* [tokens][blocks] */
  const float *sums;   /* [tokens][blocks]: of the values of each block of x */
  float *y;            /* [tokens][groups][8] */
} kv_linear;

/* Bytes of a block of eight rows. */
static inline uint64_t kv_linear_bytes(kv_weights kind) { return kind == KV_WEIGHTS_Q4_1 ? 160 : 272; }

/* x [blocks][32] to out [blocks] and sums [blocks]: scale = max|x| / 127, q the nearest integers, ties to even. Not a
 * number and infinity stay in the scale. */
void kv_linear_round(const float *x, uint64_t blocks, kv_rounded *out, float *sums);

/* Groups [first, first + count) of every token. */
typedef void kv_linear_groups(const kv_linear *job, uint64_t first, uint64_t count);
kv_linear_groups kv_linear_scalar;
#if defined(__x86_64__)
kv_linear_groups kv_linear_avx2;
#endif

#endif
