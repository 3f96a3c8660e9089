#include "kernels/simd128.h"

/* The 64 codes of a tile, in order. */
typedef struct codes64 {
  v128_t part[4];
} codes64;

/* The highest bit of each byte after a shift that brings bit `bit` there. */
static inline uint64_t plane(const codes64 *c, uint32_t bit) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < 4; i++)
    bits |= (uint64_t)wasm_i8x16_bitmask(wasm_i16x8_shl(c->part[i], 7 - bit)) << 16 * i;
  return bits;
}

static uint8_t *pack_tile(const codes64 *c, uint32_t bits, uint8_t *tile) {
  const v128_t mask = wasm_i8x16_splat(bits == 4 ? 15 : 3);
  v128_t x[4];
  if (bits == 1) {
    kv_store64(tile, plane(c, 0));
    return tile + 8;
  }
  for (uint32_t i = 0; i < 4; i++) x[i] = wasm_v128_and(c->part[i], mask);
  if (bits == 4) {
    KV_STORE(tile, wasm_v128_or(x[0], wasm_i16x8_shl(x[2], 4)));
    KV_STORE(tile + 16, wasm_v128_or(x[1], wasm_i16x8_shl(x[3], 4)));
    return tile + 32;
  }
  const v128_t low = wasm_v128_or(x[0], wasm_i16x8_shl(x[1], 2));
  KV_STORE(tile, wasm_v128_or(low, wasm_v128_or(wasm_i16x8_shl(x[2], 4), wasm_i16x8_shl(x[3], 6))));
  if (bits == 2) return tile + 16;
  kv_store64(tile + 16, plane(c, 2));
  return tile + 24;
}

/* Keys: lane = token, summand = channel. Sixteen channels of sixteen tokens are four tiles, transposed by fours;
 * a span may end with eight channels, two tiles. */
static uint8_t *pack_channels(const uint8_t *codes, uint32_t d, uint32_t channels, uint32_t bits, uint8_t *tiles) {
  codes64 tile[4];
  for (uint32_t quad = 0; quad < 4; quad++) {
    v128_t x[4];
    for (uint32_t k = 0; k < 4; k++) {
      const uint8_t *row = codes + (4 * quad + k) * d;
      x[k] = channels == 16 ? KV_LOAD(row) : wasm_v128_load64_zero(row);
    }
    const v128_t a = wasm_i32x4_shuffle(x[0], x[1], 0, 4, 1, 5), b = wasm_i32x4_shuffle(x[2], x[3], 0, 4, 1, 5);
    const v128_t e = wasm_i32x4_shuffle(x[0], x[1], 2, 6, 3, 7), f = wasm_i32x4_shuffle(x[2], x[3], 2, 6, 3, 7);
    tile[0].part[quad] = wasm_i64x2_shuffle(a, b, 0, 2);
    tile[1].part[quad] = wasm_i64x2_shuffle(a, b, 1, 3);
    tile[2].part[quad] = wasm_i64x2_shuffle(e, f, 0, 2);
    tile[3].part[quad] = wasm_i64x2_shuffle(e, f, 1, 3);
  }
  for (uint32_t n = 0; n < channels / 4; n++) tiles = pack_tile(&tile[n], bits, tiles);
  return tiles;
}

void KV_KERNEL(pack_keys)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                          uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t block = 0; block < tokens; block += 16)
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      const uint8_t *from = codes + block * d + span->first;
      for (uint32_t c = 0; c < span->channels; c += 16)
        tiles = pack_channels(from + c, d, span->channels - c < 16 ? 8 : 16, span->bits, tiles);
    }
}

#define LOW8(a, b) wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH8(a, b) wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW16(a, b) wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH16(a, b) wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

/* Values: lane = channel, summand = token. Bytes of four tokens are interleaved. */
static codes64 interleave16(const uint8_t *codes, uint32_t d) {
  v128_t x[4];
  for (uint32_t k = 0; k < 4; k++) x[k] = KV_LOAD(codes + k * d);
  const v128_t a = LOW8(x[0], x[1]), b = LOW8(x[2], x[3]), e = HIGH8(x[0], x[1]), f = HIGH8(x[2], x[3]);
  return (codes64){{LOW16(a, b), HIGH16(a, b), LOW16(e, f), HIGH16(e, f)}};
}

/* Eight channels: lanes 8-15 are the next four tokens. */
static codes64 interleave8(const uint8_t *codes, uint32_t d) {
  codes64 c;
  for (uint32_t half = 0; half < 2; half++) {
    v128_t x[4];
    for (uint32_t k = 0; k < 4; k++) x[k] = wasm_v128_load64_zero(codes + (4 * half + k) * d);
    const v128_t a = LOW8(x[0], x[1]), b = LOW8(x[2], x[3]);
    c.part[2 * half] = LOW16(a, b);
    c.part[2 * half + 1] = HIGH16(a, b);
  }
  return c;
}

void KV_KERNEL(pack_values)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                            uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    for (uint32_t c = 0; c < span->channels; c += 16) {
      const uint8_t *from = codes + span->first + c;
      const int narrow = span->channels - c < 16;
      for (uint32_t j = 0; j < tokens; j += narrow ? 8 : 4) {
        const codes64 tile = narrow ? interleave8(from + j * d, d) : interleave16(from + j * d, d);
        tiles = pack_tile(&tile, span->bits, tiles);
      }
    }
  }
}
