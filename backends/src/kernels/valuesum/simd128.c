/* Lane = channel, summand = token. 14-bit weights and u = centroid + 64 as 16-bit integers; 64 times the sum of the
 * weights is taken off at the start. 1024 * 16383 * 127 is below 2^31. */
#include "../tiles/simd128.h"

typedef struct weights {
  v128_t columns[KV_MAX_PAGE / 2]; /* two for four tokens */
  int32_t offset[KV_ROWS];         /* -64 * their sum */
} weights;

/* Half a group over all tokens. A tile holds `step` tokens, those of this half from `ahead` on. */
KV_ALWAYS void half_group(const uint8_t *tiles, uint32_t tokens, v128_t table, const weights *x, uint32_t half,
                          uint32_t step, uint32_t ahead, uint32_t bits, uint32_t rows, v128_t (*acc)[2]) {
  for (uint32_t j = 0; j < tokens; j += step, tiles += 8 * bits)
    kv_add_half16(tiles, bits, half, table, x->columns + (j + ahead) / 2, rows, acc);
}

KV_ALWAYS void start(const weights *x, int whole, uint32_t rows, v128_t (*acc)[2]) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) acc[r][0] = acc[r][1] = wasm_i32x4_splat(whole ? x->offset[r] : 0);
}

KV_ALWAYS void finish(int32_t *out, uint32_t stride, uint32_t rows, v128_t (*acc)[2]) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++, out += stride) {
    KV_STORE(out, acc[r][0]);
    KV_STORE(out + 4, acc[r][1]);
  }
}

/* A group of 16 channels. */
KV_ALWAYS void wide(const uint8_t *tiles, uint32_t tokens, v128_t table, const weights *x, int32_t *out,
                    uint32_t stride, uint32_t bits, uint32_t rows) {
  v128_t acc[KV_ROWS][2];
  start(x, 1, rows, acc);
  half_group(tiles, tokens, table, x, 0, 4, 0, bits, rows, acc);
  finish(out, stride, rows, acc);
  start(x, 1, rows, acc);
  half_group(tiles, tokens, table, x, 1, 4, 0, bits, rows, acc);
  finish(out + 8, stride, rows, acc);
}

/* A group of 8: lanes 8-15 are the same channels of the four tokens after those of lanes 0-7. */
KV_ALWAYS void narrow(const uint8_t *tiles, uint32_t tokens, v128_t table, const weights *x, int32_t *out,
                      uint32_t stride, uint32_t bits, uint32_t rows) {
  v128_t acc[KV_ROWS][2];
  start(x, 1, rows, acc);
  half_group(tiles, tokens, table, x, 0, 8, 0, bits, rows, acc);
  half_group(tiles, tokens, table, x, 1, 8, 4, bits, rows, acc);
  finish(out, stride, rows, acc);
}

#define PARAMETERS \
  (const uint8_t *tiles, uint32_t tokens, v128_t table, const weights *x, int32_t *out, uint32_t stride)
KV_INSTANCES(wide, PARAMETERS, tiles, tokens, table, x, out, stride)
KV_INSTANCES(narrow, PARAMETERS, tiles, tokens, table, x, out, stride)

void KV_KERNEL(valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                         int32_t *out, uint32_t stride, uint32_t *ran) {
  const v128_t table = kv_table_simd128(span);
  weights x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS, w += KV_ROWS * tokens, out += KV_ROWS * stride) {
    const uint32_t count = rows - r < KV_ROWS ? rows - r : KV_ROWS;
    const uint8_t *next = tiles;
    kv_columns16(w, tokens, count, x.columns);
    for (uint32_t i = 0; i < count; i++) x.offset[i] = -KV_OFFSET * kv_sum16(w + i * tokens, tokens);
    for (uint32_t c = 0; c < span->channels; c += 16) {
      (span->channels - c < 16 ? narrow_of : wide_of)[span->bits - 1][count - 1](next, tokens, table, &x, out + c, stride);
      next += 2ull * tokens * span->bits;
    }
  }
}
