/* Conversions, rounding, the fixed sum, ex2 and CRC-32. */
#include "kernels_support.h"

#include <math.h>

#include "core/base/crc32.h"
#include "core/base/crc32_table.h"
#include "core/base/scale.h"
#include "core/base/sums.h"
#include "core/dispatch/variants.h"

/* The value of a binary16, from its definition, in binary64. */
static double half_value(uint32_t h) {
  double sign = h & 0x8000u ? -1 : 1;
  uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
  return sign * (exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24));
}

static void halves(void) {
  for (uint32_t h = 0; h < 65536; h++) {
    float x = kv_f32((uint16_t)h);
    if ((h & 0x7c00u) == 0x7c00u) {
      CHECK(h & 1023u ? isnan(x) : isinf(x) && !signbit(x) == !(h & 0x8000u));
      continue;
    }
    CHECK((double)x == half_value(h) && !signbit(x) == !(h & 0x8000u));
    CHECK(kv_f16(x) == h && kv_f16s(x) == h);
  }
}

/* Between two neighbours: below the middle, the middle itself (to even), above. */
static void half_rounding(void) {
  for (uint32_t h = 0; h < 0x7bff; h++) {
    float middle = (float)((half_value(h) + half_value(h + 1)) / 2);
    uint32_t even = h & 1 ? h + 1 : h;
    CHECK(kv_f16(middle) == even && kv_f16(-middle) == (even | 0x8000u));
    CHECK(kv_f16(nextafterf(middle, 0)) == h);
    CHECK(kv_f16(nextafterf(middle, INFINITY)) == h + 1);
  }
  CHECK(kv_f16(65519.996f) == 0x7bff && kv_f16(65520.0f) == 0x7c00 && kv_f16s(65520.0f) == 0x7bff);
  CHECK(kv_f16s(-1e30f) == 0xfbff && kv_f16s(INFINITY) == 0x7bff && kv_f16(0x1p-26f) == 0);
}

static void rounding(void) {
  const float cases[][2] = {{0.5f, 0},  {1.5f, 2},   {2.5f, 2},  {-0.5f, 0},          {-1.5f, -2}, {-2.5f, -2},
                            {3.5f, 4},  {-3.5f, -4}, {126.5f, 126}, {-127.5f, -128}, {0.49999997f, 0},
                            {0.50000006f, 1}, {16382.5f, 16382}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) CHECK(kv_rne(cases[i][0]) == cases[i][1]);
}

/* (1 + 2^-13)(1 - 2^-13) = 1 - 2^-26 rounds to 1. Added to -1 it gives 0, fused into the addition -2^-26. */
#define ABOVE (1 + 0x1p-13f)
#define BELOW (1 - 0x1p-13f)

/* Every kernel that adds a product to something, whichever of two products a compiler might fuse. */
static void contraction(const kv_kernels *k) {
  float a[32] = {1, ABOVE}, b[32] = {-1, BELOW}, t = 1;
  uint16_t minus[32] = {0}, near[32] = {0};
  uint32_t ran = 0;
  CHECK(kv_d16(a, b, 16) == 0);
  a[16] = ABOVE, b[16] = BELOW, a[1] = 0; /* the same stripe, -1 first */
  CHECK(kv_d16(a, b, 32) == 0);

  minus[0] = kv_f16(-1), near[0] = kv_f16(1 - 0x1p-11f); /* fp16 has fewer digits: (1 + 2^-11 + 2^-13)(1 - 2^-11) */
  float q[32] = {1}, x = 1 + 0x1p-11f + 0x1p-13f, y = 1 - 0x1p-11f, product = x * y, p[2] = {1, x}, acc[32] = {0};
  CHECK((double)product != (double)x * y);
  q[16] = x, minus[16] = near[0];
  k->dots(q, 32, 1, 32, (const uint8_t *)minus, 64, 1, &t, 1, &ran);
  CHECK(t == product - 1);
  memcpy(minus + 16, near, 32);
  k->weighted(p, 2, 1, 16, (const uint8_t *)minus, 32, 2, acc, &ran);
  CHECK(acc[0] == product - 1 && is_forced(ran));
}

/* The float steps around the integer sums, on a vector's worth of equal numbers. */
static void contraction_of_steps(const kv_kernels *k) {
  float acc[16], row[16], su[16], t[16];
  int32_t one[16], minus[16];
  uint32_t ran = 0;
  for (int i = 0; i < 16; i++) {
    acc[i] = -1, row[i] = ABOVE, su[i] = ABOVE, t[i] = -1;
    one[i] = 1, minus[i] = -1;
  }
  k->blend_rows(acc, row, 16, 1, BELOW, &ran); /* second product */
  for (int i = 0; i < 16; i++) CHECK(acc[i] == 0);
  for (int i = 0; i < 16; i++) acc[i] = ABOVE, row[i] = -1;
  k->blend_rows(acc, row, 16, BELOW, 1, &ran); /* first product */
  for (int i = 0; i < 16; i++) CHECK(acc[i] == 0);
  for (int i = 0; i < 16; i++) acc[i] = ABOVE;
  k->blend(acc, minus, 16, BELOW, 1, &ran);
  for (int i = 0; i < 16; i++) CHECK(acc[i] == 0);
  for (int i = 0; i < 16; i++) acc[i] = ABOVE;
  k->blend_affine(acc, minus, 16, BELOW, 1, 0, 1, &ran);
  for (int i = 0; i < 16; i++) CHECK(acc[i] == 0);
  k->add_logits(one, su, 16, BELOW, t, &ran);
  for (int i = 0; i < 16; i++) CHECK(t[i] == 0);
  for (int i = 0; i < 16; i++) one[i] = 8193; /* (2^13 + 1)(1 - 2^-13) = 2^13 - 2^-13 rounds to 2^13 */
  k->affine_logits(one, 16, BELOW, -8192, t, &ran);
  for (int i = 0; i < 16; i++) CHECK(t[i] == 0);
  CHECK(is_forced(ran));
}

static float ex2(const kv_kernels *k, float x) {
  float stripes[16] = {0};
  uint32_t ran = 0;
  k->exponentials(&x, 1, 0, stripes, 5, &ran);
  CHECK(stripes[5] == x && stripes[4] == 0 && is_forced(ran));
  return x;
}

static void exponentials(const kv_kernels *k) {
  CHECK(ex2(k, 0.0f) == 1 && ex2(k, -0.0f) == 1);
  for (int e = 1; e <= 64; e++) CHECK(ex2(k, (float)-e) == ldexpf(1, -e));
  const float below[] = {nextafterf(-64, -65), -65, -1e30f, -INFINITY};
  for (int i = 0; i < 4; i++) CHECK(kv_bits(ex2(k, below[i])) == 0);
  for (float x = 0; x >= -64; x -= 0x1.234p-9f) {
    double exact = exp2((double)x);
    CHECK(fabs(ex2(k, x) - exact) <= 1.93e-7 * exact);
  }
}

static void stripes(const kv_kernels *k) {
  float t[40], sums[16] = {0};
  uint32_t ran = 0;
  for (int j = 0; j < 40; j++) t[j] = (float)-j;
  k->exponentials(t, 40, 0, sums, 11, &ran);
  CHECK(is_forced(ran));
  for (int i = 0; i < 16; i++) {
    float expected = 0;
    for (int j = 0; j < 40; j++)
      if ((11 + j) % 16 == i) expected = expected + ldexpf(1, -j);
    CHECK(sums[i] == expected);
  }
}

static void crc(void) {
  CHECK(kv_crc32(0, "123456789", 9) == 0xCBF43926u);
  CHECK(kv_crc32(kv_crc32(0, "1234", 4), "56789", 5) == 0xCBF43926u);
  CHECK(kv_crc32(0, "", 0) == 0);
  for (uint32_t i = 0; i < 256; i++)
    for (uint32_t k = 0; k < 8; k++) {
      uint32_t c = i;
      for (uint32_t bit = 0; bit < 8 * (k + 1); bit++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
      CHECK(kv_crc32_table[k][i] == c);
    }
}

/* Every stored code of a log scale reads back as itself; zero stays zero. */
static void log_scales(void) {
  float scales[256], su[256];
  uint8_t stored[256];
  for (int u = 0; u < 256; u++) scales[u] = u == 0 ? 0 : 3.0f * (float)exp2(-(255 - u) / 16.0);
  CHECK(kv_scales_write(KV_SCALE_U8LOG, scales, 256, stored) == 3.0f);
  float unit = kv_scales_read(KV_SCALE_U8LOG, stored, 3.0f, 256, su);
  for (int u = 0; u < 256; u++) {
    CHECK(stored[u] == u);
    CHECK(fabsf(su[u] * unit - scales[u]) <= scales[u] * 1e-6f);
  }
}

static void test(void) {
  const kv_kernels *k = forced.kernels;
  contraction(k);
  contraction_of_steps(k);
  exponentials(k);
  stripes(k);
}

int main(void) {
  halves();
  half_rounding();
  rounding();
  crc();
  log_scales();
  return for_each_variant("kernels_numbers", 0, test);
}
