/* Four lanes, written once: the compiler makes SIMD128 of them, or scalar code with the same bits. */
#ifndef KVASSAY_DECODER_LANES_H
#define KVASSAY_DECODER_LANES_H

#include <stdint.h>

typedef float kvd_f4 __attribute__((vector_size(16)));
typedef int32_t kvd_i4 __attribute__((vector_size(16)));
typedef int16_t kvd_s8 __attribute__((vector_size(16)));

static inline kvd_f4 kvd_load(const float *x) {
  kvd_f4 v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}

static inline void kvd_store(float *x, kvd_f4 v) { __builtin_memcpy(x, &v, sizeof v); }

static inline kvd_s8 kvd_load_s8(const int16_t *x) {
  kvd_s8 v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}

static inline kvd_f4 kvd_splat(float x) { return (kvd_f4){x, x, x, x}; }

static inline float kvd_lane_sum(kvd_f4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/* Lane l: a[2l] * b[2l] + a[2l+1] * b[2l+1]. */
static inline kvd_i4 kvd_dot(kvd_s8 a, kvd_s8 b) {
#if defined(__wasm_simd128__)
  return (kvd_i4)__builtin_wasm_dot_s_i32x4_i16x8(a, b);
#else
  kvd_i4 sum;
  for (int l = 0; l < 4; l++) sum[l] = a[2 * l] * b[2 * l] + a[2 * l + 1] * b[2 * l + 1];
  return sum;
#endif
}

static inline float kvd_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t kvd_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* A finite binary16; WebAssembly never flushes the subnormals that this goes through. */
static inline float kvd_half(const uint8_t *bytes) {
  uint32_t h = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
  float magnitude = kvd_float((h & 0x7fffu) << 13) * 0x1p112f;
  return kvd_float(kvd_bits(magnitude) | (h & 0x8000u) << 16);
}

/* Nearest even, |x| < 2^22. */
static inline int32_t kvd_round(float x) { return (int32_t)(kvd_bits(x + 12582912.0f) - 0x4b400000u); }

#endif
