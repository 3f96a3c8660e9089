/* Between float and fp16: tokens on their way into the cache and out of it again (sections 1 and 3). */
#include "kernels/isa.h"

int KV_KERNEL(narrow)(const float *x, uint32_t rows, uint32_t n, uint16_t *out, uint64_t stride, uint32_t *ran) {
  int refused = 0;
  KV_RAN(ran);
  for (; rows; rows--, x += n, out += stride)
    for (uint32_t c = 0; c < n; c++) {
      refused |= (kv_bits(x[c]) & 0x7fffffffu) > KV_LARGEST_F16;
      out[c] = kv_f16(x[c]);
    }
  return refused;
}

void KV_KERNEL(widen)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, const uint16_t *mean, float *out,
                     uint32_t *ran) {
  KV_RAN(ran);
  for (; rows; rows--, x += stride, out += n) {
    for (uint32_t c = 0; c < n; c++) out[c] = kv_f32(x[c]);
    if (!mean) continue;
    for (uint32_t c = 0; c < n; c++) out[c] = out[c] - kv_f32(mean[c]);
  }
}

void KV_KERNEL(mean)(const uint16_t *x, uint64_t stride, uint32_t rows, uint32_t n, uint16_t *mean, uint32_t *ran) {
  float sum[KV_MAX_DIM] = {0};
  KV_RAN(ran);
  for (uint32_t j = 0; j < rows; j++, x += stride)
    for (uint32_t c = 0; c < n; c++) sum[c] = sum[c] + kv_f32(x[c]);
  for (uint32_t c = 0; c < n; c++) mean[c] = kv_f16s(sum[c] / (float)rows);
}
