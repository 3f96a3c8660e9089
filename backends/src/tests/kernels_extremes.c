/* Sums at the edge of their integers: all summands at their largest, both signs, the longest rows. */
#include "kernels_support.h"

static const kv_kernels *K;

static void fill_codes(const kv_codec *codec, uint32_t d, uint32_t tokens, int largest, uint8_t *codes) {
  for (uint32_t j = 0; j < tokens; j++)
    for (uint32_t i = 0; i < codec->spans; i++)
      memset(codes + j * d + codec->span[i].first, largest ? (1 << codec->span[i].bits) - 1 : 0,
             codec->span[i].channels);
}

static int64_t edge(const kv_span *span, int largest) {
  return span->book->table[largest ? (1 << span->bits) - 1 : 0];
}

static void keys(uint8_t mode, int largest, int sign) {
  enum { D = 576, TOKENS = 32 };
  kv_codec codec;
  CHECK(kv_codec_of(mode, D, 1, &codec));
  uint8_t *codes = block(TOKENS * D), *packed = block(kv_code_bytes(&codec, TOKENS));
  int8_t q[2 * D];
  int16_t q15[2 * D];
  int32_t out[2 * TOKENS];
  uint32_t ran = 0;
  int64_t expected = 0;
  for (int c = 0; c < 2 * D; c++) {
    q[c] = (int8_t)(127 * sign);
    q15[c] = (int16_t)(16256 * sign);
  }
  fill_codes(&codec, D, TOKENS, largest, codes);
  K->pack_keys(&codec, D, codes, TOKENS, packed, &ran);
  for (uint32_t i = 0; i < codec.spans; i++) expected += codec.span[i].channels * edge(&codec.span[i], largest) * sign;
  K->keyscan(&codec, D, packed, TOKENS, q, 2, out, TOKENS, &ran);
  for (int j = 0; j < 2 * TOKENS; j++) CHECK(out[j] == 127 * expected);
  if (codec.family == KV_FAMILY_KIVI) {
    K->keyscan15(&codec, D, packed, TOKENS, q15, 2, out, TOKENS, &ran);
    for (int j = 0; j < 2 * TOKENS; j++) CHECK(out[j] == 16256 * expected);
  }
  CHECK(is_forced(ran));
  free(codes);
  free(packed);
}

static void values(uint8_t mode, int largest) {
  enum { D = 48, TOKENS = 1024 }; /* halves of 24: a group of 8 channels too */
  kv_codec codec;
  CHECK(kv_codec_of(mode, D, 0, &codec));
  uint8_t *codes = block(TOKENS * D), *packed = block(kv_code_bytes(&codec, TOKENS));
  const uint8_t *run = packed;
  int16_t *w = block(3 * TOKENS * sizeof *w);
  int32_t out[3 * D];
  uint32_t ran = 0;
  for (int i = 0; i < 3 * TOKENS; i++) w[i] = 16383;
  fill_codes(&codec, D, TOKENS, largest, codes);
  K->pack_values(&codec, D, codes, TOKENS, packed, &ran);
  for (uint32_t i = 0; i < codec.spans; i++) {
    const kv_span *span = &codec.span[i];
    K->valuesum(span, run, TOKENS, w, 3, out, span->channels, &ran);
    for (uint32_t c = 0; c < 3u * span->channels; c++) CHECK(out[c] == 16383 * (int64_t)TOKENS * edge(span, largest));
    run += (uint64_t)TOKENS * span->channels * span->bits / 8;
  }
  CHECK(is_forced(ran));
  free(codes);
  free(packed);
  free(w);
}

/* The integer queries and weights never leave their range. */
static void bounds(void) {
  enum { D = 64 };
  float z[D], step[D], p[D], su[D];
  int8_t q[D];
  int16_t q15[D], w[D];
  uint32_t ran = 0;
  uint64_t state = 3;
  for (int trial = 0; trial < 2000; trial++) {
    float size = kv_pow2((int32_t)(draw(&state) % 120) - 60);
    for (int c = 0; c < D; c++) {
      z[c] = draw_float(&state) * size;
      step[c] = kv_f32((uint16_t)(draw(&state) % 0x7c00));
      p[c] = kv_abs(draw_float(&state));
      su[c] = step[c];
    }
    K->query8(z, D, q, &ran);
    K->query15(z, step, D, q15, &ran);
    K->weigh(p, su, D, w, &ran);
    int largest = 0, largest15 = 0, heaviest = 0;
    for (int c = 0; c < D; c++) {
      CHECK(q[c] >= -127 && q15[c] >= -16256 && q15[c] <= 16256 && w[c] >= 0 && w[c] <= 16383);
      largest = abs(q[c]) > largest ? abs(q[c]) : largest;
      largest15 = abs(q15[c]) > largest15 ? abs(q15[c]) : largest15;
      heaviest = w[c] > heaviest ? w[c] : heaviest;
    }
    CHECK(largest == 127 && largest15 == 16256 && heaviest == 16383);
  }
  memset(z, 0, sizeof z);
  CHECK(K->query8(z, D, q, &ran) == 0 && q[0] == 0);
  CHECK(K->query15(z, step, D, q15, &ran) == 0 && q15[D - 1] == 0);
  memset(p, 0, sizeof p);
  CHECK(K->weigh(p, su, D, w, &ran) == 0 && w[D - 1] == 0 && is_forced(ran));
}

static void test(void) {
  static const uint8_t modes[] = {0x14, 0x15, 0x16, 0x17, 0x18, 0x34, 0x36, 0x38};
  K = forced.kernels;
  for (size_t i = 0; i < sizeof modes; i++)
    for (int largest = 0; largest < 2; largest++) {
      keys(modes[i], largest, 1);
      keys(modes[i], largest, -1);
      values(modes[i], largest);
    }
  bounds();
}

int main(void) { return for_each_variant("kernels_extremes", 0, test); }
