#include "codec.h"

/* Numeric contract, section 5. Full tables in increasing order; rows are 2, 3, 4 bits alone, then the
 * halves of 2.5 and of 3.5 bits. */
static const kv_codebook TURBO_2 = {{-10, -3, 3, 10}, {0x1.f6a4f8p-1f}};
static const kv_codebook TURBO_3 = {{-62, -39, -22, -7, 7, 22, 39, 62},
                                    {0x1.012430p-1f, 0x1.0e7118p+0f, 0x1.bfc7d8p+0f}};
static const kv_codebook TURBO_4 = {
    {-61, -46, -36, -28, -21, -15, -9, -3, 3, 9, 15, 21, 28, 36, 46, 61},
    {0x1.134566p-2f, 0x1.134566p-1f, 0x1.9ce818p-1f, 0x1.190182p+0f, 0x1.6f0732p+0f, 0x1.d64138p+0f,
     0x1.32d004p+1f}};
static const kv_codebook TURBO_25_LOW = {{-30, -9, 9, 30}, {0x1.f5a7a6p-1f}};
static const kv_codebook TURBO_25_HIGH = {{-43, -27, -15, -5, 5, 15, 27, 43},
                                          {0x1.014248p-1f, 0x1.0e1f32p+0f, 0x1.c233fep+0f}};
static const kv_codebook TURBO_35_LOW = {{-34, -21, -12, -4, 4, 12, 21, 34},
                                         {0x1.03518ep-1f, 0x1.0b6c1ap+0f, 0x1.bdb42ap+0f}};
static const kv_codebook TURBO_35_HIGH = {
    {-43, -33, -26, -20, -15, -10, -6, -2, 2, 6, 10, 15, 20, 26, 33, 43},
    {0x1.03518ep-2f, 0x1.03518ep-1f, 0x1.952f6cp-1f, 0x1.1ba132p+0f, 0x1.74c53ap+0f, 0x1.de1e5cp+0f,
     0x1.33f0d8p+1f}};
static const kv_codebook PLAIN = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {0}};
static const kv_codebook SIGNS = {{-1, 1}, {0}};

static kv_span span(uint32_t first, uint32_t channels, uint32_t bits, const kv_codebook *book) {
  kv_span s = {(uint16_t)first, (uint16_t)channels, bits, book};
  return s;
}

static int turbo(uint32_t half_bits, uint32_t d, kv_codec *codec) {
  static const kv_codebook *const whole[] = {&TURBO_2, &TURBO_3, &TURBO_4};
  static const kv_codebook *const low[] = {&TURBO_25_LOW, &TURBO_35_LOW};
  static const kv_codebook *const high[] = {&TURBO_25_HIGH, &TURBO_35_HIGH};
  if (half_bits < 4 || half_bits > 8) return 0;
  uint32_t bits = half_bits / 2;
  if (half_bits % 2 == 0) {
    codec->spans = 1;
    codec->span[0] = span(0, d, bits, whole[bits - 2]);
  } else {
    codec->spans = 2;
    codec->span[0] = span(0, d / 2, bits, low[bits - 2]);
    codec->span[1] = span(d / 2, d / 2, bits + 1, high[bits - 2]);
  }
  return 1;
}

int kv_codec_of(uint32_t mode, uint32_t head_dim, int keys, kv_codec *codec) {
  uint32_t half_bits = mode & 15;
  *codec = (kv_codec){0};
  codec->family = mode >> 4;
  switch (codec->family) {
    case KV_FAMILY_FP16: return half_bits == 0;
    case KV_FAMILY_TURBO: return turbo(half_bits, head_dim, codec);
    case KV_FAMILY_QJL: return keys && turbo(half_bits, head_dim, codec);
    case KV_FAMILY_KIVI:
      if (half_bits < 4 || half_bits > 8 || half_bits % 2) return 0;
      codec->spans = 1;
      codec->span[0] = span(0, head_dim, half_bits / 2, &PLAIN);
      return 1;
    default: return 0;
  }
}

kv_codec kv_codec_signs(uint32_t head_dim) {
  kv_codec codec = {KV_FAMILY_QJL, 1, {span(0, head_dim, 1, &SIGNS)}};
  return codec;
}
