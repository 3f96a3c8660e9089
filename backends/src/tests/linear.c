/* Products with quantized weights: every variant that runs against binary64 and each other, in blocks of exactly their
 * size. */
#include "kernels_support.h"

#include <math.h>

#include "core/dispatch/cpu.h"
#include "linear/linear.h"

enum { GROUPS = 3, BLOCKS = 3, TOKENS = 6, COLUMNS = BLOCKS * 32, ROWS = GROUPS * 8 };

static uint64_t stream = 5;
#if defined(__x86_64__)
static int wide_runs;
#endif

/* Random codes, steps of 0.1 to 0.2 and, of q4_1, minima of about -0.5. */
static uint8_t *weights(kv_weights kind) {
  const uint64_t bytes = kv_linear_bytes(kind);
  uint8_t *matrix = block(GROUPS * BLOCKS * bytes);
  for (uint64_t i = 0; i < GROUPS * BLOCKS * bytes; i++) matrix[i] = (uint8_t)draw(&stream);
  for (uint64_t b = 0; b < GROUPS * BLOCKS; b++)
    for (uint32_t r = 0; r < (kind == KV_WEIGHTS_Q4_1 ? 16 : 8); r++)
      kv_store16(matrix + b * bytes + 2 * r, (uint16_t)((r < 8 ? 0x2e66 : 0xb800) + (draw(&stream) & 255)));
  return matrix;
}

/* Weight (row, column) as the header describes it. */
static double weight(kv_weights kind, const uint8_t *matrix, uint32_t row, uint32_t column) {
  const uint32_t r = row % 8, c = column % 32;
  const uint8_t *b = matrix + (row / 8 * BLOCKS + column / 32) * kv_linear_bytes(kind);
  const double step = kv_f32(kv_load16(b + 2 * r));
  if (kind == KV_WEIGHTS_Q8_0) return step * (int8_t)b[16 + c / 4 * 32 + r * 4 + c % 4];
  const uint8_t byte = b[32 + c % 16 / 4 * 32 + r * 4 + c % 4];
  return step * (c < 16 ? byte & 15 : byte >> 4) + kv_f32(kv_load16(b + 16 + 2 * r));
}

static float *multiplied(kv_linear job, kv_linear_groups *run, uint64_t tokens) {
  job.tokens = tokens;
  job.y = block(tokens * ROWS * sizeof(float));
  run(&job, 0, 1);
  run(&job, 1, GROUPS - 1);
  return job.y;
}

static void near_binary64(const kv_linear *job, const float *y, uint64_t tokens) {
  for (uint64_t t = 0; t < tokens; t++)
    for (uint32_t row = 0; row < ROWS; row++) {
      double sum = 0, size = 0;
      for (uint32_t c = 0; c < COLUMNS; c++) {
        const kv_rounded *x = &job->x[t * BLOCKS + c / 32];
        const double product = weight(job->kind, job->matrix, row, c) * x->q[c % 32] * (double)x->scale;
        sum += product;
        size += fabs(product);
      }
      CHECK(fabs(y[t * ROWS + row] - sum) <= 1e-5 * size);
    }
}

static void products(kv_weights kind) {
  float *x = block(TOKENS * COLUMNS * sizeof *x);
  for (uint32_t i = 0; i < TOKENS * COLUMNS; i++) x[i] = draw_float(&stream);
  kv_rounded *rounded = block(TOKENS * BLOCKS * sizeof *rounded);
  float *sums = block(TOKENS * BLOCKS * sizeof *sums);
  kv_linear_round(x, TOKENS * BLOCKS, rounded, sums);
  uint8_t *matrix = weights(kind);
  const kv_linear job = {.kind = kind, .blocks = BLOCKS, .groups = GROUPS, .matrix = matrix, .x = rounded, .sums = sums};
  for (uint64_t tokens = 1; tokens <= TOKENS; tokens++) {
    float *plain = multiplied(job, kv_linear_scalar, tokens);
    near_binary64(&job, plain, tokens);
#if defined(__x86_64__)
    if (wide_runs) {
      float *wide = multiplied(job, kv_linear_avx2, tokens);
      CHECK(memcmp(plain, wide, tokens * ROWS * sizeof *plain) == 0);
      free(wide);
    }
#endif
    free(plain);
  }
  free(x), free(rounded), free(sums), free(matrix);
}

static void rounding(void) {
  float x[64] = {0}, sums[2];
  kv_rounded out[2];
  for (uint32_t c = 0; c < 32; c++) x[c] = c == 3 ? -254.0f : (float)c;
  x[40] = 0x1p-120f; /* a block of nothing but such is zeros */
  kv_linear_round(x, 2, out, sums);
  CHECK(out[0].scale == 2.0f && out[0].q[3] == -127);
  CHECK(out[0].q[1] == 0 && out[0].q[5] == 2); /* 0.5 and 2.5 go to the even neighbour */
  int32_t sum = 0;
  for (uint32_t c = 0; c < 32; c++) sum += out[0].q[c];
  CHECK(sums[0] == 2.0f * (float)sum);
  CHECK(out[1].scale == 0.0f && sums[1] == 0.0f && out[1].q[8] == 0);
  x[7] = __builtin_nanf("");
  kv_linear_round(x, 2, out, sums);
  CHECK(out[0].scale != out[0].scale);
}

int main(void) {
#if defined(__x86_64__)
  const char *missing = kv_cpu_lacks_avx2();
  wide_runs = missing == NULL;
  if (missing) printf("linear: variant avx2 not run: this CPU lacks %s\n", missing);
  if (missing && required("avx2")) return 1;
#endif
  rounding();
  products(KV_WEIGHTS_Q4_1);
  products(KV_WEIGHTS_Q8_0);
  return closing("linear");
}
