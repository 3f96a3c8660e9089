/* Tiles decoded to signed bytes in registers, and their products with planes of bytes. */
#ifndef KV_TILES_NEON_H
#define KV_TILES_NEON_H

#include "kernels/instances.h"
#include "kernels/neon.h"

/* Part k holds the integers of lanes 4k .. 4k+3, four summands each. */
typedef int8x16x4_t kv_tile16;

static inline int8x16_t kv_table_neon(const kv_span *span) { return vld1q_s8(span->book->table); }

/* Part k's 16 of 64 bits, each to a byte: all ones where it is set. */
KV_INLINE uint8x16_t kv_spread16(uint8x8_t bits, uint8_t k) {
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  const uint8x16_t byte = vcombine_u8(vdup_n_u8(2 * k), vdup_n_u8(2 * k + 1));
  return vtstq_u8(vqtbl1q_u8(vcombine_u8(bits, bits), byte), bit);
}

KV_INLINE uint8x16x4_t kv_codes_neon(const uint8_t *tile, uint32_t bits) {
  uint8x16x4_t t;
  if (bits == 4) {
    const uint8x16_t a = vld1q_u8(tile), b = vld1q_u8(tile + 16), nibble = vdupq_n_u8(15);
    return (uint8x16x4_t){{vandq_u8(a, nibble), vandq_u8(b, nibble), vshrq_n_u8(a, 4), vshrq_n_u8(b, 4)}};
  }
  if (bits == 1) {
    const uint8x8_t plane = vld1_u8(tile);
#pragma GCC unroll 4
    for (uint8_t k = 0; k < 4; k++) t.val[k] = vshrq_n_u8(kv_spread16(plane, k), 7);
    return t;
  }
  const uint8x16_t x = vld1q_u8(tile), three = vdupq_n_u8(3);
  t = (uint8x16x4_t){{vandq_u8(x, three), vandq_u8(vshrq_n_u8(x, 2), three), vandq_u8(vshrq_n_u8(x, 4), three),
                      vshrq_n_u8(x, 6)}};
  if (bits == 3) {
    const uint8x8_t plane = vld1_u8(tile + 16);
#pragma GCC unroll 4
    for (uint8_t k = 0; k < 4; k++) t.val[k] = vbslq_u8(vdupq_n_u8(4), kv_spread16(plane, k), t.val[k]);
  }
  return t;
}

KV_INLINE kv_tile16 kv_decode_neon(const uint8_t *tile, uint32_t bits, int8x16_t table) {
  const uint8x16x4_t code = kv_codes_neon(tile, bits);
  return (kv_tile16){{vqtbl1q_s8(table, code.val[0]), vqtbl1q_s8(table, code.val[1]),
                      vqtbl1q_s8(table, code.val[2]), vqtbl1q_s8(table, code.val[3])}};
}

/* Four multipliers, to every lane. */
KV_INLINE int8x16_t kv_each(const int8_t *p) { return vreinterpretq_s8_u32(vdupq_n_u32(kv_load32(p))); }

/* acc += a * qa + b * qb, four summands a lane. Without the dot product: two products of a 7-bit multiplier and an
 * integer of at most 63 in magnitude, and then four, fit 16 bits (4 * 127 * 63 = 32004). */
KV_INLINE int32x4_t kv_add_pair(int32x4_t acc, int8x16_t a, int8x16_t b, int8x16_t qa, int8x16_t qb) {
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(vdotq_s32(acc, a, qa), b, qb);
#else
  const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(a), vget_low_s8(qa)), vget_low_s8(b), vget_low_s8(qb));
  const int16x8_t high = vmlal_high_s8(vmull_high_s8(a, qa), b, qb);
  return vpadalq_s16(acc, vpaddq_s16(low, high));
#endif
}

#define KV_PLANES 4u /* of one pass: sixteen sums, eight decoded registers and the rest fit 32 */

/* Multipliers of up to 15 bits are two planes, x = 128 * second + first, with first in 0 .. 127 and second within
 * -127 .. 127; n a multiple of 8. */
static inline void kv_split(const int16_t *x, uint32_t n, int8_t *first, int8_t *second) {
  for (uint32_t i = 0; i < n; i += 8) {
    const int16x8_t w = vld1q_s16(x + i);
    vst1_s8(first + i, vmovn_s16(vandq_s16(w, vdupq_n_s16(127))));
    vst1_s8(second + i, vshrn_n_s16(w, 7));
  }
}
KV_INLINE int32x4_t kv_joined(int32x4_t first, int32x4_t second) { return vaddq_s32(first, vshlq_n_s32(second, 7)); }

/* A kernel for each number of bits and for one and two rows of two planes. */
#define KV_INSTANCES2(f, parameters, ...)                                                                      \
  KV_INSTANCE(f, 1, 1, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 1, 2, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 2, 1, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 2, 2, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 3, 1, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 3, 2, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 4, 1, parameters, __VA_ARGS__)                                                                \
  KV_INSTANCE(f, 4, 2, parameters, __VA_ARGS__)                                                                \
  static void(*const f##_of[4][2]) parameters = {                                                              \
      {f##_1_1, f##_1_2}, {f##_2_1, f##_2_2}, {f##_3_1, f##_3_2}, {f##_4_1, f##_4_2}};

#endif
