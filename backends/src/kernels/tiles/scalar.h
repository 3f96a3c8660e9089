/* Tiles of 64 codes, i = 4 * lane + s (docs/page-format.md), and the one sum that serves keys and values:
 * sixteen lanes, each the sum over summands of x[summand] * table[code]. */
#ifndef KV_TILES_SCALAR_H
#define KV_TILES_SCALAR_H

#include "../scalar.h"

#define KV_LANES 16u
#define KV_TILE_RUN 48u /* tiles decoded at once: a buffer that stays in L1 and on a small stack */

static inline uint32_t kv_tile_bytes(uint32_t bits) { return 8 * bits; }

static inline void kv_tile_pack(const uint8_t code[64], uint32_t bits, uint8_t *tile) {
  const uint32_t low = bits == 3 ? 2 : bits, per_byte = 8 / low, step = 64 / per_byte;
  for (uint32_t j = 0; j < step; j++) {
    uint32_t byte = 0;
    if (bits == 1) {
      for (uint32_t k = 0; k < 8; k++) byte |= (uint32_t)(code[8 * j + k] & 1) << k;
    } else {
      for (uint32_t k = 0; k < per_byte; k++)
        byte |= (uint32_t)(code[j + k * step] & ((1u << low) - 1)) << (k * low);
    }
    tile[j] = (uint8_t)byte;
  }
  if (bits != 3) return;
  for (uint32_t i = 0; i < 64; i += 8) {
    uint32_t byte = 0;
    for (uint32_t k = 0; k < 8; k++) byte |= (uint32_t)(code[i + k] >> 2 & 1) << k;
    tile[16 + i / 8] = (uint8_t)byte;
  }
}

static inline void kv_tile_unpack(const uint8_t *tile, uint32_t bits, uint8_t code[64]) {
  switch (bits) {
    case 1:
      for (uint32_t i = 0; i < 64; i++) code[i] = tile[i / 8] >> (i % 8) & 1;
      break;
    case 4:
      for (uint32_t j = 0; j < 32; j++) {
        code[j] = tile[j] & 15;
        code[j + 32] = tile[j] >> 4;
      }
      break;
    default:
      for (uint32_t j = 0; j < 16; j++) {
        code[j] = tile[j] & 3;
        code[j + 16] = tile[j] >> 2 & 3;
        code[j + 32] = tile[j] >> 4 & 3;
        code[j + 48] = tile[j] >> 6;
      }
      if (bits == 3)
        for (uint32_t i = 0; i < 64; i++) code[i] |= (uint8_t)((tile[16 + i / 8] >> (i % 8) & 1) << 2);
  }
}

/* Integers of one tile, summand by summand, so that the loops over lanes below run on whole vectors. */
static inline void kv_tile_decode(const uint8_t *tile, uint32_t bits, const int8_t *table, int16_t value[4][KV_LANES]) {
  uint8_t code[64];
  kv_tile_unpack(tile, bits, code);
  for (uint32_t lane = 0; lane < KV_LANES; lane++)
    for (uint32_t s = 0; s < 4; s++) value[s][lane] = table[code[4 * lane + s]];
}

#endif
