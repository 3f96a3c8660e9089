/* Rows stored as fp16: each is widened once and used for all query rows. */
#include "core/base/sums.h"
#include "kernels/isa.h"

static void widen(const uint8_t *x, uint32_t n, float *out) {
  for (uint32_t c = 0; c < n; c++) out[c] = kv_f32(kv_load16(x + 2 * c));
}

void KV_KERNEL(dots)(const float *q, uint32_t q_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                    uint64_t stride_bytes, uint32_t tokens, float *t, uint32_t t_stride, uint32_t *ran) {
  float row[KV_MAX_PAGE];
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, x += stride_bytes) {
    widen(x, d, row);
    for (uint32_t r = 0; r < rows; r++) t[r * t_stride + j] = kv_d16(q + r * q_stride, row, d);
  }
}

void KV_KERNEL(weighted)(const float *p, uint32_t p_stride, uint32_t rows, uint32_t d, const uint8_t *x,
                        uint64_t stride_bytes, uint32_t tokens, float *acc, uint32_t *ran) {
  float row[KV_MAX_DIM];
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, x += stride_bytes) {
    widen(x, d, row);
    for (uint32_t r = 0; r < rows; r++) {
      const float weight = p[r * p_stride + j];
      float *sum = acc + r * d;
      for (uint32_t c = 0; c < d; c++) {
        float product = weight * row[c];
        sum[c] = sum[c] + product;
      }
    }
  }
}
