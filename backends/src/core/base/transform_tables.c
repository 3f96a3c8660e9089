#include "bits.h"
#include "transform.h"

#define GOLDEN 0x9E3779B97F4A7C15ull

/* SplitMix64. */
static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

static uint64_t draw(uint64_t *state) {
  *state += GOLDEN;
  return mix(*state);
}

static void draw_signs(uint64_t *state, uint32_t head_dim, uint32_t *signs) {
  uint64_t bits = 0;
  for (uint32_t c = 0; c < head_dim; c++) {
    if (c % 64 == 0) bits = draw(state);
    signs[c] = (uint32_t)(bits >> (c % 64) & 1) << 31;
  }
}

static void draw_permutation(uint64_t *state, uint32_t head_dim, uint16_t *perm) {
  for (uint32_t i = 0; i < head_dim; i++) perm[i] = (uint16_t)i;
  for (uint32_t i = head_dim - 1; i > 0; i--) {
    uint32_t j = (uint32_t)((draw(state) >> 32) * (i + 1) >> 32);
    uint16_t swapped = perm[i];
    perm[i] = perm[j];
    perm[j] = swapped;
  }
}

uint32_t kv_transform_block(uint32_t head_dim) { return head_dim & (~head_dim + 1); }

uint32_t kv_transform_gain(uint32_t head_dim, uint32_t rounds) {
  uint32_t log2_block = 0;
  for (uint32_t block = kv_transform_block(head_dim); block > 1; block >>= 1) log2_block++;
  return rounds * log2_block;
}

/* Tables: sign1, sign2, perm. One round has no second half, but keeps the place: simpler to read. */
uint64_t kv_transform_bytes(uint32_t head_dim) { return kv_round_up(head_dim * 10ull, 64); }

void kv_transform_make(uint64_t seed, uint32_t stream, uint32_t head_dim, uint32_t rounds, void *tables) {
  uint64_t state = mix(seed ^ 0xD1B54A32D192ED03ull * (stream + 1));
  uint32_t *signs = tables;
  kv_fill(tables, 0, kv_transform_bytes(head_dim));
  draw_signs(&state, head_dim, signs);
  if (rounds < 2) return;
  draw_permutation(&state, head_dim, (uint16_t *)(signs + 2 * head_dim));
  draw_signs(&state, head_dim, signs + head_dim);
}

kv_transform kv_transform_view(const void *tables, uint32_t head_dim, uint32_t rounds) {
  const uint32_t *signs = tables;
  kv_transform t = {head_dim, kv_transform_block(head_dim), rounds, signs, signs + head_dim,
                    (const uint16_t *)(signs + 2 * head_dim)};
  return t;
}
