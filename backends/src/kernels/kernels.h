/* The kernels: everything that touches many numbers. One table of functions a variant (instruction set);
 * each folder here is one family of functions, each file in it one variant. A kernel owns no state and
 * knows nothing of pages, masks or chunks. It sets its variant's bit in *ran where it executes.
 *
 * Every function gives the bits of docs/numeric-contract.md, whatever the variant. Pointers into pages
 * (const uint8_t *) have no alignment; the others have that of their type. Rows of several query heads (and
 * queries) of one KV head go together, so that whatever is decoded is shared.
 */
#ifndef KV_KERNELS_H
#define KV_KERNELS_H

#include <stdint.h>

#include "../core/codec.h"
#include "../core/transform.h"

/* A WebAssembly module with one unknown instruction does not load at all: each holds one variant. */
enum {
#if defined(KV_WASM_RELAXED)
  KV_VARIANT_RELAXED,
#elif defined(__wasm_simd128__)
  KV_VARIANT_SIMD128,
#else
  KV_VARIANT_SCALAR,
#endif
#if defined(__x86_64__)
  KV_VARIANT_AVX2,
  KV_VARIANT_AVX512,
  KV_VARIANT_AVX512VNNI,
#elif defined(__aarch64__)
  KV_VARIANT_NEON,
  KV_VARIANT_NEONDOT,
#endif
  KV_VARIANTS
};

typedef struct kv_kernels {
  /* convert: x [rows][n] to fp16, rows `stride` entries apart; not 0 if a number was NaN or beyond 65504, and what was
   * written is then of no use. Back: f32(x) - f32(mean), [rows][n]; mean NULL: none. And their mean (section 3).
   * n is a multiple of 16. */
  int (*narrow)(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran);
  void (*widen)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out,
                uint32_t *ran);
  void (*mean)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran);

  /* CRC-32 as in zlib: start from 0, feed pieces in order */
  uint32_t (*crc32)(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran);

  /* transform: x [rows][head_dim] in place, T and its transpose (section 4) */
  void (*forward)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran);
  void (*inverse)(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran);

  /* encode, turbo: y [tokens][d], already transformed, to codes [tokens][d] and scales without the gain
   * (section 5: unbiased n2 / e, else least squares e / c2) */
  void (*quantize)(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens, uint8_t *codes,
                   float *scales, uint32_t *ran);
  /* e = y - scale * centroid, [tokens][d], and n2[tokens] = D16(e, e); e may be y */
  void (*residual)(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                   uint32_t tokens, float *e, float *n2, uint32_t *ran);
  /* encode, KIVI: r [tokens][d] to codes, steps and minima (fp16). Keys: one group of tokens, [d] each.
   * Values: one token, a step and minimum for each group of 32 channels, `stride` entries apart. */
  void (*affine_keys)(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes, uint8_t *steps,
                      uint8_t *minima, uint32_t *ran);
  void (*affine_values)(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps, uint8_t *minima,
                        uint32_t stride, uint32_t *ran);

  /* pack: codes [tokens][d], tokens a multiple of 16, to the tiles of one head */
  void (*pack_keys)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                    uint32_t *ran);
  void (*pack_values)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                      uint32_t *ran);

  /* widen, forward, quantize and pack in one, of turbo codes: fp16 rows of one head, `tokens` a multiple of 16, to the
   * tiles of keys or values and scales without the gain. NULL where a variant has only the pieces. */
  void (*encode)(const kv_codec *codec, const kv_transform *t, int keys, int unbiased, const uint16_t *x,
                 uint64_t stride, const uint16_t *mean, uint32_t tokens, uint8_t *tiles, float *scales, uint32_t *ran);

  /* query (section 7): the integer query qi [d] of z with bound 127, or of z * step with bound 16256;
   * the result is its scale qs */
  float (*query8)(const float *z, uint32_t d, int8_t *qi, uint32_t *ran);
  float (*query15)(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran);

  /* keyscan: out[row * stride + token] = sum over channels of q[row][channel] * table[code] */
  void (*keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                  uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran);
  void (*keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                    uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran);

  /* valuesum, one span: out[row * stride + channel] = sum over tokens of w[row][token] * table[code],
   * w [rows][tokens] in 0 .. 16383, channel counted from the span's first */
  void (*valuesum)(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                   int32_t *out, uint32_t stride, uint32_t *ran);

  /* softmax: largest of t[n], n >= 1; and t = ex2(t - maximum) in place, added to stripe (phase + i) mod 16 */
  float (*maximum)(const float *t, uint32_t n, uint32_t *ran);
  void (*exponentials)(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran);

  /* rows of fp16: t[row * t_stride + token] = D16(q[row * q_stride ...], x[token]), and acc[row][c] += p[row *
   * p_stride + token] * x[token][c] in token order. x: `tokens` rows of d fp16, stride_bytes apart. */
  void (*dots)(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x, uint64_t stride_bytes,
               uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran);
  void (*weighted)(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                   uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran);

  /* combine: logits t = (f32(sum) * su) * factor, or added to t, or f32(sum) * scale + bias (section 8) */
  void (*logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran);
  void (*add_logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran);
  void (*affine_logits)(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran);
  void (*shift)(float *t, uint32_t n, float bias, uint32_t *ran); /* t = t + bias */
  /* w = p * scale to 14-bit weights; the result is W, their largest; zeros where W < 2^-60 (section 10) */
  float (*weigh)(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran);
  /* acc = acc * al + f32(sum) * f;  acc * al + (f32(sum) * scale + offset) * be;  acc * al + x * be */
  void (*blend)(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran);
  void (*blend_affine)(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset, float be,
                       uint32_t *ran);
  void (*blend_rows)(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran);
} kv_kernels;

extern const kv_kernels kv_kernels_scalar, kv_kernels_simd128, kv_kernels_relaxed;
#if defined(__x86_64__)
extern const kv_kernels kv_kernels_avx2, kv_kernels_avx512, kv_kernels_avx512vnni;
#elif defined(__aarch64__)
extern const kv_kernels kv_kernels_neon, kv_kernels_neondot;
#endif

#endif
