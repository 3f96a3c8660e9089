/* Matrix products over stored weights. */
#include "decoder.h"
#include "quantized.h"

/* sum[t] of one row with `tokens` activations, `stride` blocks apart. Inlined with constant tokens, so that the sums
 * stay in registers. */
static inline __attribute__((always_inline)) void row_q4_1(const uint8_t *row, uint32_t blocks,
                                                           const kvd_activation *x, uint32_t tokens, float *sums) {
  kvd_f4 sum[KVD_TILE] = {{0}};
  float minima[KVD_TILE] = {0};
  for (uint32_t b = 0; b < blocks; b++, row += KVD_Q4_1_BYTES) {
    kvd_weights w = kvd_unpack_q4_1(row);
    float step = kvd_half(row), minimum = kvd_half(row + 2);
    for (uint32_t t = 0; t < tokens; t++) {
      const kvd_activation *a = x + (uint64_t)t * blocks + b;
      kvd_i4 dot = kvd_dot(w.part[0], kvd_load_s8(a->q)) + kvd_dot(w.part[1], kvd_load_s8(a->q + 8)) +
                   kvd_dot(w.part[2], kvd_load_s8(a->q + 16)) + kvd_dot(w.part[3], kvd_load_s8(a->q + 24));
      sum[t] = sum[t] + __builtin_convertvector(dot, kvd_f4) * kvd_splat(step * a->scale);
      minima[t] = minima[t] + minimum * a->sum;
    }
  }
  for (uint32_t t = 0; t < tokens; t++) sums[t] = kvd_lane_sum(sum[t]) + minima[t];
}

static inline __attribute__((always_inline)) void row_q8_0(const uint8_t *row, uint32_t blocks,
                                                           const kvd_activation *x, uint32_t tokens, float *sums) {
  kvd_f4 sum[KVD_TILE] = {{0}};
  for (uint32_t b = 0; b < blocks; b++, row += KVD_Q8_0_BYTES) {
    kvd_weights w = kvd_unpack_q8_0(row);
    float step = kvd_half(row);
    for (uint32_t t = 0; t < tokens; t++) {
      const kvd_activation *a = x + (uint64_t)t * blocks + b;
      kvd_i4 dot = kvd_dot(w.part[0], kvd_load_s8(a->q)) + kvd_dot(w.part[1], kvd_load_s8(a->q + 8)) +
                   kvd_dot(w.part[2], kvd_load_s8(a->q + 16)) + kvd_dot(w.part[3], kvd_load_s8(a->q + 24));
      sum[t] = sum[t] + __builtin_convertvector(dot, kvd_f4) * kvd_splat(step * a->scale);
    }
  }
  for (uint32_t t = 0; t < tokens; t++) sums[t] = kvd_lane_sum(sum[t]);
}

static float row_f32(const float *row, uint32_t columns, const float *x) {
  kvd_f4 sum[4] = {{0}};
  for (uint32_t c = 0; c < columns; c += 16)
    for (uint32_t i = 0; i < 4; i++) sum[i] = sum[i] + kvd_load(row + c + 4 * i) * kvd_load(x + c + 4 * i);
  return kvd_lane_sum((sum[0] + sum[2]) + (sum[1] + sum[3]));
}

typedef void kvd_row(const uint8_t *row, uint32_t blocks, const kvd_activation *x, uint32_t tokens, float *sums);

static inline __attribute__((always_inline)) void quantized(kvd_row *row, uint32_t row_bytes, const uint8_t *matrix,
                                                            uint32_t rows, uint32_t blocks, const kvd_activation *x,
                                                            uint32_t tokens, float *y) {
  float sums[KVD_TILE];
  for (uint32_t r = 0; r < rows; r++, matrix += row_bytes) {
    uint32_t t = 0;
    for (; t + KVD_TILE <= tokens; t += KVD_TILE) {
      row(matrix, blocks, x + (uint64_t)t * blocks, KVD_TILE, sums);
      for (uint32_t i = 0; i < KVD_TILE; i++) y[(uint64_t)(t + i) * rows + r] = sums[i];
    }
    for (; t < tokens; t++) row(matrix, blocks, x + (uint64_t)t * blocks, 1, y + (uint64_t)t * rows + r);
  }
}

void kvd_matmul(uint32_t type, const void *matrix, uint32_t rows, uint32_t columns, const float *x,
                const kvd_activation *activations, uint32_t tokens, float *y) {
  uint32_t blocks = columns / KVD_BLOCK;
  if (type == KVD_Q4_1) quantized(row_q4_1, blocks * KVD_Q4_1_BYTES, matrix, rows, blocks, activations, tokens, y);
  if (type == KVD_Q8_0) quantized(row_q8_0, blocks * KVD_Q8_0_BYTES, matrix, rows, blocks, activations, tokens, y);
  if (type != KVD_F32) return;
  const float *weights = matrix;
  for (uint32_t r = 0; r < rows; r++, weights += columns)
    for (uint32_t t = 0; t < tokens; t++)
      y[(uint64_t)t * rows + r] = row_f32(weights, columns, x + (uint64_t)t * columns);
}
