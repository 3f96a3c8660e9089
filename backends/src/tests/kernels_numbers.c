/* Conversions, rounding, the fixed sum, ex2 and CRC-32. */
#include "kernels_support.h"

#include <math.h>

#include "../core/crc32.h"
#include "../core/crc32_table.h"
#include "../core/scale.h"
#include "../core/sums.h"
#include "../core/variants.h"

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

/* (1 + 2^-13)(1 - 2^-13) rounds to 1, so the sum is 0; a fused multiply-add gives -2^-26. */
static void contraction(const kv_kernels *k) {
  float a[16] = {1 + 0x1p-13f, 1}, b[16] = {1 - 0x1p-13f, -1}, t = 1;
  float a32[32] = {1 + 0x1p-13f}, b32[32] = {1 - 0x1p-13f};
  uint16_t x[16] = {0};
  uint32_t ran = 0;
  CHECK(kv_d16(a, b, 16) == 0);
  a32[16] = 1, b32[16] = -1; /* the same stripe: product, then product and sum */
  CHECK(kv_d16(a32, b32, 32) == 0);
  for (int i = 0; i < 2; i++) x[i] = kv_f16(i ? -1.0f : 1.0f);
  float q[16] = {1, 1};
  k->dots(q, 16, 1, 16, (const uint8_t *)x, 32, 1, &t, 1, &ran);
  CHECK(t == 0 && ran == 1u << KV_VARIANT_SCALAR);
  float acc[1] = {-1}, al = 1, row[1] = {1 + 0x1p-13f};
  k->blend_rows(acc, row, 1, al, 1 - 0x1p-13f, &ran);
  CHECK(acc[0] == 0);
}

static float ex2(const kv_kernels *k, float x) {
  float stripes[16] = {0};
  uint32_t ran = 0;
  k->exponentials(&x, 1, 0, stripes, 5, &ran);
  CHECK(stripes[5] == x && stripes[4] == 0);
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

int main(void) {
  const kv_kernels *k = kv_variants[KV_VARIANT_SCALAR].kernels;
  halves();
  half_rounding();
  rounding();
  contraction(k);
  exponentials(k);
  stripes(k);
  crc();
  log_scales();
  return closing("kernels_numbers");
}
