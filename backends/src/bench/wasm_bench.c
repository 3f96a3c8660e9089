/* For measurement only: what the host times, in loops long enough for its clock, and what quantized attention is compared
 * with. `plain32` and `plain16` are attention over float and fp16 tokens, written for the same engine as well as we can:
 * keys and values of a head lie together, every number that is loaded serves four query heads, softmax is done by blocks,
 * without the order of operations that the numeric contract asks for. Built by backends/bench/modules.py. */
#include "core/base/bits.h"
#include "core/dispatch/variants.h"

#define EXPORT(name) __attribute__((export_name(#name))) name
#define ALWAYS static inline __attribute__((always_inline))
#define HEADS 4u  /* query heads of a KV head */
#define BLOCK 64u /* tokens */

void EXPORT(bench_nothing)(uint32_t times) {
  for (volatile uint32_t i = 0; i < times; i++) continue;
}

int32_t EXPORT(bench_attend)(kv_cache *cache, const float *q, float *out, uint32_t times) {
  int32_t code = KV_OK;
  for (uint32_t i = 0; i < times && code == KV_OK; i++) code = kv_cache_attend(cache, 0, q, 1, out, 0);
  return code;
}

/* One kernel by number, over 64 tokens of `d` channels with codes of `mode`, for `rows` query rows. */
#define TOKENS 64u
#define MOST_ROWS 16u

static struct {
  uint8_t codes[TOKENS * KV_MAX_DIM], tiles[TOKENS * KV_MAX_DIM];
  int8_t q[MOST_ROWS * KV_MAX_DIM];
  int16_t w[MOST_ROWS * KV_MAX_DIM];
  int32_t sum[MOST_ROWS * KV_MAX_DIM];
  float x[TOKENS * KV_MAX_DIM], y[TOKENS * KV_MAX_DIM];
} room;

void EXPORT(bench_kernel)(uint32_t which, uint32_t mode, uint32_t d, uint32_t rows, uint32_t times) {
  const kv_kernels *k = kv_variants[0].kernels;
  float stripes[16] = {0};
  uint32_t ran = 0;
  kv_codec codec;
  kv_codec_of(mode, d, 0, &codec);
  for (uint32_t i = 0; i < TOKENS * d; i++) room.x[i] = (float)(int32_t)(i * 2654435761u) * 0x1p-30f;
  for (uint32_t i = 0; i < rows * d; i++) room.q[i] = (int8_t)(i * 37 % 255 - 127), room.w[i] = (int16_t)(i * 7919 % 16384);
  for (uint32_t i = 0; i < times; i++) switch (which) {
      case 0: k->keyscan(&codec, d, room.tiles, TOKENS, room.q, rows, room.sum, TOKENS, &ran); break;
      case 1: k->keyscan15(&codec, d, room.tiles, TOKENS, room.w, rows, room.sum, TOKENS, &ran); break;
      case 2:
        for (uint32_t s = 0, at = 0; s < codec.spans; at += TOKENS * codec.span[s].channels * codec.span[s].bits / 8, s++)
          k->valuesum(&codec.span[s], room.tiles + at, TOKENS, room.w, rows, room.sum + codec.span[s].first, d, &ran);
        break;
      case 3:
        for (uint32_t r = 0; r < rows; r++) k->exponentials(room.y + r * TOKENS, TOKENS, 0, stripes, 0, &ran);
        break;
      case 4:
        for (uint32_t r = 0; r < rows; r++) k->logits(room.sum, room.x, TOKENS, 0x1p-20f, room.y, &ran);
        break;
      case 5:
        for (uint32_t r = 0; r < rows; r++) k->weigh(room.y, room.x, TOKENS, room.w, &ran);
        break;
      case 6:
        for (uint32_t r = 0; r < rows; r++) room.y[r] = k->maximum(room.x, TOKENS, &ran);
        break;
      case 7:
        for (uint32_t r = 0; r < rows; r++) k->blend(room.y + r * d, room.sum + r * d, d, 0.5f, 0.5f, &ran);
        break;
      case 8: k->dots(room.x, d, rows, d, room.codes, 2 * d, TOKENS / 4, room.y, TOKENS, &ran); break;
      case 9: k->weighted(room.x, TOKENS, rows, d, room.codes, 2 * d, TOKENS / 4, room.y, &ran); break;
      case 10: k->narrow(room.x, TOKENS, d, (uint16_t *)(void *)room.w, 0, &ran); break;
      case 11: k->quantize(&codec, d, 1, room.x, TOKENS, room.codes, room.y, &ran); break;
      case 12: k->pack_keys(&codec, d, room.codes, TOKENS, room.tiles, &ran); break;
      case 13: k->pack_values(&codec, d, room.codes, TOKENS, room.tiles, &ran); break;
      default: room.y[0] += (float)k->crc32(0, room.tiles, TOKENS * d / 2, &ran);
    }
}

#ifdef __wasm_simd128__
#include <wasm_simd128.h>

ALWAYS v128_t load32(const void *p) { return wasm_v128_load(p); }
ALWAYS v128_t load16(const void *p) {
  const v128_t shifted = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  return wasm_f32x4_mul(wasm_v128_and(shifted, wasm_u32x4_const_splat(0x8fffe000u)), wasm_f32x4_const_splat(0x1p112f));
}

ALWAYS v128_t exp2_4(v128_t x) {
  const v128_t magic = wasm_f32x4_const_splat(12582912.0f);
  const v128_t w = wasm_f32x4_add(x, magic), r = wasm_f32x4_sub(x, wasm_f32x4_sub(w, magic));
  v128_t p = wasm_f32x4_const_splat(0x1.5bba14p-10f);
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.3cea88p-7f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.c6b752p-5f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.ebf9bcp-3f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(0x1.62e42ap-1f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(1.0f));
  const v128_t bits = wasm_i32x4_add(p, wasm_i32x4_shl(w, 23));
  return wasm_v128_and(bits, wasm_f32x4_ge(x, wasm_f32x4_const_splat(-64.0f)));
}

ALWAYS v128_t sums4(v128_t a, v128_t b, v128_t c, v128_t d) {
  const v128_t ab = wasm_f32x4_add(wasm_i64x2_shuffle(a, b, 0, 2), wasm_i64x2_shuffle(a, b, 1, 3));
  const v128_t cd = wasm_f32x4_add(wasm_i64x2_shuffle(c, d, 0, 2), wasm_i64x2_shuffle(c, d, 1, 3));
  return wasm_f32x4_add(wasm_i32x4_shuffle(ab, cd, 0, 2, 4, 6), wasm_i32x4_shuffle(ab, cd, 1, 3, 5, 7));
}


/* Two tokens against four heads: eight sums; t[token][head]. */
#define DOTS(load, size)                                                                               \
  ALWAYS void dots##size(const float *q, const uint8_t *k, uint32_t d, float (*t)[HEADS]) {            \
    const v128_t zero = wasm_i64x2_const_splat(0);                                                     \
    v128_t a[HEADS] = {zero, zero, zero, zero}, b[HEADS] = {zero, zero, zero, zero};                   \
    for (uint32_t c = 0; c < d; c += 4) {                                                              \
      const v128_t x = load(k + size * c), y = load(k + size * (d + c));                               \
      _Pragma("GCC unroll 4") for (uint32_t h = 0; h < HEADS; h++) {                                   \
        const v128_t one = load32(q + h * d + c);                                                      \
        a[h] = wasm_f32x4_add(a[h], wasm_f32x4_mul(one, x));                                           \
        b[h] = wasm_f32x4_add(b[h], wasm_f32x4_mul(one, y));                                           \
      }                                                                                                \
    }                                                                                                  \
    wasm_v128_store(t[0], sums4(a[0], a[1], a[2], a[3]));                                              \
    wasm_v128_store(t[1], sums4(b[0], b[1], b[2], b[3]));                                              \
  }
DOTS(load32, 4)
DOTS(load16, 2)

/* Eight channels of four heads over a block, in registers. */
#define WEIGHTED(load, size)                                                                           \
  ALWAYS void weighted##size(float (*p)[HEADS], const uint8_t *v, uint32_t d, float *acc) {            \
    v128_t low[HEADS], high[HEADS];                                                                    \
    _Pragma("GCC unroll 4") for (uint32_t h = 0; h < HEADS; h++) {                                     \
      low[h] = load32(acc + h * d);                                                                    \
      high[h] = load32(acc + h * d + 4);                                                               \
    }                                                                                                  \
    for (uint32_t j = 0; j < BLOCK; j++, v += size * d) {                                              \
      const v128_t x = load(v), y = load(v + 4 * size);                                                \
      _Pragma("GCC unroll 4") for (uint32_t h = 0; h < HEADS; h++) {                                   \
        const v128_t weight = wasm_v128_load32_splat(&p[j][h]);                                        \
        low[h] = wasm_f32x4_add(low[h], wasm_f32x4_mul(weight, x));                                    \
        high[h] = wasm_f32x4_add(high[h], wasm_f32x4_mul(weight, y));                                  \
      }                                                                                                \
    }                                                                                                  \
    _Pragma("GCC unroll 4") for (uint32_t h = 0; h < HEADS; h++) {                                     \
      wasm_v128_store(acc + h * d, low[h]);                                                            \
      wasm_v128_store(acc + h * d + 4, high[h]);                                                       \
    }                                                                                                  \
  }
WEIGHTED(load32, 4)
WEIGHTED(load16, 2)

/* One KV head: k and v [tokens][d], q and out [HEADS][d], q in units of log 2; tokens a multiple of BLOCK. The heads are
 * the lanes of maxima and sums. */
#define PLAIN(size)                                                                                    \
  static void head##size(const uint8_t *k, const uint8_t *v, uint32_t tokens, uint32_t d,              \
                         const float *q, float *out) {                                                 \
    float t[BLOCK][HEADS];                                                                             \
    v128_t m = wasm_f32x4_const_splat(-0x1p100f), l = wasm_i64x2_const_splat(0);                       \
    kv_fill(out, 0, HEADS * d * sizeof *out);                                                          \
    for (uint32_t j = 0; j < tokens; j += BLOCK, k += size * BLOCK * d, v += size * BLOCK * d) {       \
      v128_t most = m;                                                                                 \
      for (uint32_t i = 0; i < BLOCK; i += 2) dots##size(q, k + size * i * d, d, &t[i]);               \
      for (uint32_t i = 0; i < BLOCK; i++) most = wasm_f32x4_pmax(most, load32(t[i]));                 \
      const v128_t scale = exp2_4(wasm_f32x4_sub(m, most));                                            \
      l = wasm_f32x4_mul(l, scale);                                                                    \
      for (uint32_t i = 0; i < BLOCK; i++) {                                                           \
        const v128_t p = exp2_4(wasm_f32x4_sub(load32(t[i]), most));                                   \
        wasm_v128_store(t[i], p);                                                                      \
        l = wasm_f32x4_add(l, p);                                                                      \
      }                                                                                                \
      if (wasm_v128_any_true(wasm_f32x4_ne(m, most)))                                                  \
        for (uint32_t h = 0; h < HEADS; h++) {                                                         \
          float factors[HEADS];                                                                        \
          wasm_v128_store(factors, scale);                                                             \
          for (uint32_t c = 0; c < d; c += 4)                                                          \
            wasm_v128_store(out + h * d + c,                                                           \
                            wasm_f32x4_mul(load32(out + h * d + c), wasm_f32x4_splat(factors[h])));    \
        }                                                                                              \
      m = most;                                                                                        \
      for (uint32_t c = 0; c < d; c += 8) weighted##size(t, v + size * c, d, out + c);                 \
    }                                                                                                  \
    float sums[HEADS];                                                                                 \
    wasm_v128_store(sums, l);                                                                          \
    for (uint32_t h = 0; h < HEADS; h++)                                                               \
      for (uint32_t c = 0; c < d; c++) out[h * d + c] /= sums[h];                                      \
  }
PLAIN(4)
PLAIN(2)

/* keys and values [kv_heads][tokens][d]. */
void EXPORT(bench_plain32)(const float *k, const float *v, uint32_t kv_heads, uint32_t tokens, uint32_t d,
                           const float *q, float *out, uint32_t times) {
  for (uint32_t i = 0; i < times; i++)
    for (uint32_t g = 0; g < kv_heads; g++) {
      const uint64_t at = (uint64_t)g * tokens * d;
      head4((const uint8_t *)(k + at), (const uint8_t *)(v + at), tokens, d, q + g * HEADS * d, out + g * HEADS * d);
    }
}

void EXPORT(bench_plain16)(const uint16_t *k, const uint16_t *v, uint32_t kv_heads, uint32_t tokens, uint32_t d,
                           const float *q, float *out, uint32_t times) {
  for (uint32_t i = 0; i < times; i++)
    for (uint32_t g = 0; g < kv_heads; g++) {
      const uint64_t at = (uint64_t)g * tokens * d;
      head2((const uint8_t *)(k + at), (const uint8_t *)(v + at), tokens, d, q + g * HEADS * d, out + g * HEADS * d);
    }
}

#endif
