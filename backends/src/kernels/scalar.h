/* The scalar variant: portable C, the definition of each kernel. */
#ifndef KV_KERNELS_SCALAR_H
#define KV_KERNELS_SCALAR_H

#include "../core/bits.h"
#include "../core/sums.h"
#include "kernels.h"

#define KV_RAN_SCALAR(ran) (*(ran) |= 1u << KV_VARIANT_SCALAR)

int kv_narrow_scalar(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran);
void kv_widen_scalar(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out,
                     uint32_t *ran);
void kv_mean_scalar(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran);
uint32_t kv_crc32_scalar(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran);
void kv_forward_scalar(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran);
void kv_inverse_scalar(const kv_transform *t, float *x, uint32_t rows, uint32_t *ran);
void kv_quantize_scalar(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens,
                        uint8_t *codes, float *scales, uint32_t *ran);
void kv_residual_scalar(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                        uint32_t tokens, float *e, float *n2, uint32_t *ran);
void kv_affine_keys_scalar(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes, uint8_t *steps,
                           uint8_t *minima, uint32_t *ran);
void kv_affine_values_scalar(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps,
                             uint8_t *minima, uint32_t stride, uint32_t *ran);
void kv_pack_keys_scalar(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                         uint32_t *ran);
void kv_pack_values_scalar(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                           uint32_t *ran);
float kv_query8_scalar(const float *z, uint32_t d, int8_t *qi, uint32_t *ran);
float kv_query15_scalar(const float *z, const float *step, uint32_t d, int16_t *qi, uint32_t *ran);
void kv_keyscan_scalar(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                       uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran);
void kv_keyscan15_scalar(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                         uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran);
void kv_valuesum_scalar(const kv_span *span, const uint8_t *tiles, uint32_t tokens, const int16_t *w, uint32_t rows,
                        int32_t *out, uint32_t stride, uint32_t *ran);
float kv_maximum_scalar(const float *t, uint32_t n, uint32_t *ran);
void kv_exponentials_scalar(float *t, uint32_t n, float maximum, float stripes[16], uint32_t phase, uint32_t *ran);
void kv_dots_scalar(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                    uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran);
void kv_weighted_scalar(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                        uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran);
void kv_logits_scalar(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran);
void kv_add_logits_scalar(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran);
void kv_affine_logits_scalar(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran);
void kv_shift_scalar(float *t, uint32_t n, float bias, uint32_t *ran);
float kv_weigh_scalar(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran);
void kv_blend_scalar(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran);
void kv_blend_affine_scalar(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset, float be,
                            uint32_t *ran);
void kv_blend_rows_scalar(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran);

#endif
