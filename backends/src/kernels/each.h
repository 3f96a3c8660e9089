/* The list of kernels, once: KV_DECLARE_KERNELS(avx2) declares kv_forward_avx2 and so on,
 * KV_KERNEL_TABLE(avx2) is the table that holds them, but for `encode`, which a variant may lack. */
#ifndef KV_KERNELS_EACH_H
#define KV_KERNELS_EACH_H

#include "kernels.h"

#define KV_DECLARE_KERNELS(isa)                                                                                        \
  int kv_narrow_##isa(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran);       \
  void kv_widen_##isa(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out, \
                      uint32_t *ran);                                                                                  \
  void kv_mean_##isa(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran);    \
  uint32_t kv_crc32_##isa(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran);                           \
  void kv_forward_##isa(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran);                                \
  void kv_inverse_##isa(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran);                                \
  void kv_quantize_##isa(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens,             \
                         uint8_t *codes, float *scales, uint32_t *ran);                                                \
  void kv_residual_##isa(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales, \
                         uint32_t tokens, float *e, float *n2, uint32_t *ran);                                         \
  void kv_affine_keys_##isa(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes,                \
                            uint8_t *steps, uint8_t *minima, uint32_t *ran);                                           \
  void kv_affine_values_##isa(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps,               \
                              uint8_t *minima, uint32_t stride, uint32_t *ran);                                        \
  void kv_pack_keys_##isa(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,    \
                          uint32_t *ran);                                                                              \
  void kv_pack_values_##isa(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,  \
                            uint32_t *ran);                                                                            \
  void kv_encode_##isa(const kv_codec *codec, const kv_transform *t, int keys, int unbiased, const uint16_t *x,        \
                       uint64_t stride, const uint16_t *mean, uint32_t tokens, uint8_t *tiles, float *scales,          \
                       uint32_t *ran);                                                                                 \
  float kv_query8_##isa(const float *z, uint32_t d, int8_t *qi, uint32_t *ran);                                        \
  float kv_query15_##isa(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran);                   \
  void kv_keyscan_##isa(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,     \
                        uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran);                                  \
  void kv_keyscan15_##isa(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,  \
                          uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran);                                \
  void kv_valuesum_##isa(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,  \
                         int32_t *out, uint32_t stride, uint32_t *ran);                                                \
  float kv_maximum_##isa(const float *t, uint32_t n, uint32_t *ran);                                                   \
  void kv_exponentials_##isa(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran);   \
  void kv_dots_##isa(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,                   \
                     uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran);              \
  void kv_weighted_##isa(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,               \
                         uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran);                           \
  void kv_logits_##isa(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran);        \
  void kv_add_logits_##isa(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran);    \
  void kv_affine_logits_##isa(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran);       \
  void kv_shift_##isa(float *t, uint32_t n, float bias, uint32_t *ran);                                                \
  float kv_weigh_##isa(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran);                    \
  void kv_blend_##isa(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran);                   \
  void kv_blend_affine_##isa(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset,          \
                             float be, uint32_t *ran);                                                                 \
  void kv_blend_rows_##isa(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran)

#define KV_KERNEL_LIST(isa)                                                                                            \
  .narrow = kv_narrow_##isa,                                                                                           \
  .widen = kv_widen_##isa,                                                                                             \
  .mean = kv_mean_##isa,                                                                                               \
  .crc32 = kv_crc32_##isa,                                                                                             \
  .forward = kv_forward_##isa,                                                                                         \
  .inverse = kv_inverse_##isa,                                                                                         \
  .quantize = kv_quantize_##isa,                                                                                       \
  .residual = kv_residual_##isa,                                                                                       \
  .affine_keys = kv_affine_keys_##isa,                                                                                 \
  .affine_values = kv_affine_values_##isa,                                                                             \
  .pack_keys = kv_pack_keys_##isa,                                                                                     \
  .pack_values = kv_pack_values_##isa,                                                                                 \
  .query8 = kv_query8_##isa,                                                                                           \
  .query15 = kv_query15_##isa,                                                                                         \
  .keyscan = kv_keyscan_##isa,                                                                                         \
  .keyscan15 = kv_keyscan15_##isa,                                                                                     \
  .valuesum = kv_valuesum_##isa,                                                                                       \
  .maximum = kv_maximum_##isa,                                                                                         \
  .exponentials = kv_exponentials_##isa,                                                                               \
  .dots = kv_dots_##isa,                                                                                               \
  .weighted = kv_weighted_##isa,                                                                                       \
  .logits = kv_logits_##isa,                                                                                           \
  .add_logits = kv_add_logits_##isa,                                                                                   \
  .affine_logits = kv_affine_logits_##isa,                                                                             \
  .shift = kv_shift_##isa,                                                                                             \
  .weigh = kv_weigh_##isa,                                                                                             \
  .blend = kv_blend_##isa,                                                                                             \
  .blend_affine = kv_blend_affine_##isa,                                                                               \
  .blend_rows = kv_blend_rows_##isa

#define KV_KERNEL_TABLE(isa) {KV_KERNEL_LIST(isa)}

#endif
