/* Input vectors as 15-bit integers with a scale a block. */
#include "decoder.h"
#include "lanes.h"

static void activate_block(const float *x, kvd_activation *out) {
  float largest = 0;
  for (uint32_t c = 0; c < KVD_BLOCK; c++) {
    float magnitude = kvd_float(kvd_bits(x[c]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
  /* Below 2^-110 the quotient would overflow, and the values are nothing to any sum. */
  float inverse = largest < 0x1p-110f ? 0.0f : 32767.0f / largest;
  int32_t sum = 0;
  for (uint32_t c = 0; c < KVD_BLOCK; c++) {
    out->q[c] = (int16_t)kvd_round(x[c] * inverse); /* of what is not finite, anything; the logits tell */
    sum += out->q[c];
  }
  out->scale = largest * (1.0f / 32767.0f);
  out->sum = (float)sum * out->scale;
}

void kvd_activate(const float *x, uint32_t tokens, uint32_t n, kvd_activation *out) {
  uint32_t blocks = n / KVD_BLOCK * tokens;
  for (uint32_t b = 0; b < blocks; b++) activate_block(x + (uint64_t)b * KVD_BLOCK, out + b);
}
