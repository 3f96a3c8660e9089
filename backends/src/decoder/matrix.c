/* Stored matrices: how large, whether sound, one row. */
#include "decoder.h"
#include "quantized.h"

static uint32_t block_bytes(uint32_t type) {
  return type == KVD_F32 ? 4 * KVD_BLOCK : type == KVD_Q4_1 ? KVD_Q4_1_BYTES : type == KVD_Q8_0 ? KVD_Q8_0_BYTES : 0;
}

double kvd_matrix_bytes(uint32_t type, double rows, double columns) {
  double blocks = columns / KVD_BLOCK;
  double bytes = rows * blocks * block_bytes(type);
  if (!(bytes > 0 && bytes <= 0x1p53 && blocks <= 0x1p26 && rows <= 0x1p31)) return 0;
  return blocks == (double)(uint32_t)blocks ? bytes : 0;
}

static uint32_t half_finite(const uint8_t *bytes) { return (bytes[1] & 0x7cu) != 0x7cu; }

uint32_t kvd_matrix_finite(uint32_t type, const void *matrix, uint32_t rows, uint32_t columns) {
  uint64_t blocks = (uint64_t)rows * (columns / KVD_BLOCK);
  const uint8_t *block = matrix;
  uint32_t finite = 1;
  if (type == KVD_F32) {
    const float *x = matrix;
    for (uint64_t i = 0; i < blocks * KVD_BLOCK; i++) finite &= (kvd_bits(x[i]) & 0x7f800000u) != 0x7f800000u;
    return finite;
  }
  for (uint64_t b = 0; b < blocks; b++, block += block_bytes(type))
    finite &= half_finite(block) & (type == KVD_Q8_0 || half_finite(block + 2));
  return finite;
}

void kvd_embed(uint32_t type, const void *matrix, uint32_t row, uint32_t columns, float *out) {
  uint32_t blocks = columns / KVD_BLOCK;
  const uint8_t *block = (const uint8_t *)matrix + (uint64_t)row * blocks * block_bytes(type);
  if (type == KVD_F32) __builtin_memcpy(out, block, (uint64_t)columns * sizeof *out);
  if (type == KVD_F32 || block_bytes(type) == 0) return;
  for (uint32_t b = 0; b < blocks; b++, block += block_bytes(type)) {
    kvd_weights w = type == KVD_Q4_1 ? kvd_unpack_q4_1(block) : kvd_unpack_q8_0(block);
    float step = kvd_half(block), minimum = type == KVD_Q4_1 ? kvd_half(block + 2) : 0.0f;
    for (uint32_t c = 0; c < KVD_BLOCK; c++) *out++ = (float)w.part[c / 8][c % 8] * step + minimum;
  }
}
