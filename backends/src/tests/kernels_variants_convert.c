/* Conversions, CRC-32 and the encoder of every variant against scalar, bit for bit: every fp16, every rounding between
 * two of them, what is refused, all lengths and places of a CRC; pages in one against pages in pieces. */
#include "variants_support.h"

static const kv_kernels *S, *K;

enum { N = 64 };

/* `count` numbers as one row and as rows of 16, in memory that ends at a guard page. */
static void narrowed(const float *x, uint32_t count, int refused) {
  uint16_t expected[N * 2], *out = guarded(1, 2ull * count, 0);
  const float *in = guarded_copy(0, x, 4ull * count, 0);
  uint32_t ran = 0, ignored = 0;
  CHECK((S->narrow(in, 1, count, expected, 0, &ignored) != 0) == refused);
  CHECK((K->narrow(in, 1, count, out, 0, &ran) != 0) == refused);
  CHECK(is_forced(ran));
  if (refused) return;
  CHECK(memcmp(expected, out, 2ull * count) == 0);
  for (uint32_t i = 0; i < count; i++) CHECK(out[i] == kv_f16(x[i]));
}

/* Every fp16 with its neighbours among floats, and the middle to the next with its own. */
static void roundings(void) {
  float x[N];
  uint32_t filled = 0;
  for (uint32_t h = 0; h < 0x7c00; h++)
    for (uint32_t sign = 0; sign < 2; sign++) {
      const float a = kv_f32((uint16_t)h), next = h == 0x7bff ? 65536.0f : kv_f32((uint16_t)(h + 1));
      const float at[2] = {a, a + (next - a) / 2};
      for (uint32_t i = 0; i < 2; i++)
        for (int32_t step = -1; step <= 1; step++) {
          const uint32_t bits = kv_bits(at[i]) + (uint32_t)(kv_bits(at[i]) == 0 && step < 0 ? 0 : step);
          if (bits > KV_LARGEST_F16) continue;
          x[filled++] = kv_flip(kv_float(bits), sign << 31);
          if (filled == N) narrowed(x, N, 0), filled = 0;
        }
    }
  while (filled % 16) x[filled++] = 0; /* the largest are in what is left */
  narrowed(x, filled, 0);
  for (uint32_t i = 0; i < N; i++) x[i] = kv_flip(kv_float(1u << i % 23), i << 31); /* subnormal floats */
  narrowed(x, N, 0);
}

/* One number that does not fit, in every place of a row. */
static void refusals(uint64_t *random) {
  const uint32_t bad[] = {0x477fe001, 0x477fefff, 0x477ff000, 0x7f7fffff,
                          0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
  float x[N];
  for (uint32_t n = 16; n <= N; n += 16)
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        for (uint32_t c = 0; c < n; c++) x[c] = draw_float(random) * 60000;
        x[i] = kv_float(bad[k] | pick(random, 2) << 31);
        narrowed(x, n, 1);
      }
}

static void rows_narrow(uint64_t *random) {
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16) {
    const uint32_t rows = 1 + pick(random, 8), stride = d + pick(random, 9), gap = 4 * pick(random, 4);
    const uint64_t bytes = 2ull * ((rows - 1) * stride + d);
    float *x = guarded(0, 4ull * rows * d, gap);
    uint16_t *out = guarded(1, bytes, gap), *expected = block(bytes);
    uint32_t ran = 0, ignored = 0;
    for (uint32_t i = 0; i < rows * d; i++) x[i] = draw_float(random) * kv_pow2((int32_t)pick(random, 40) - 30);
    memset(out, 0x5A, bytes);
    memset(expected, 0x5A, bytes); /* nothing between the rows is written */
    CHECK(S->narrow(x, rows, d, expected, stride, &ignored) == 0 && K->narrow(x, rows, d, out, stride, &ran) == 0);
    CHECK(is_forced(ran) && memcmp(expected, out, bytes) == 0);
    check_gap(1, gap);
    free(expected);
  }
}

static uint16_t draw_half(uint64_t *random) {
  const uint16_t h = (uint16_t)pick(random, 65536);
  return kv_f16_finite(h) ? h : (uint16_t)(h & 0xbfff);
}

static void widened(uint64_t *random) {
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16)
    for (int with_mean = 0; with_mean < 2; with_mean++) {
      const uint32_t rows = 1 + pick(random, 40), stride = d + pick(random, 9), gap = 4 * pick(random, 4);
      const uint64_t n = (uint64_t)(rows - 1) * stride + d;
      uint16_t *x = guarded(0, 2 * n, gap), *mean = guarded(2, 2ull * d, gap);
      float *out = guarded(1, 4ull * rows * d, gap), *expected = block(4ull * rows * d);
      uint32_t ran = 0, ignored = 0;
      for (uint64_t i = 0; i < n; i++) x[i] = draw_half(random);
      for (uint32_t c = 0; c < d; c++) mean[c] = draw_half(random);
      S->widen(x, stride, rows, d, with_mean ? mean : NULL, expected, &ignored);
      K->widen(x, stride, rows, d, with_mean ? mean : NULL, out, &ran);
      CHECK(is_forced(ran) && memcmp(expected, out, 4ull * rows * d) == 0);
      check_gap(1, gap);
      free(expected);
    }
}

/* Sums that round, that cancel, and that reach the largest fp16. */
static void means(uint64_t *random) {
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16)
    for (uint32_t largest = 0; largest < 2; largest++) {
      const uint32_t rows = 16 + 16 * pick(random, 10), stride = d + pick(random, 9), gap = 2 * pick(random, 8);
      const uint64_t n = (uint64_t)(rows - 1) * stride + d;
      uint16_t *x = guarded(0, 2 * n, gap), *mean = guarded(1, 2ull * d, gap), expected[KV_MAX_DIM];
      uint32_t ran = 0, ignored = 0;
      for (uint64_t i = 0; i < n; i++) x[i] = largest ? 0x7bff : draw_half(random);
      S->mean(x, stride, rows, d, expected, &ignored);
      K->mean(x, stride, rows, d, mean, &ran);
      CHECK(is_forced(ran) && memcmp(expected, mean, 2ull * d) == 0);
      check_gap(1, gap);
    }
}

/* Bit by bit, as the polynomial says. */
static uint32_t crc_by_bits(uint32_t crc, const uint8_t *p, uint64_t bytes) {
  crc = ~crc;
  for (; bytes; bytes--, p++) {
    crc ^= *p;
    for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

static void crcs(uint64_t *random) {
  uint32_t ran = 0, ignored = 0;
  for (uint32_t bytes = 0; bytes <= 1200; bytes++) {
    const uint32_t gap = pick(random, 16), start = pick(random, 2) ? (uint32_t)draw(random) : 0;
    const uint32_t part = pick(random, bytes + 1);
    uint8_t *p = guarded(0, bytes, gap);
    for (uint32_t i = 0; i < bytes; i++) p[i] = bytes % 7 == 0 ? 0 : bytes % 7 == 1 ? 255 : (uint8_t)pick(random, 256);
    const uint32_t expected = crc_by_bits(start, p, bytes);
    CHECK(S->crc32(start, p, bytes, &ignored) == expected);
    CHECK(K->crc32(start, p, bytes, &ran) == expected);
    CHECK(K->crc32(K->crc32(start, p, part, &ran), p + part, bytes - part, &ran) == expected);
    CHECK(is_forced(ran));
  }
  for (uint32_t i = 0; i < 8 * 400; i++) { /* each bit alone: the map is linear */
    uint8_t p[400] = {0};
    p[i / 8] = (uint8_t)(1u << i % 8);
    CHECK(K->crc32(0, p, sizeof p, &ran) == S->crc32(0, p, sizeof p, &ignored));
  }
}

typedef struct encoding {
  kv_codec codec;
  uint32_t d, tokens, rounds;
  uint64_t stride;
  int keys, unbiased;
  const uint16_t *x, *mean;
} encoding;

static void pieces(const encoding *e, const kv_transform *t, uint8_t *tiles, float *scales) {
  float *y = block(4ull * e->tokens * e->d);
  uint8_t *codes = block((uint64_t)e->tokens * e->d);
  uint32_t ignored = 0;
  S->widen(e->x, e->stride, e->tokens, e->d, e->mean, y, &ignored);
  S->forward(t, y, e->tokens, &ignored);
  S->quantize(&e->codec, e->d, e->unbiased, y, e->tokens, codes, scales, &ignored);
  (e->keys ? S->pack_keys : S->pack_values)(&e->codec, e->d, codes, e->tokens, tiles, &ignored);
  free(y);
  free(codes);
}

static void encoded(uint64_t *random, const encoding *e) {
  const uint64_t bytes = kv_code_bytes(&e->codec, e->tokens);
  const uint32_t gap = 4 * pick(random, 4);
  uint8_t *expected = block(bytes), *tiles = guarded(3, bytes, gap);
  float scales[KV_MAX_PAGE], *out = guarded(4, 4ull * e->tokens, gap);
  void *tables = block(kv_transform_bytes(e->d));
  uint32_t ran = 0;
  kv_transform_make(draw(random), KV_STREAM_KEYS, e->d, e->rounds, tables);
  const kv_transform t = kv_transform_view(tables, e->d, e->rounds);
  pieces(e, &t, expected, scales);
  K->encode(&e->codec, &t, e->keys, e->unbiased, e->x, e->stride, e->mean, e->tokens, tiles, out, &ran);
  CHECK(is_forced(ran) && memcmp(expected, tiles, bytes) == 0 && memcmp(scales, out, 4ull * e->tokens) == 0);
  check_gap(3, gap);
  check_gap(4, gap);
  free(tables);
  free(expected);
}

/* Ordinary tokens; any fp16; subnormal ones; few values, so that many are equal. Some are equal to the mean. */
static uint16_t token_value(uint64_t *random, uint32_t kind) {
  switch (kind) {
    case 0: return kv_f16(draw_float(random) * 3);
    case 1: return draw_half(random);
    case 2: return (uint16_t)(pick(random, 2) << 15 | pick(random, 0x400));
    default: return kv_f16((float)((int32_t)pick(random, 3) - 1));
  }
}

static void encoders(uint64_t *random) {
  static const uint8_t modes[] = {0x14, 0x15, 0x16, 0x17, 0x18};
  if (!K->encode) return;
  for (uint32_t d = 16; d <= KV_MAX_DIM; d += 16)
    for (uint32_t m = 0; m < sizeof modes; m++)
      for (int keys = 0; keys < 2; keys++) {
        encoding e = {.d = d, .tokens = 16 + 16 * pick(random, 5), .rounds = 1 + pick(random, 2),
                      .stride = d + pick(random, 9), .keys = keys, .unbiased = (int)pick(random, 2)};
        const uint64_t n = (e.tokens - 1) * e.stride + d;
        const uint32_t gap = 2 * pick(random, 8), kind = pick(random, 4);
        uint16_t *x = guarded(0, 2 * n, gap), *mean = guarded(1, 2ull * d, gap);
        CHECK(kv_codec_of(modes[m], d, 0, &e.codec));
        for (uint64_t i = 0; i < n; i++) x[i] = token_value(random, kind);
        for (uint32_t c = 0; c < d; c++) mean[c] = token_value(random, kind);
        e.x = x, e.mean = pick(random, 2) ? mean : NULL;
        for (uint32_t j = 3; j < e.tokens; j += 5) /* vectors of zeros */
          for (uint32_t c = 0; c < d; c++) x[j * e.stride + c] = e.mean ? mean[c] : (uint16_t)(c % 2 << 15);
        encoded(random, &e);
      }
}

static void test(void) {
  uint64_t random = 3;
  S = kv_variants[KV_VARIANT_scalar].kernels;
  K = forced.kernels;
  roundings();
  refusals(&random);
  rows_narrow(&random);
  widened(&random);
  means(&random);
  crcs(&random);
  encoders(&random);
}

int main(void) { return for_each_variant("kernels_variants_convert", KV_VARIANT_scalar + 1, test); }
