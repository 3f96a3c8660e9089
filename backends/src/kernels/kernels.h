/* The kernels: everything that touches many numbers. One table of functions a variant (instruction set); each folder here
 * is one family of functions, each file in it one instruction set, and the build recipe compiles for a variant its own file
 * or that of its nearest parent. A kernel owns no state and knows nothing of pages, masks or chunks. It sets its variant's
 * bit in *ran where it executes.
 *
 * Every function gives the bits of docs/numeric-contract.md, whatever the variant. Pointers into pages
 * (const uint8_t *) have no alignment; the others have that of their type. Rows of several query heads (and
 * queries) of one KV head go together, so that whatever is decoded is shared.
 */
#ifndef KV_KERNELS_H
#define KV_KERNELS_H

#include <stdint.h>

#include "core/base/codec.h"
#include "core/base/transform.h"
#include "variants.h"

/* Each kernel once: X(isa, result, name, parameters); FUSED for the one that a variant may lack. */
#define KV_EACH_KERNEL(X, FUSED, isa)                                                                                 \
  /* convert: x [rows][n] to fp16, rows `stride` entries apart; not 0 if a number was NaN or beyond 65504, and        \
   * what was written is then of no use. Back: f32(x) - f32(mean), [rows][n]; mean NULL: none. And their mean         \
   * (section 3). n is a multiple of 16. */                                                                           \
  X(isa, int, narrow, (const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran))     \
  X(isa, void, widen, (const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean,           \
    float *out, uint32_t *ran))                                                                                       \
  X(isa, void, mean, (const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean,                  \
    uint32_t *ran))                                                                                                   \
  /* CRC-32 as in zlib: start from 0, feed pieces in order */                                                         \
  X(isa, uint32_t, crc32, (uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran))                         \
  /* transform: x [rows][head_dim] in place, T and its transpose (section 4) */                                       \
  X(isa, void, forward, (const kv_transform *t, float *x, uint32_t rows, uint32_t *ran))                              \
  X(isa, void, inverse, (const kv_transform *t, float *x, uint32_t rows, uint32_t *ran))                              \
  /* encode, turbo: y [tokens][d], already transformed, to codes [tokens][d] and scales without the gain              \
   * (section 5: unbiased n2 / e, else least squares e / c2) */                                                       \
  X(isa, void, quantize, (const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens,           \
    uint8_t *codes, float *scales, uint32_t *ran))                                                                    \
  /* e = y - scale * centroid, [tokens][d], and n2[tokens] = D16(e, e); e may be y */                                 \
  X(isa, void, residual, (const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes,                    \
    const float *scales, uint32_t tokens, float *e, float *n2, uint32_t *ran))                                        \
  /* encode, KIVI: r [tokens][d] to codes, steps and minima (fp16). Keys: one group of tokens, [d] each. Values:      \
   * one token, a step and minimum for each group of 32 channels, `stride` entries apart. */                          \
  X(isa, void, affine_keys, (uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes,              \
    uint8_t *steps, uint8_t *minima, uint32_t *ran))                                                                  \
  X(isa, void, affine_values, (uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps,             \
    uint8_t *minima, uint32_t stride, uint32_t *ran))                                                                 \
  /* pack: codes [tokens][d], tokens a multiple of 16, to the tiles of one head */                                    \
  X(isa, void, pack_keys, (const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens,                  \
    uint8_t *tiles, uint32_t *ran))                                                                                   \
  X(isa, void, pack_values, (const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens,                \
    uint8_t *tiles, uint32_t *ran))                                                                                   \
  /* widen, forward, quantize and pack in one, of turbo codes: fp16 rows of one head, `tokens` a multiple of 16,      \
   * to the tiles of keys or values and scales without the gain. NULL where a variant has only the pieces. */         \
  FUSED(isa, void, encode, (const kv_codec *codec, const kv_transform *t, int keys, int unbiased, const uint16_t *x,  \
    uint64_t stride, const uint16_t *mean, uint32_t tokens, uint8_t *tiles, float *scales, uint32_t *ran))            \
  /* query (section 7): the integer query qi [d] of z with bound 127, or of z * step with bound 16256; the result is  \
   * its scale qs */                                                                                                  \
  X(isa, float, query8, (const float *z, uint32_t d, int8_t *qi, uint32_t *ran))                                      \
  X(isa, float, query15, (const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran))                 \
  /* keyscan: out[row * stride + token] = sum over channels of q[row][channel] * table[code] */                       \
  X(isa, void, keyscan, (const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens,                    \
    const int8_t *q, uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran))                                    \
  X(isa, void, keyscan15, (const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens,                  \
    const int16_t *q, uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran))                                   \
  /* valuesum, one span: out[row * stride + channel] = sum over tokens of w[row][token] * table[code],                \
   * w [rows][tokens] in 0 .. 16383, channel counted from the span's first */                                         \
  X(isa, void, valuesum, (const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w,               \
    uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran))                                                     \
  /* softmax: largest of t[n], n >= 1; and t = ex2(t - maximum) in place, added to stripe (phase + i) mod 16 */       \
  X(isa, float, maximum, (const float *t, uint32_t n, uint32_t *ran))                                                 \
  X(isa, void, exponentials, (float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase,                 \
    uint32_t *ran))                                                                                                   \
  /* rows of fp16: t[row * t_stride + token] = D16(q[row * q_stride ...], x[token]), and                              \
   * acc[row][c] += p[row * p_stride + token] * x[token][c] in token order. x: `tokens` rows of d fp16, stride_bytes  \
   * apart. */                                                                                                        \
  X(isa, void, dots, (const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,                 \
    uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran))                              \
  X(isa, void, weighted, (const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,             \
    uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran))                                               \
  /* combine: logits t = (f32(sum) * su) * factor, or added to t, or f32(sum) * scale + bias (section 8) */           \
  X(isa, void, logits, (const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran))      \
  X(isa, void, add_logits, (const int32_t *sum, const float *su, uint32_t n, float factor, float *t,                  \
    uint32_t *ran))                                                                                                   \
  X(isa, void, affine_logits, (const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran))     \
  /* t = t + bias */                                                                                                  \
  X(isa, void, shift, (float *t, uint32_t n, float bias, uint32_t *ran))                                              \
  /* w = p * scale to 14-bit weights; the result is W, their largest; zeros where W < 2^-60 (section 10) */           \
  X(isa, float, weigh, (const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran))                  \
  /* acc = acc * al + f32(sum) * f;  acc * al + (f32(sum) * scale + offset) * be;  acc * al + x * be */               \
  X(isa, void, blend, (float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran))                 \
  X(isa, void, blend_affine, (float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset,        \
    float be, uint32_t *ran))                                                                                         \
  X(isa, void, blend_rows, (float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran))

#define KV_MEMBER(isa, result, name, parameters) result(*name) parameters;
typedef struct kv_kernels {
  KV_EACH_KERNEL(KV_MEMBER, KV_MEMBER, )
} kv_kernels;

/* kv_forward_avx2 and so on, of one instruction set. */
#define KV_DECLARE_KERNEL(isa, result, name, parameters) result kv_##name##_##isa parameters;
#define KV_DECLARE_KERNELS(isa) KV_EACH_KERNEL(KV_DECLARE_KERNEL, KV_DECLARE_KERNEL, isa)

#define KV_DECLARE_TABLE(isa, encode) extern const kv_kernels kv_kernels_##isa;
KV_EACH_VARIANT(KV_DECLARE_TABLE)

#endif
