/* Tiles of 64 codes, i = 4 * lane + s (docs/page-format.md), packed, unpacked and decoded. */
#ifndef KV_TILES_SCALAR_H
#define KV_TILES_SCALAR_H

#include "kernels/isa.h"

#define KV_LANES 16u
#define KV_TILE_RUN 48u /* tiles decoded at once: stays in L1 and on a small stack */

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

/* Decoding looks up whole bytes: a byte of two-bit codes holds summand s of lanes l, l+4, l+8, l+12, so one entry
 * has the integers of all four, 16 bits each. In decoded tiles lanes therefore stand in that order:
 * place 4 * l + k is lane l + 4 * k. */
#define KV_FIELDS 0x0001000100010001ull

typedef struct kv_lut {
  uint32_t bits;
  uint64_t first[256];  /* 1 bit: first[0] alone, the integer of code 0 */
  uint64_t toggle[256]; /* 1 and 3 bits: exclusive or where the high bit is set */
} kv_lut;

static inline uint64_t kv_lut_field(int8_t value, uint32_t k) { return (uint64_t)(uint16_t)(int16_t)value << 16 * k; }

static inline void kv_lut_make(const kv_span *span, kv_lut *lut) {
  const int8_t *table = span->book->table;
  lut->bits = span->bits;
  if (span->bits == 1) {
    lut->first[0] = kv_lut_field(table[0], 0) * KV_FIELDS;
    lut->toggle[0] = lut->first[0] ^ kv_lut_field(table[1], 0) * KV_FIELDS;
    return;
  }
  for (uint32_t b = 0; b < 256; b++) {
    if (span->bits == 4) { /* two codes: lanes l and l+8 */
      lut->first[b] = kv_lut_field(table[b & 15], 0) | kv_lut_field(table[b >> 4], 2);
      continue;
    }
    uint64_t low = 0, high = 0;
    for (uint32_t k = 0; k < 4; k++) {
      low |= kv_lut_field(table[b >> 2 * k & 3], k);
      high |= kv_lut_field(table[4 | (b >> 2 * k & 3)], k); /* of no meaning, and unused, at 2 bits */
    }
    lut->first[b] = low;
    lut->toggle[b] = low ^ high;
  }
}

/* All bits of each field whose bit is set. */
static inline uint64_t kv_field_mask(uint64_t bits) { return (bits & KV_FIELDS) * 0xffffu; }

static inline void kv_tile_decode(const uint8_t *tile, const kv_lut *lut, int16_t value[4][KV_LANES]) {
  const uint64_t high = lut->bits == 3 ? kv_load64(tile + 16) : lut->bits == 1 ? kv_load64(tile) : 0;
  for (uint32_t s = 0; s < 4; s++)
    for (uint32_t l = 0; l < 4; l++) {
      const uint32_t j = 4 * l + s;
      uint64_t four;
      switch (lut->bits) {
        case 1: four = lut->first[0] ^ (lut->toggle[0] & kv_field_mask(high >> j)); break;
        case 2: four = lut->first[tile[j]]; break;
        case 3: four = lut->first[tile[j]] ^ (lut->toggle[tile[j]] & kv_field_mask(high >> j)); break;
        default: four = lut->first[tile[j]] | lut->first[tile[j + 16]] << 16; break;
      }
      kv_store64(&value[s][4 * l], four);
    }
}

/* Sums in decoded order, added to lanes in theirs. */
static inline void kv_add_lanes(const int32_t sum[KV_LANES], int32_t *out) {
  for (uint32_t lane = 0; lane < KV_LANES; lane++) out[lane] += sum[lane % 4 * 4 + lane / 4];
}

#endif
