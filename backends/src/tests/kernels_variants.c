/* Integer kernels of every variant against scalar: codes to tiles, key scans, value sums. Random and extreme
 * inputs, all shapes, buffers that end at a guard page. */
#include "variants_support.h"

static const kv_kernels *S, *K;

static const uint8_t MODES[] = {0x14, 0x15, 0x16, 0x17, 0x18, 0x34, 0x36, 0x38};
static const uint32_t ROWS[] = {1, 2, 3, 4, 5, 7, 8, 24};
#ifdef KV_EMULATE
enum { DIM_STEP = 112, LARGEST = 128, MANY = 16 }; /* slow: halves of 8 and of 16 channels still */
#else
enum { DIM_STEP = 16, LARGEST = KV_MAX_PAGE, MANY = 256 }; /* MANY: windows of one row may be wider */
#endif
enum { PATTERNS = 6, MAX_ROWS = 24 };

/* Codes, and multipliers below, by pattern: random; all smallest; all largest; alternating; only the last one;
 * a random choice between the extremes. */
static void fill_codes(uint64_t *random, uint32_t pattern, const kv_codec *codec, uint32_t d, uint32_t tokens,
                       uint8_t *codes) {
  for (uint32_t j = 0; j < tokens; j++)
    for (uint32_t i = 0; i < codec->spans; i++)
      for (uint32_t c = codec->span[i].first; c < codec->span[i].first + (uint32_t)codec->span[i].channels; c++) {
        const uint32_t largest = (1u << codec->span[i].bits) - 1;
        const uint32_t by_pattern[PATTERNS] = {pick(random, largest + 1), 0, largest, (j + c) % 2 ? largest : 0,
                                               c + 1 == d && j + 1 == tokens ? largest : 0,
                                               pick(random, 2) * largest};
        codes[j * d + c] = (uint8_t)by_pattern[pattern];
      }
}

static int32_t multiplier(uint64_t *random, uint32_t pattern, int32_t low, int32_t high, uint32_t i, uint32_t n) {
  const int32_t by_pattern[PATTERNS] = {low + (int32_t)pick(random, (uint32_t)(high - low + 1)), low, high,
                                        i % 2 ? low : high, i + 1 == n ? high : 0, pick(random, 2) ? low : high};
  return by_pattern[pattern];
}

static uint8_t *packed(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint32_t gap,
                       int keys) {
  const uint64_t bytes = kv_code_bytes(codec, tokens);
  uint8_t *expected = block(bytes + 64), *from = guarded_copy(0, codes, (uint64_t)tokens * d, gap);
  uint8_t *tiles = guarded(1, bytes, gap);
  const kv_kernels *k = K->pack_keys ? K : S; /* an emulation may lack it */
  uint32_t ran = 0, ignored = 0;
  (keys ? S->pack_keys : S->pack_values)(codec, d, codes, tokens, expected, &ignored);
  (keys ? k->pack_keys : k->pack_values)(codec, d, from, tokens, tiles, &ran);
  CHECK((k == K ? is_forced(ran) : ran == ignored) && memcmp(expected, tiles, bytes) == 0);
  check_gap(1, gap);
  free(expected);
  return tiles;
}

static void scan(uint64_t *random, const kv_codec *codec, uint32_t d, uint32_t tokens, uint32_t rows, uint32_t gap,
                 uint32_t pattern, const uint8_t *tiles) {
  static int32_t expected[MAX_ROWS * (KV_MAX_PAGE + 3)];
  const uint32_t stride = tokens + 3, count = rows * d; /* rows need not be dense */
  int8_t *q = guarded(2, count, gap);
  int16_t *q15 = guarded(3, 2ull * count, gap & ~1u);
  int32_t *out = guarded(4, 4ull * rows * stride, gap);
  uint32_t ran = 0, ran15 = 0, ignored = 0;
  for (uint32_t i = 0; i < count; i++) {
    q[i] = (int8_t)multiplier(random, pattern, -127, 127, i, count);
    q15[i] = (int16_t)multiplier(random, pattern, -16256, 16256, i, count);
  }
  memset(expected, 0x5A, 4ull * rows * stride);
  memset(out, 0x5A, 4ull * rows * stride);
  S->keyscan(codec, d, tiles, tokens, q, rows, expected, stride, &ignored);
  K->keyscan(codec, d, tiles, tokens, q, rows, out, stride, &ran);
  CHECK(is_forced(ran) && memcmp(expected, out, 4ull * rows * stride) == 0);
  S->keyscan15(codec, d, tiles, tokens, q15, rows, expected, stride, &ignored);
  K->keyscan15(codec, d, tiles, tokens, q15, rows, out, stride, &ran15);
  CHECK(is_forced(ran15) && memcmp(expected, out, 4ull * rows * stride) == 0);
  check_gap(4, gap);
}

static void sum(uint64_t *random, const kv_codec *codec, uint32_t tokens, uint32_t rows, uint32_t gap,
                uint32_t pattern, const uint8_t *tiles) {
  static int32_t expected[MAX_ROWS * (KV_MAX_DIM + 5)];
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    const uint32_t stride = span->channels + 5u, count = rows * tokens;
    int16_t *w = guarded(2, 2ull * count, gap);
    int32_t *out = guarded(4, 4ull * rows * stride, gap);
    uint32_t ran = 0, ignored = 0;
    for (uint32_t k = 0; k < count; k++) w[k] = (int16_t)multiplier(random, pattern, 0, 16383, k, count);
    memset(expected, 0x5A, 4ull * rows * stride);
    memset(out, 0x5A, 4ull * rows * stride);
    S->valuesum(span, tiles, tokens, w, rows, expected, stride, &ignored);
    K->valuesum(span, tiles, tokens, w, rows, out, stride, &ran);
    CHECK(is_forced(ran) && memcmp(expected, out, 4ull * rows * stride) == 0);
    check_gap(4, gap);
    tiles += (uint64_t)tokens * span->channels * span->bits / 8;
  }
}

static void shape(uint64_t *random, const kv_codec *codec, uint32_t d, uint32_t tokens, uint32_t rows, int values) {
  static uint8_t codes[KV_MAX_PAGE * KV_MAX_DIM];
  const uint32_t gap = 4 * pick(random, 4), pattern = pick(random, PATTERNS), other = pick(random, PATTERNS);
  fill_codes(random, pattern, codec, d, tokens, codes);
  scan(random, codec, d, tokens, rows, gap, other, packed(codec, d, codes, tokens, gap, 1));
  if (values) sum(random, codec, tokens, rows, gap, other, packed(codec, d, codes, tokens, gap, 0));
}

/* Every codec at every head dim with a small page, then at a few head dims with every page. */
static void shapes(uint64_t *random, const uint8_t *mode) {
  const uint32_t pages[] = {16, 32, 48, 64, 112, 128, 256, LARGEST};
  for (uint32_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
    for (uint32_t d = 16; d <= KV_MAX_DIM; d += DIM_STEP) {
      kv_codec codec = kv_codec_signs(d);
      if (mode) CHECK(kv_codec_of(*mode, d, 0, &codec));
      shape(random, &codec, d, 16 + 16 * pick(random, 4), ROWS[i], mode != NULL);
    }
  for (uint32_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    const uint32_t d[] = {64, 80, 128, 240};
    kv_codec codec = kv_codec_signs(d[i % 4]);
    if (mode) CHECK(kv_codec_of(*mode, d[i % 4], 0, &codec));
    shape(random, &codec, d[i % 4], pages[i], ROWS[pick(random, 4)], mode != NULL);
  }
}

/* All patterns against each other at the largest shape: nothing saturates or wraps. */
static void extremes(uint64_t *random, uint8_t mode) {
  static uint8_t codes[KV_MAX_PAGE * KV_MAX_DIM];
  const uint32_t d = KV_MAX_DIM;
  kv_codec codec;
  CHECK(kv_codec_of(mode, d, 0, &codec));
  for (uint32_t pattern = 1; pattern < PATTERNS; pattern++) {
    fill_codes(random, pattern, &codec, d, LARGEST, codes);
    for (uint32_t other = 1; other < PATTERNS; other++) {
      scan(random, &codec, d, 16, 2, 0, other, packed(&codec, d, codes, 16, 0, 1));
      sum(random, &codec, LARGEST, 1, 0, other, packed(&codec, d, codes, LARGEST, 0, 0));
    }
  }
}

/* 16-bit sums over windows of tiles, each of `channels` summands: queries whose magnitudes times the largest centroid
 * just fit 16 bits in every window, or just do not, against codes that are all at one end. */
static void fill_windows(const kv_codec *codec, uint32_t d, int32_t sum, int32_t channels, int32_t sign, int8_t *q) {
  for (uint32_t c = 0; c < d; c++) {
    const int32_t own = (int32_t)(c - codec->span[codec->spans == 2 && c >= d / 2].first);
    const int32_t k = (own / 4 * 2 + own % 2) % channels; /* channels 4n, 4n + 1 are summed, and 4n + 2, 4n + 3 */
    const int32_t size = sum * (k + 1) / channels - sum * k / channels;
    q[c] = (int8_t)(sign * (size > 127 ? 127 : size));
  }
}

static void windows(uint8_t mode, uint32_t d) {
  static uint8_t codes[MANY * KV_MAX_DIM];
  static int32_t expected[4 * 16 + MANY];
  uint64_t random = 4;
  kv_codec codec;
  CHECK(kv_codec_of(mode, d, 1, &codec));
  for (uint32_t end = 1; end <= 2; end++) {
    fill_codes(&random, end, &codec, d, MANY, codes);
    const uint8_t *tiles = packed(&codec, d, codes, MANY, 0, 1);
    for (uint32_t i = 0; i < codec.spans; i++)
      for (int32_t channels = 4; channels <= 64; channels *= 2)
        for (int32_t near = 0; near < 8; near++) {
          const int32_t most = INT16_MAX / codec.span[i].book->table[(1u << codec.span[i].bits) - 1];
          int8_t *q = guarded(2, 4 * d, 0);
          int32_t *out = guarded(4, sizeof expected, 0);
          uint32_t ran = 0, ignored = 0;
          for (uint32_t r = 0; r < 4; r++)
            fill_windows(&codec, d, most - 1 + near / 2, channels, near % 2 ? 1 : -1, q + r * d);
          S->keyscan(&codec, d, tiles, 16, q, 4, expected, 16, &ignored);
          K->keyscan(&codec, d, tiles, 16, q, 4, out, 16, &ran);
          S->keyscan(&codec, d, tiles, MANY, q, 1, expected + 4 * 16, MANY, &ignored);
          K->keyscan(&codec, d, tiles, MANY, q, 1, out + 4 * 16, MANY, &ran);
          CHECK(is_forced(ran) && memcmp(expected, out, sizeof expected) == 0);
        }
  }
}

static void test(void) {
  uint64_t random = 1;
  S = kv_variants[KV_VARIANT_scalar].kernels;
  K = forced.kernels;
  for (uint32_t i = 0; i < sizeof MODES; i++) {
    shapes(&random, &MODES[i]);
    extremes(&random, MODES[i]);
  }
  for (uint8_t mode = 0x14; mode <= 0x18; mode++)
    for (uint32_t d = 64; d <= 128; d += 16) windows(mode, d);
  shapes(&random, NULL);
}

#ifndef KV_EMULATE
int main(void) { return for_each_variant("kernels_variants", KV_VARIANT_scalar + 1, test); }
#endif
