/* The structured rotation of one stream: signs, block Hadamard, permutation (numeric contract, section 4). */
#ifndef KV_TRANSFORM_H
#define KV_TRANSFORM_H

#include <stdint.h>

enum { KV_STREAM_KEYS = 0, KV_STREAM_VALUES = 1, KV_STREAM_SIGNS = 2 };

/* A view of tables that live in a plan. Signs are masks for the sign bit. */
typedef struct kv_transform {
  uint32_t head_dim;
  uint32_t block;  /* largest power of two dividing head_dim */
  uint32_t rounds;
  const uint32_t *sign1, *sign2; /* [head_dim] */
  const uint16_t *perm;          /* [head_dim] */
} kv_transform;

uint32_t kv_transform_block(uint32_t head_dim);
uint32_t kv_transform_gain(uint32_t head_dim, uint32_t rounds); /* E: T T' = 2^E */
uint64_t kv_transform_bytes(uint32_t head_dim);                 /* of the tables, a multiple of 64 */
void kv_transform_make(uint64_t seed, uint32_t stream, uint32_t head_dim, uint32_t rounds, void *tables);
kv_transform kv_transform_view(const void *tables, uint32_t head_dim, uint32_t rounds);

#endif
