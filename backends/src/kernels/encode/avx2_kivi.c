/* KIVI: asymmetric steps and minima (numeric contract, section 6), eight groups or eight channels at once. */
#include "kernels/avx2.h"

typedef struct affine {
  __m128i step, minimum; /* fp16, as stored */
  __m256 step32, minimum32;
} affine;

/* f16s: an infinity, 0x7c00, becomes the largest number below it. Compare gives -1. */
static inline __m128i f16s(__m256 x) {
  const __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
  const __m128i size = _mm_and_si128(h, _mm_set1_epi16(0x7fff));
  return _mm_add_epi16(h, _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7c00)));
}

static inline affine affine_of(__m256 smallest, __m256 largest, __m256 levels) {
  const __m256 zero = _mm256_setzero_ps();
  affine a;
  a.minimum = f16s(_mm256_add_ps(smallest, zero));
  a.minimum32 = _mm256_cvtph_ps(a.minimum);
  const __m256 range = _mm256_sub_ps(_mm256_add_ps(largest, zero), a.minimum32);
  a.step = f16s(_mm256_and_ps(_mm256_div_ps(range, levels), _mm256_cmp_ps(range, zero, _CMP_GT_OQ)));
  a.step32 = _mm256_cvtph_ps(a.step);
  return a;
}

/* A step of 0 gives 0, whatever the quotient. */
static inline void store_codes(uint8_t *codes, const float *r, const affine *a, __m256 levels) {
  __m256 x = _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(r), a->minimum32), a->step32);
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-1.0f)), _mm256_set1_ps(0x1p20f));
  x = _mm256_and_ps(x, _mm256_cmp_ps(a->step32, _mm256_setzero_ps(), _CMP_NEQ_OQ));
  __m256i code = _mm256_max_epi32(_mm256_cvtps_epi32(x), _mm256_setzero_si256());
  kv_store8_bytes(codes, _mm256_min_epi32(code, _mm256_cvtps_epi32(levels)));
}

void KV_KERNEL(affine_keys)(uint32_t bits, const float *r, uint32_t tokens, uint32_t d, uint8_t *codes, uint8_t *steps,
                         uint8_t *minima, uint32_t *ran) {
  const __m256 levels = _mm256_set1_ps((float)((1 << bits) - 1));
  KV_RAN(ran);
  for (uint32_t c = 0; c < d; c += 8) {
    __m256 smallest = _mm256_loadu_ps(r + c), largest = smallest;
    for (uint32_t j = 1; j < tokens; j++) {
      const __m256 x = _mm256_loadu_ps(r + j * d + c);
      smallest = _mm256_min_ps(x, smallest);
      largest = _mm256_max_ps(x, largest);
    }
    const affine a = affine_of(smallest, largest, levels);
    for (uint32_t j = 0; j < tokens; j++) store_codes(codes + j * d + c, r + j * d + c, &a, levels);
    _mm_storeu_si128((__m128i *)(steps + 2 * c), a.step);
    _mm_storeu_si128((__m128i *)(minima + 2 * c), a.minimum);
  }
}

static inline float smallest8(__m256 x) { /* of zeros either; 0.0 is added to what comes out */
  return -kv_largest8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
}

/* A group of 32 channels, or the last 16. */
void KV_KERNEL(affine_values)(uint32_t bits, const float *r, uint32_t d, uint8_t *codes, uint8_t *steps, uint8_t *minima,
                           uint32_t stride, uint32_t *ran) {
  const __m256 levels = _mm256_set1_ps((float)((1 << bits) - 1));
  KV_RAN(ran);
  for (uint32_t first = 0, group = 0; first < d; first += KV_GROUP, group++) {
    const uint32_t end = first + KV_GROUP < d ? first + KV_GROUP : d;
    __m256 smallest = _mm256_loadu_ps(r + first), largest = smallest;
    for (uint32_t c = first + 8; c < end; c += 8) {
      smallest = _mm256_min_ps(_mm256_loadu_ps(r + c), smallest);
      largest = _mm256_max_ps(_mm256_loadu_ps(r + c), largest);
    }
    const affine a = affine_of(_mm256_set1_ps(smallest8(smallest)), _mm256_set1_ps(kv_largest8(largest)), levels);
    for (uint32_t c = first; c < end; c += 8) store_codes(codes + c, r + c, &a, levels);
    kv_store16(steps + 2ull * group * stride, (uint16_t)_mm_extract_epi16(a.step, 0));
    kv_store16(minima + 2ull * group * stride, (uint16_t)_mm_extract_epi16(a.minimum, 0));
  }
}
