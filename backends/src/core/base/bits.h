/* Bytes, binary16 and rounding: the few conversions everything else is made of. Integer based, so that
 * no result depends on flush-to-zero or on a table. */
#ifndef KV_BITS_H
#define KV_BITS_H

#include <float.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pages are little endian and are read in place"
#endif
#if FLT_EVAL_METHOD != 0
#error "the numeric contract needs binary32 operations rounded one by one (no x87)"
#endif
#if defined(__FAST_MATH__)
#error "the numeric contract forbids -ffast-math"
#endif

/* Builtins, so that a freestanding target needs no <string.h>. */
#define kv_copy __builtin_memcpy
#define kv_fill __builtin_memset

static inline uint16_t kv_load16(const void *p) { uint16_t x; kv_copy(&x, p, 2); return x; }
static inline uint32_t kv_load32(const void *p) { uint32_t x; kv_copy(&x, p, 4); return x; }
static inline uint64_t kv_load64(const void *p) { uint64_t x; kv_copy(&x, p, 8); return x; }
static inline void kv_store16(void *p, uint16_t x) { kv_copy(p, &x, 2); }
static inline void kv_store32(void *p, uint32_t x) { kv_copy(p, &x, 4); }
static inline void kv_store64(void *p, uint64_t x) { kv_copy(p, &x, 8); }

static inline uint32_t kv_bits(float x) { uint32_t u; kv_copy(&u, &x, 4); return u; }
static inline float kv_float(uint32_t u) { float x; kv_copy(&x, &u, 4); return x; }
static inline float kv_load_float(const void *p) { return kv_float(kv_load32(p)); }

static inline float kv_abs(float x) { return kv_float(kv_bits(x) & 0x7fffffffu); }
static inline float kv_flip(float x, uint32_t sign) { return kv_float(kv_bits(x) ^ sign); }
static inline float kv_pow2(int32_t e) { return kv_float((uint32_t)(e + 127) << 23); } /* -126 .. 127 */

#define KV_LARGEST_F16 0x477fe000 /* bits of 65504; magnitudes compare as integers, NaN above infinity */

/* Round to nearest even, |x| < 2^22. */
static inline float kv_rne(float x) {
  float w = x + 12582912.0f;
  return w - 12582912.0f;
}

/* Branch-free: a subnormal is an exact product with a normal result, inf and NaN get the exponent's rest. */
static inline float kv_f32(uint16_t h) {
  uint32_t magnitude = h & 0x7fffu;
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t tiny = kv_bits((float)(int32_t)magnitude * 0x1p-24f);
  uint32_t normal = (magnitude << 13) + 0x38000000u + (magnitude >= 0x7c00u ? 0x38000000u : 0u);
  return kv_float((magnitude < 0x400u ? tiny : normal) | sign);
}

/* f16(x): to nearest even, subnormals kept, overflow to infinity. */
static inline uint16_t kv_f16(float x) {
  uint32_t u = kv_bits(x), sign = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
  if (m > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (m >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
  if (m < 0x33000000u) return (uint16_t)sign;              /* below 2^-25 */
  if (m >= 0x38800000u) return (uint16_t)(sign | ((m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13));
  uint32_t shift = 126u - (m >> 23), mantissa = (m & 0x7fffffu) | 0x800000u;
  uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1u);
  return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
}

/* f16s(x): as f16, but overflow gives 65504 with the sign of x. */
static inline uint16_t kv_f16s(float x) {
  uint16_t h = kv_f16(x);
  return (h & 0x7fffu) == 0x7c00u ? (uint16_t)(h - 1u) : h;
}

static inline int kv_f16_finite(uint16_t h) { return (h & 0x7c00u) != 0x7c00u; }

static inline uint64_t kv_round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

#endif
