/* The inputs' rounding, and products in plain C. */
#include "linear.h"

#include "core/base/bits.h"

#define SMALLEST 0x1p-100f /* blocks below are zeros: their reciprocal would not be a number */

static uint32_t largest(const float *x) {
  uint32_t most = 0;
  for (uint32_t c = 0; c < KV_LINEAR_BLOCK; c++) {
    const uint32_t bits = kv_bits(x[c]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  return most;
}

/* One block; the sum of its values. */
static float round_block(const float *x, kv_rounded *out) {
  const float most = kv_float(largest(x)), inverse = most < SMALLEST ? 0.0f : 127.0f / most;
  int32_t sum = 0;
  for (uint32_t c = 0; c < KV_LINEAR_BLOCK; c++) {
    out->q[c] = (int8_t)(kv_bits(x[c] * inverse + 12582912.0f) - 0x4b400000u);
    sum += out->q[c];
  }
  out->scale = most < SMALLEST ? 0.0f : most / 127.0f;
  return out->scale * (float)sum;
}

void kv_linear_round(const float *x, uint64_t blocks, kv_rounded *out, float *sums) {
  for (uint64_t b = 0; b < blocks; b++) sums[b] = round_block(x + b * KV_LINEAR_BLOCK, out + b);
}

/* Column `column` of row r in a block of eight rows. */
static int32_t weight(kv_weights kind, const uint8_t *block, uint32_t r, uint32_t column) {
  const uint32_t within = (column & 15u) / 4 * 32 + 4 * r + (column & 3u);
  if (kind == KV_WEIGHTS_Q8_0) return (int8_t)block[16 + column / 4 * 32 + 4 * r + (column & 3u)];
  return column < 16 ? block[32 + within] & 15 : block[32 + within] >> 4;
}

static void group(const kv_linear *job, const uint8_t *block, uint64_t token, float *y) {
  const kv_rounded *x = job->x + token * job->blocks;
  const float *sums = job->sums + token * job->blocks;
  float sum[KV_LINEAR_ROWS] = {0}, minima[KV_LINEAR_ROWS] = {0};
  for (uint32_t b = 0; b < job->blocks; b++, block += kv_linear_bytes(job->kind)) {
    for (uint32_t r = 0; r < KV_LINEAR_ROWS; r++) {
      int32_t product = 0;
      for (uint32_t c = 0; c < KV_LINEAR_BLOCK; c++) product += weight(job->kind, block, r, c) * x[b].q[c];
      sum[r] += (float)product * (kv_f32(kv_load16(block + 2 * r)) * x[b].scale);
      if (job->kind == KV_WEIGHTS_Q4_1) minima[r] += kv_f32(kv_load16(block + 16 + 2 * r)) * sums[b];
    }
  }
  for (uint32_t r = 0; r < KV_LINEAR_ROWS; r++) y[r] = sum[r] + minima[r];
}

void kv_linear_scalar(const kv_linear *job, uint64_t first, uint64_t count) {
  const uint64_t bytes = job->blocks * kv_linear_bytes(job->kind);
  for (uint64_t g = first; g < first + count; g++)
    for (uint64_t t = 0; t < job->tokens; t++)
      group(job, job->matrix + g * bytes, t, job->y + (t * job->groups + g) * KV_LINEAR_ROWS);
}
