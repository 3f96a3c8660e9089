/* The decoder's kernels against binary64, in blocks of exactly their size. The library has no decoder: its sources are
 * part of this program. */
#include "kernels_support.h"

#include <math.h>

#include "decoder/activate.c"
#include "decoder/elementwise.c"
#include "decoder/matmul.c"
#include "decoder/matrix.c"
#include "decoder/uniform.c"

enum { ROWS = 7, COLUMNS = 96, TOKENS = 6 };

static uint64_t stream = 5;

static float *floats(uint32_t n) {
  float *x = block(n * sizeof *x);
  for (uint32_t i = 0; i < n; i++) x[i] = draw_float(&stream);
  return x;
}

/* A matrix of random integers with sound scales: fp16 0.1 and -0.5. */
static uint8_t *matrix_of(uint32_t type, uint64_t bytes) {
  if (type == KVD_F32) return (uint8_t *)floats((uint32_t)(bytes / sizeof(float)));
  uint8_t *matrix = block(bytes);
  for (uint64_t i = 0; i < bytes; i++) matrix[i] = (uint8_t)draw(&stream);
  const uint16_t step = 0x2e66, minimum = 0xb800;
  for (uint64_t at = 0; at < bytes; at += type == KVD_Q4_1 ? KVD_Q4_1_BYTES : KVD_Q8_0_BYTES) {
    memcpy(matrix + at, &step, 2);
    if (type == KVD_Q4_1) memcpy(matrix + at + 2, &minimum, 2);
  }
  return matrix;
}

/* Element c of a row, from GGUF's definition. */
static double element(uint32_t type, const uint8_t *matrix, uint32_t index) {
  const double step = 0x666p-14, minimum = -0.5; /* fp16 0x2e66, 0xb800 */
  uint32_t b = index / 32, c = index % 32;
  if (type == KVD_F32) return ((const float *)(const void *)matrix)[index];
  if (type == KVD_Q8_0) return step * (int8_t)matrix[b * 34 + 2 + c];
  uint8_t byte = matrix[b * 20 + 4 + c % 16];
  return step * (c < 16 ? byte & 15 : byte >> 4) + minimum;
}

static void products(uint32_t type) {
  double size = kvd_matrix_bytes(type, ROWS, COLUMNS);
  CHECK(size == ROWS * COLUMNS / 32.0 * (type == KVD_F32 ? 128 : type == KVD_Q4_1 ? 20 : 34));
  uint8_t *matrix = matrix_of(type, (uint64_t)size);
  float *x = floats(TOKENS * COLUMNS), *y = floats(TOKENS * ROWS), *row = floats(COLUMNS);
  kvd_activation *activations = block(TOKENS * COLUMNS / 32 * sizeof *activations);
  memset(x, 0, 32 * sizeof *x); /* a block of zeros, one of numbers that mean nothing */
  x[32] = 1e-42f;
  kvd_activate(x, TOKENS, COLUMNS, activations);
  kvd_matmul(type, matrix, ROWS, COLUMNS, x, activations, TOKENS, y);
  for (uint32_t r = 0; r < ROWS; r++) {
    kvd_embed(type, matrix, r, COLUMNS, row);
    for (uint32_t c = 0; c < COLUMNS; c++) CHECK(fabs(row[c] - element(type, matrix, r * COLUMNS + c)) <= 1e-6 * 26);
    for (uint32_t t = 0; t < TOKENS; t++) {
      double sum = 0, weight = 0;
      for (uint32_t c = 0; c < COLUMNS; c++) {
        double term = element(type, matrix, r * COLUMNS + c) * x[t * COLUMNS + c];
        sum += term, weight += fabs(term);
      }
      CHECK(fabs(y[t * ROWS + r] - sum) <= 3e-5 * weight);
    }
  }
  /* One token at a time gives the same bits as tiles of several. */
  for (uint32_t t = 0; t < TOKENS; t++) {
    float alone[ROWS];
    kvd_matmul(type, matrix, ROWS, COLUMNS, x + t * COLUMNS, activations + t * COLUMNS / 32, 1, alone);
    CHECK(memcmp(alone, y + t * ROWS, sizeof alone) == 0);
  }
  free(matrix), free(x), free(y), free(row), free(activations);
}

static void soundness(uint32_t type) {
  uint64_t bytes = (uint64_t)kvd_matrix_bytes(type, 2, 64);
  uint8_t *matrix = matrix_of(type, bytes);
  CHECK(kvd_matrix_finite(type, matrix, 2, 64));
  const uint8_t infinity[4] = {0, 0, 0x80, 0x7f};
  if (type == KVD_F32) memcpy(matrix + bytes - 4, infinity, 4);
  if (type == KVD_Q4_1) matrix[bytes - 17] = 0x7c; /* the last minimum */
  if (type == KVD_Q8_0) matrix[bytes - 33] = 0xfe;
  CHECK(!kvd_matrix_finite(type, matrix, 2, 64));
  free(matrix);
}

static void sizes(void) {
  CHECK(kvd_matrix_bytes(KVD_Q4_1, 1, 33) == 0);
  CHECK(kvd_matrix_bytes(7, 1, 32) == 0);
  CHECK(kvd_matrix_bytes(KVD_Q4_1, 1e300, 32) == 0);
  CHECK(kvd_matrix_bytes(KVD_Q4_1, -1, 32) == 0);
  CHECK(kvd_matrix_bytes(KVD_Q4_1, NAN, 32) == 0);
  CHECK(kvd_matrix_bytes(KVD_F32, 0x1p31, 0x1p31) == 0);
}

static void between_matrices(void) {
  for (int32_t i = -9000; i <= 9000; i++) {
    float gate = (float)i / 100, up = 2;
    double expected = 2 * (double)gate / (1 + exp(-(double)gate));
    kvd_swiglu(&gate, &up, 1);
    CHECK(fabs(gate - expected) <= 4e-7 * fabs(expected) + 1e-30);
  }
  float *x = floats(2 * COLUMNS), *weight = floats(COLUMNS), *y = floats(2 * COLUMNS);
  kvd_rms_norm(x, weight, 2, COLUMNS, 1e-5f, y);
  for (uint32_t t = 0; t < 2; t++) {
    double square = 0;
    for (uint32_t c = 0; c < COLUMNS; c++) square += (double)x[t * COLUMNS + c] * x[t * COLUMNS + c];
    for (uint32_t c = 0; c < COLUMNS; c++) {
      double expected = x[t * COLUMNS + c] / sqrt(square / COLUMNS + 1e-5) * weight[c];
      CHECK(fabs(y[t * COLUMNS + c] - expected) <= 1e-6 * fabs(expected));
    }
  }
  float pair[4] = {1, 2, 3, 4}, cosines[2] = {0, 1}, sines[2] = {1, 0};
  kvd_rope(pair, 1, 4, cosines, sines);
  CHECK(pair[0] == -2 && pair[1] == 1 && pair[2] == 3 && pair[3] == 4);
  kvd_add(pair, pair, 4);
  CHECK(pair[0] == -4 && pair[3] == 8);
  free(x), free(weight), free(y);
}

/* Values that are not finite come from a model that is broken: no particular result, but no undefined behaviour. */
static void not_finite(void) {
  float x[KVD_BLOCK];
  kvd_activation activation;
  for (uint32_t c = 0; c < KVD_BLOCK; c++) x[c] = c % 3 ? INFINITY : NAN;
  kvd_activate(x, 1, KVD_BLOCK, &activation);
  kvd_swiglu(x, x, KVD_BLOCK);
  CHECK(!isfinite(x[0]));
}

int main(void) {
  const uint32_t types[] = {KVD_F32, KVD_Q4_1, KVD_Q8_0};
  for (int i = 0; i < 3; i++) products(types[i]), soundness(types[i]);
  sizes();
  between_matrices();
  not_finite();
  return closing("decoder_kernels");
}
