/* Turbo: codes and scales of transformed vectors, and what the codes leave over. */
#include "kernels/simd128.h"

/* A code is half + m, or half - 1 - m for a negative number, which is half + ~m; m counts the thresholds reached.
 * Spans are multiples of 8 channels. */
KV_ALWAYS v128_t code4(v128_t x, const v128_t *th, uint32_t thresholds) {
  const v128_t size = wasm_f32x4_abs(x);
  v128_t m = wasm_f32x4_lt(x, wasm_i64x2_const_splat(0)); /* -1 - m is ~m */
  const v128_t negative = m;
  m = wasm_i64x2_const_splat(0);
#pragma GCC unroll 7
  for (uint32_t i = 0; i < thresholds; i++) m = wasm_i32x4_sub(m, wasm_f32x4_ge(size, th[i]));
  return wasm_v128_xor(m, negative);
}

KV_ALWAYS void span_codes(const kv_span *span, const float *y, float sigma, uint8_t *codes, float *centroids,
                          uint32_t bits) {
  const uint32_t half = 1u << (bits - 1), end = span->first + (uint32_t)span->channels;
  const v128_t table = KV_LOAD(span->book->table), base = wasm_i8x16_splat((int8_t)half);
  v128_t th[7];
#pragma GCC unroll 7
  for (uint32_t i = 0; i + 1 < half; i++) th[i] = wasm_f32x4_splat(span->book->thresholds[i] * sigma);
  for (uint32_t c = span->first; c < end; c += 8) {
    const v128_t low = code4(KV_LOAD(y + c), th, half - 1), high = code4(KV_LOAD(y + c + 4), th, half - 1);
    const v128_t words = wasm_i16x8_narrow_i32x4(low, high);
    const v128_t code = wasm_i8x16_add(wasm_i8x16_narrow_i16x8(words, words), base);
    const v128_t integers = wasm_i16x8_extend_low_i8x16(wasm_i8x16_swizzle(table, code));
    wasm_v128_store64_lane(codes + c, code, 0);
    KV_STORE(centroids + c, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(integers)));
    KV_STORE(centroids + c + 4, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(integers)));
  }
}

static void codes_of_span(const kv_span *span, const float *y, float sigma, uint8_t *codes, float *centroids) {
  switch (span->bits) {
    case 1: span_codes(span, y, sigma, codes, centroids, 1); break;
    case 2: span_codes(span, y, sigma, codes, centroids, 2); break;
    case 3: span_codes(span, y, sigma, codes, centroids, 3); break;
    default: span_codes(span, y, sigma, codes, centroids, 4);
  }
}

static void zero_codes(const kv_codec *codec, uint8_t *codes) {
  for (uint32_t i = 0; i < codec->spans; i++)
    kv_fill(codes + codec->span[i].first, 1 << (codec->span[i].bits - 1), codec->span[i].channels);
}

void KV_KERNEL(quantize)(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens,
                         uint8_t *codes, float *scales, uint32_t *ran) {
  const float inverse_d = (float)(1.0 / d);
  float centroids[KV_MAX_DIM];
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d) {
    const float n2 = kv_d16_simd128(y, y, d);
    if (n2 == 0) {
      zero_codes(codec, codes);
      scales[j] = 0;
      continue;
    }
    const float sigma = __builtin_sqrtf(n2 * inverse_d);
    for (uint32_t i = 0; i < codec->spans; i++) codes_of_span(&codec->span[i], y, sigma, codes, centroids);
    const float e = kv_d16_simd128(y, centroids, d);
    scales[j] = unbiased ? n2 / e : e / kv_d16_simd128(centroids, centroids, d);
  }
}

void KV_KERNEL(residual)(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                         uint32_t tokens, float *e, float *n2, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d, e += d) {
    const v128_t scale = wasm_f32x4_splat(scales[j]);
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      const v128_t table = KV_LOAD(span->book->table);
      for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c += 8) {
        const v128_t bytes = wasm_i8x16_swizzle(table, wasm_v128_load64_zero(codes + c));
        const v128_t integers = wasm_i16x8_extend_low_i8x16(bytes);
        const v128_t low = wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(integers));
        const v128_t high = wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(integers));
        KV_STORE(e + c, wasm_f32x4_sub(KV_LOAD(y + c), wasm_f32x4_mul(scale, low)));
        KV_STORE(e + c + 4, wasm_f32x4_sub(KV_LOAD(y + c + 4), wasm_f32x4_mul(scale, high)));
      }
    }
    n2[j] = kv_d16_simd128(e, e, d);
  }
}
