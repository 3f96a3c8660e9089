/* Float kernels of every variant against scalar, bit for bit: transform, encode, query, softmax, fp16 rows, combine.
 * Any length, subnormals, ties, and the cases that a fused or reordered operation would change. */
#include "variants_support.h"

#include "core/base/sums.h"

static const kv_kernels *S, *K;

#define SAME(a, b, bytes) CHECK(memcmp(a, b, bytes) == 0)
#define RAN(ran) CHECK(is_forced(ran))

enum { ORDINARY, TINY, WIDE, TIES, ZERO, KINDS };

/* Ordinary; subnormal; magnitudes from 2^-60 to 2^20; halves of small integers; zeros of both signs. */
static float number(uint64_t *random, uint32_t kind) {
  const float x = draw_float(random);
  switch (kind) {
    case TINY: return x * 0x1p-130f;
    case WIDE: return x * kv_pow2((int32_t)pick(random, 80) - 60);
    case TIES: return (float)((int32_t)pick(random, 65) - 32) * 0.5f;
    case ZERO: return x < 0 ? -0.0f : 0.0f;
    default: return x * 3;
  }
}

static float *numbers(uint64_t *random, uint32_t which, uint32_t kind, uint32_t n, uint32_t gap) {
  float *x = guarded(which, 4ull * n, gap);
  for (uint32_t i = 0; i < n; i++) x[i] = number(random, kind);
  return x;
}

static float *heap_copy(const float *x, uint32_t n) {
  float *copy = malloc(4ull * n);
  CHECK(copy != NULL);
  memcpy(copy, x, 4ull * n);
  return copy;
}

static void transforms(uint64_t *random, uint32_t kind) {
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16)
    for (uint32_t rounds = 1; rounds <= 2; rounds++)
      for (int inverse = 0; inverse < 2; inverse++) {
        const uint32_t rows = 1 + pick(random, 20), gap = 4 * pick(random, 4); /* eight at once, and fewer */
        void *tables = block(kv_transform_bytes(d));
        kv_transform_make(draw(random), KV_STREAM_KEYS, d, rounds, tables);
        const kv_transform t = kv_transform_view(tables, d, rounds);
        float *x = numbers(random, 0, kind, rows * d, gap), *expected = heap_copy(x, rows * d);
        uint32_t ran = 0, ignored = 0;
        (inverse ? S->inverse : S->forward)(&t, expected, rows, &ignored);
        (inverse ? K->inverse : K->forward)(&t, x, rows, &ran);
        SAME(expected, x, 4ull * rows * d);
        RAN(ran);
        check_gap(0, gap);
        free(tables);
        free(expected);
      }
}

static void encode(uint64_t *random, uint32_t kind) {
  static const uint8_t modes[] = {0x14, 0x15, 0x16, 0x17, 0x18};
  static uint8_t codes[2][20 * KV_MAX_DIM];
  static float e[20 * KV_MAX_DIM];
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16) {
    const uint32_t tokens = 1 + pick(random, 20), n = tokens * d;
    float scales[2][20], norms[2][20];
    uint32_t ran = 0, ran2 = 0, ignored = 0;
    kv_codec codec;
    CHECK(kv_codec_of(modes[pick(random, 5)], d, 0, &codec));
    float *y = numbers(random, 0, kind, n, 0);
    if (tokens > 1) memset(y, 0, 4ull * d); /* a zero vector among others */
    const int unbiased = (int)pick(random, 2);
    uint8_t *out = guarded(1, n, 0);
    S->quantize(&codec, d, unbiased, y, tokens, codes[0], scales[0], &ignored);
    K->quantize(&codec, d, unbiased, y, tokens, out, scales[1], &ran);
    SAME(codes[0], out, n);
    SAME(scales[0], scales[1], 4 * tokens);
    float *left = guarded(2, 4ull * n, 0);
    S->residual(&codec, d, y, codes[0], scales[0], tokens, e, norms[0], &ignored);
    K->residual(&codec, d, y, out, scales[0], tokens, left, norms[1], &ran2);
    SAME(e, left, 4ull * n);
    SAME(norms[0], norms[1], 4 * tokens);
    RAN(ran);
    RAN(ran2);
  }
}

/* A threshold itself belongs to the outer code: y = +-TH * sigma, as near as floats come. */
static void thresholds(uint64_t *random) {
  for (uint32_t half_bits = 4; half_bits <= 8; half_bits++) {
    enum { D = 128 };
    kv_codec codec;
    float y[D], scales[2];
    uint8_t codes[2][D];
    uint32_t ran = 0, ignored = 0;
    CHECK(kv_codec_of(0x10 + half_bits, D, 0, &codec));
    for (uint32_t c = 0; c < D; c++) y[c] = draw_float(random);
    for (int round = 0; round < 30; round++) {
      float n2 = 0;
      for (uint32_t c = 0; c < D; c++) n2 += y[c] * y[c];
      const float sigma = __builtin_sqrtf(n2 / D);
      for (uint32_t c = 0; c < D; c += 3) {
        const kv_span *span = &codec.span[codec.spans == 2 && c >= D / 2];
        const uint32_t which = pick(random, (1u << (span->bits - 1)) - 1);
        /* or where a variant may have a bound of its own */
        const float unit = pick(random, 2) ? span->book->thresholds[which] : 0.3f * (float)pick(random, 9);
        const float th = unit * sigma;
        y[c] = kv_float(kv_bits(pick(random, 2) ? th : -th) + (th > 0 ? pick(random, 3) - 1 : 0));
      }
      S->quantize(&codec, D, 1, y, 1, codes[0], &scales[0], &ignored);
      K->quantize(&codec, D, 1, y, 1, codes[1], &scales[1], &ran);
      SAME(codes[0], codes[1], D);
      SAME(&scales[0], &scales[1], 4);
    }
  }
}

/* A number that is a threshold belongs to the outer code. The threshold depends on it: both settle by turns. */
static void at_thresholds(uint64_t *random) {
  enum { D = 128 };
  uint32_t settled = 0;
  for (uint32_t trial = 0; trial < 50; trial++) {
    kv_codec codec;
    float y[D], unit[D], sigma = 0, before = -1, scales[2];
    uint8_t codes[2][D];
    uint32_t ran = 0, ignored = 0;
    CHECK(kv_codec_of(0x14 + trial % 5, D, 0, &codec));
    for (uint32_t c = 0; c < D; c++) {
      const kv_span *span = &codec.span[codec.spans == 2 && c >= D / 2];
      const float th = span->book->thresholds[pick(random, (1u << (span->bits - 1)) - 1)];
      y[c] = draw_float(random), unit[c] = pick(random, 2) ? th : -th;
    }
    for (uint32_t turn = 0; turn < 100 && sigma != before; turn++) {
      before = sigma, sigma = __builtin_sqrtf(kv_d16(y, y, D) * (1.0f / D));
      for (uint32_t c = 0; c < D; c += 3) y[c] = unit[c] * sigma;
    }
    settled += sigma == before;
    S->quantize(&codec, D, 1, y, 1, codes[0], &scales[0], &ignored);
    K->quantize(&codec, D, 1, y, 1, codes[1], &scales[1], &ran);
    SAME(codes[0], codes[1], D);
    SAME(&scales[0], &scales[1], 4);
  }
  CHECK(settled > 25);
}

static void kivi(uint64_t *random, uint32_t kind) {
  static uint8_t codes[2][32 * KV_MAX_DIM];
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16) {
    const uint32_t bits = 2 + pick(random, 3), tokens = 16 + 16 * pick(random, 2), n = tokens * d;
    uint8_t steps[2][2 * KV_MAX_DIM] = {{0}}, minima[2][2 * KV_MAX_DIM] = {{0}};
    uint32_t ran = 0, ignored = 0;
    float *r = numbers(random, 0, kind, n, 0);
    if (pick(random, 4) == 0) r[pick(random, n)] = 131008.0f; /* a centred value beyond fp16 */
    S->affine_keys(bits, r, tokens, d, codes[0], steps[0], minima[0], &ignored);
    K->affine_keys(bits, r, tokens, d, codes[1], steps[1], minima[1], &ran);
    SAME(codes[0], codes[1], n);
    SAME(steps[0], steps[1], sizeof steps[0]);
    SAME(minima[0], minima[1], sizeof minima[0]);
    RAN(ran);
    const float *row = memcpy(guarded(1, 4ull * d, 0), r, 4ull * d);
    uint8_t *out = guarded(2, d, 0);
    ran = 0;
    S->affine_values(bits, row, d, codes[0], steps[0], minima[0], 3, &ignored);
    K->affine_values(bits, row, d, out, steps[1], minima[1], 3, &ran);
    SAME(codes[0], out, d);
    SAME(steps[0], steps[1], sizeof steps[0]);
    SAME(minima[0], minima[1], sizeof minima[0]);
    RAN(ran);
  }
}

static void query(uint64_t *random, uint32_t kind) {
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16) {
    int8_t q[KV_MAX_DIM];
    int16_t q15[KV_MAX_DIM];
    uint32_t ran = 0, ran15 = 0, ignored = 0;
    float *z = numbers(random, 0, kind, d, 0), *step = numbers(random, 1, ORDINARY, d, 0);
    for (uint32_t c = 0; c < d; c++) step[c] = kv_abs(step[c]);
    if (kind == TIES) z[0] = 127, z[1] = -127; /* gain 1: the halves are ties */
    int8_t *out = guarded(2, d, 0);
    int16_t *out15 = guarded(3, 2 * d, 0);
    float a = S->query8(z, d, q, &ignored), b = K->query8(z, d, out, &ran);
    CHECK(kv_bits(a) == kv_bits(b));
    SAME(q, out, d);
    a = S->query15(z, step, d, q15, &ignored), b = K->query15(z, step, d, out15, &ran15);
    CHECK(kv_bits(a) == kv_bits(b));
    SAME(q15, out15, 2 * d);
    RAN(ran);
    RAN(ran15);
  }
}

static void softmax(uint64_t *random, uint32_t kind) {
  for (uint32_t n = 1; n <= 1024; n += n < 70 ? 1 : 61) {
    const uint32_t phase = pick(random, 16);
    uint32_t ran = 0, ran2 = 0, ignored = 0;
    float *t = numbers(random, 0, kind, n, 0), stripes[2][16];
    for (uint32_t j = 0; j < n; j++) t[j] = t[j] * (pick(random, 2) ? 40.0f : 1.0f);
    const float largest = S->maximum(t, n, &ignored);
    CHECK(largest == K->maximum(t, n, &ran)); /* of +0 and -0 either */
    for (uint32_t i = 0; i < 16; i++) stripes[0][i] = stripes[1][i] = pick(random, 2) ? kv_abs(draw_float(random)) : 0;
    float *expected = heap_copy(t, n);
    S->exponentials(expected, n, largest, stripes[0], phase, &ignored);
    K->exponentials(t, n, largest, stripes[1], phase, &ran2);
    SAME(expected, t, 4ull * n);
    SAME(stripes[0], stripes[1], sizeof stripes[0]);
    RAN(ran);
    RAN(ran2);
    free(expected);
  }
}

/* Around every power of two and the limit of ex2. */
static void exponential_edges(void) {
  for (int32_t e = -70; e <= 0; e++)
    for (int32_t step = -3; step <= 3; step++) {
      const float at = (float)e + 0.5f * (float)(e % 2);
      float x = kv_float(kv_bits(at) + (uint32_t)(at == 0 ? 0 : step)), y = x, stripes[2][16] = {{0}};
      uint32_t ran = 0;
      S->exponentials(&x, 1, 0, stripes[0], 3, &ran);
      K->exponentials(&y, 1, 0, stripes[1], 3, &ran);
      CHECK(kv_bits(x) == kv_bits(y));
    }
}

static void rows(uint64_t *random, uint32_t kind) {
  static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 24};
  static float expected[24 * KV_MAX_DIM], t[24 * 80];
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16) {
    const uint32_t n = counts[pick(random, 8)], tokens = 1 + pick(random, 70), gap = 4 * pick(random, 4);
    const uint32_t stride = 2 * d + 2 * pick(random, 5), p_stride = tokens + pick(random, 3);
    const uint64_t bytes = (uint64_t)(tokens - 1) * stride + 2ull * d;
    uint8_t *x = guarded(0, bytes, gap);
    float *q = numbers(random, 1, kind, n * d, gap), *p = numbers(random, 2, kind, (n - 1) * p_stride + tokens, gap);
    uint32_t ran = 0, ran2 = 0, ignored = 0;
    for (uint64_t i = 0; i + 1 < bytes; i += 2) kv_store16(x + i, kv_f16(number(random, kind)));
    float *out = guarded(3, 4ull * n * p_stride, gap);
    memset(out, 0, 4ull * n * p_stride);
    memset(t, 0, 4ull * n * p_stride);
    S->dots(q, d, n, d, x, stride, tokens, t, p_stride, &ignored);
    K->dots(q, d, n, d, x, stride, tokens, out, p_stride, &ran);
    SAME(t, out, 4ull * n * p_stride);
    float *acc = numbers(random, 4, kind, n * d, gap);
    memcpy(expected, acc, 4ull * n * d);
    S->weighted(p, p_stride, n, d, x, stride, tokens, expected, &ignored);
    K->weighted(p, p_stride, n, d, x, stride, tokens, acc, &ran2);
    SAME(expected, acc, 4ull * n * d);
    RAN(ran);
    RAN(ran2);
    check_gap(3, gap);
    check_gap(4, gap);
  }
}

/* One fp16 stays what it is: all that are finite, subnormals included. */
static void halves(void) {
  const float q[16] = {1};
  for (uint32_t h = 0; h < 65536; h++) {
    uint16_t x[16] = {0};
    float t = 7;
    uint32_t ran = 0;
    if (!kv_f16_finite((uint16_t)h)) continue;
    x[0] = (uint16_t)h;
    K->dots(q, 16, 1, 16, (const uint8_t *)x, 32, 1, &t, 1, &ran);
    CHECK(t == kv_f32((uint16_t)h));
  }
}

static void combine(uint64_t *random, uint32_t kind) {
  for (uint32_t n = 1; n <= 1024; n += n < 40 ? 1 : 41) {
    int32_t *sum = guarded(0, 4ull * n, 0);
    float *su = numbers(random, 1, kind, n, 0), *t = numbers(random, 2, kind, n, 0), *expected = heap_copy(t, n);
    const float a = number(random, ORDINARY), b = number(random, kind), c = number(random, kind);
    const float *x = numbers(random, 3, kind, n, 0);
    uint32_t ran[8] = {0}, ignored = 0;
    for (uint32_t j = 0; j < n; j++) sum[j] = (int32_t)(draw(random) >> 32) >> pick(random, 16);
    S->logits(sum, su, n, a, expected, &ignored), K->logits(sum, su, n, a, t, &ran[0]);
    SAME(expected, t, 4ull * n);
    S->add_logits(sum, su, n, a, expected, &ignored), K->add_logits(sum, su, n, a, t, &ran[1]);
    SAME(expected, t, 4ull * n);
    S->blend(expected, sum, n, a, b, &ignored), K->blend(t, sum, n, a, b, &ran[2]);
    SAME(expected, t, 4ull * n);
    S->blend_affine(expected, sum, n, a, b, c, 0.3f, &ignored), K->blend_affine(t, sum, n, a, b, c, 0.3f, &ran[3]);
    SAME(expected, t, 4ull * n);
    S->blend_rows(expected, x, n, a, b, &ignored), K->blend_rows(t, x, n, a, b, &ran[4]);
    SAME(expected, t, 4ull * n);
    S->shift(expected, n, a, &ignored), K->shift(t, n, a, &ran[5]);
    SAME(expected, t, 4ull * n);
    S->affine_logits(sum, n, a, b, expected, &ignored), K->affine_logits(sum, n, a, b, t, &ran[6]);
    SAME(expected, t, 4ull * n);
    int16_t iw[1024], *out = guarded(4, 2ull * n, 0);
    for (uint32_t j = 0; j < n; j++) su[j] = kv_abs(su[j]), t[j] = kv_abs(draw_float(random));
    if (kind == TIES) su[0] = 16383, t[0] = 1; /* gain 1 */
    const float largest = S->weigh(t, su, n, iw, &ignored), other = K->weigh(t, su, n, out, &ran[7]);
    CHECK(kv_bits(largest) == kv_bits(other));
    SAME(iw, out, 2ull * n);
    for (int i = 0; i < 8; i++) RAN(ran[i]);
    free(expected);
  }
}

/* In the same stripe -(1 + 2^-10 + 2^-23), then (1 + 2^-23)(1 + 2^-10), which rounds to its opposite: the sum is 0,
 * and 2^-33 where the second product is fused. Likewise (1 + 2^-13)(1 - 2^-13) - 1 is 0 or -2^-26. In every place of
 * a register. */
static void contraction(void) {
  for (uint32_t i = 0; i < 16; i++) {
    const float a = 1 + 0x1p-13f, b = 1 - 0x1p-13f;
    float q[32] = {0}, p[2] = {-(1 + 0x1p-10f + 0x1p-23f), 1 + 0x1p-23f}, t = 1, acc[16], row[16];
    int32_t sum[16];
    uint16_t x[32] = {0};
    uint32_t ran = 0;
    q[i] = p[0], q[16 + i] = p[1];
    x[i] = kv_f16(1.0f), x[16 + i] = kv_f16(1 + 0x1p-10f);
    K->dots(q, 32, 1, 32, (const uint8_t *)x, 64, 1, &t, 1, &ran);
    CHECK(t == 0);
    for (int k = 0; k < 16; k++) acc[k] = 0;
    K->weighted(p, 2, 1, 16, (const uint8_t *)x, 32, 2, acc, &ran);
    CHECK(acc[i] == 0);
    for (int k = 0; k < 16; k++) acc[k] = -1, row[k] = a, sum[k] = (1 << 13) + 1;
    K->blend_rows(acc, row, i + 1, 1, b, &ran);
    CHECK(acc[i] == 0);
    for (int k = 0; k < 16; k++) acc[k] = a, row[k] = -1;
    K->blend_rows(acc, row, i + 1, b, 1, &ran);
    CHECK(acc[i] == 0);
    acc[i] = -1;
    K->blend(acc, sum, i + 1, 1, b * 0x1p-13f, &ran);
    CHECK(acc[i] == 0);
    K->affine_logits(sum, i + 1, b * 0x1p-13f, -1, acc, &ran);
    CHECK(acc[i] == 0);
    acc[i] = -1, row[i] = b * 0x1p-13f;
    K->add_logits(sum, row, i + 1, 1, acc, &ran);
    CHECK(acc[i] == 0);
  }
}

static void test(void) {
  uint64_t random = 2;
  S = kv_variants[KV_VARIANT_scalar].kernels;
  K = forced.kernels;
  for (uint32_t kind = 0; kind < KINDS; kind++) {
    transforms(&random, kind);
    encode(&random, kind);
    kivi(&random, kind);
    if (kind != TINY) query(&random, kind); /* the contract makes them 0 before */
    softmax(&random, kind);
    rows(&random, kind);
    combine(&random, kind);
  }
  thresholds(&random);
  at_thresholds(&random);
  exponential_edges();
  halves();
  contraction();
}

int main(void) { return for_each_variant("kernels_variants_floats", KV_VARIANT_scalar + 1, test); }
