#include "kernels/neon.h"

/* A tile's 64 codes, in order. */
typedef uint8x16x4_t codes64;

/* Bit `bit` of every code, code i as bit i: weighted by its place in a byte, eight add up to that byte. */
static inline uint8x8_t plane(codes64 c, uint8_t bit) {
  const uint8x16_t weight = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)), mask = vdupq_n_u8(bit);
  uint8x16_t x[4];
  for (int i = 0; i < 4; i++) x[i] = vandq_u8(vtstq_u8(c.val[i], mask), weight);
  const uint8x16_t fours = vpaddq_u8(vpaddq_u8(x[0], x[1]), vpaddq_u8(x[2], x[3]));
  return vget_low_u8(vpaddq_u8(fours, fours));
}

/* Shift-and-insert keeps what lies below the shift and drops what lies above the code: no mask is needed. */
static uint8_t *pack_tile(codes64 c, uint32_t bits, uint8_t *tile) {
  if (bits == 1) {
    vst1_u8(tile, plane(c, 1));
    return tile + 8;
  }
  if (bits == 4) {
    vst1q_u8(tile, vsliq_n_u8(c.val[0], c.val[2], 4));
    vst1q_u8(tile + 16, vsliq_n_u8(c.val[1], c.val[3], 4));
    return tile + 32;
  }
  const uint8x16_t low = vsliq_n_u8(c.val[0], c.val[1], 2), high = vsliq_n_u8(c.val[2], c.val[3], 2);
  vst1q_u8(tile, vsliq_n_u8(low, high, 4));
  if (bits == 2) return tile + 16;
  vst1_u8(tile + 16, plane(c, 4));
  return tile + 24;
}

static inline uint8x16_t eight(const uint8_t *p) { return vcombine_u8(vld1_u8(p), vdup_n_u8(0)); }

static inline uint32x4_t words(uint8x16_t x) { return vreinterpretq_u32_u8(x); }
static inline uint8x16_t low_halves(uint32x4_t a, uint32x4_t b) {
  return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}
static inline uint8x16_t high_halves(uint32x4_t a, uint32x4_t b) {
  return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

/* Keys: lane = token, summand = channel. Sixteen channels of sixteen tokens are four tiles, transposed by fours;
 * a span may end with eight channels, two tiles. */
static uint8_t *pack_channels(const uint8_t *codes, uint32_t d, uint32_t channels, uint32_t bits, uint8_t *tiles) {
  codes64 tile[4];
  for (uint32_t quad = 0; quad < 4; quad++) {
    uint32x4_t x[4];
    for (uint32_t k = 0; k < 4; k++) {
      const uint8_t *row = codes + (4 * quad + k) * d;
      x[k] = words(channels == 16 ? vld1q_u8(row) : eight(row));
    }
    const uint32x4_t a = vzip1q_u32(x[0], x[1]), b = vzip1q_u32(x[2], x[3]);
    const uint32x4_t e = vzip2q_u32(x[0], x[1]), f = vzip2q_u32(x[2], x[3]);
    tile[0].val[quad] = low_halves(a, b);
    tile[1].val[quad] = high_halves(a, b);
    tile[2].val[quad] = low_halves(e, f);
    tile[3].val[quad] = high_halves(e, f);
  }
  for (uint32_t n = 0; n < channels / 4; n++) tiles = pack_tile(tile[n], bits, tiles);
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

/* Values: lane = channel, summand = token. Bytes of four tokens are interleaved. */
static inline uint16x8_t bytes_low(uint8x16_t a, uint8x16_t b) { return vreinterpretq_u16_u8(vzip1q_u8(a, b)); }
static inline uint16x8_t bytes_high(uint8x16_t a, uint8x16_t b) { return vreinterpretq_u16_u8(vzip2q_u8(a, b)); }

static codes64 interleave16(const uint8_t *codes, uint32_t d) {
  uint8x16_t x[4];
  for (uint32_t k = 0; k < 4; k++) x[k] = vld1q_u8(codes + k * d);
  const uint16x8_t a = bytes_low(x[0], x[1]), b = bytes_low(x[2], x[3]);
  const uint16x8_t e = bytes_high(x[0], x[1]), f = bytes_high(x[2], x[3]);
  return (codes64){{vreinterpretq_u8_u16(vzip1q_u16(a, b)), vreinterpretq_u8_u16(vzip2q_u16(a, b)),
                    vreinterpretq_u8_u16(vzip1q_u16(e, f)), vreinterpretq_u8_u16(vzip2q_u16(e, f))}};
}

/* Eight channels: lanes 8-15 are the next four tokens. */
static codes64 interleave8(const uint8_t *codes, uint32_t d) {
  codes64 c;
  for (uint32_t half = 0; half < 2; half++) {
    uint8x16_t x[4];
    for (uint32_t k = 0; k < 4; k++) x[k] = eight(codes + (4 * half + k) * d);
    const uint16x8_t a = bytes_low(x[0], x[1]), b = bytes_low(x[2], x[3]);
    c.val[2 * half] = vreinterpretq_u8_u16(vzip1q_u16(a, b));
    c.val[2 * half + 1] = vreinterpretq_u8_u16(vzip2q_u16(a, b));
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
      for (uint32_t j = 0; j < tokens; j += narrow ? 8 : 4)
        tiles = pack_tile(narrow ? interleave8(from + j * d, d) : interleave16(from + j * d, d), span->bits, tiles);
    }
  }
}
