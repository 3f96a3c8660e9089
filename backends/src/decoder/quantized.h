/* Blocks of 32 weights as GGUF stores them. */
#ifndef KVASSAY_DECODER_QUANTIZED_H
#define KVASSAY_DECODER_QUANTIZED_H

#include "lanes.h"

#define KVD_Q4_1_BYTES 20u /* fp16 step, fp16 minimum, 16 bytes: weight c in the low half of byte c, c + 16 in the high */
#define KVD_Q8_0_BYTES 34u /* fp16 step, 32 int8 */

#define KVD_TILE 4u /* tokens that share one unpacking of the weights */

/* The 32 integers of a block, in the order of the activations. */
typedef struct kvd_weights {
  kvd_s8 part[4];
} kvd_weights;

typedef uint8_t kvd_u8x8 __attribute__((vector_size(8)));
typedef int8_t kvd_i8x8 __attribute__((vector_size(8)));

static inline kvd_weights kvd_unpack_q4_1(const uint8_t *block) {
  kvd_weights w;
  for (int i = 0; i < 2; i++) {
    kvd_u8x8 bytes;
    __builtin_memcpy(&bytes, block + 4 + 8 * i, sizeof bytes);
    kvd_s8 wide = __builtin_convertvector(bytes, kvd_s8);
    w.part[i] = wide & 15;
    w.part[2 + i] = wide >> 4;
  }
  return w;
}

static inline kvd_weights kvd_unpack_q8_0(const uint8_t *block) {
  kvd_weights w;
  for (int i = 0; i < 4; i++) {
    kvd_i8x8 bytes;
    __builtin_memcpy(&bytes, block + 2 + 8 * i, sizeof bytes);
    w.part[i] = __builtin_convertvector(bytes, kvd_s8);
  }
  return w;
}

#endif
