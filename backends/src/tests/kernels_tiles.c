/* Packed codes: every code in order, nothing written beyond, and the scans read what was packed. */
#include "kernels_support.h"

#include "kernels/tiles/scalar.h"

#define D 80u /* a half of it, 40, ends with a group of 8 channels */
#define TOKENS 48u

static const kv_kernels *K;

static void tiles(uint32_t bits) {
  uint8_t code[64], back[64], tile[40];
  const uint32_t levels = 1u << bits;
  memset(tile, 0xA5, sizeof tile);
  for (uint32_t i = 0; i < 64; i++) code[i] = (uint8_t)(i % levels);
  kv_tile_pack(code, bits, tile);
  kv_tile_unpack(tile, bits, back);
  CHECK(memcmp(code, back, 64) == 0);
  for (uint32_t i = kv_tile_bytes(bits); i < sizeof tile; i++) CHECK(tile[i] == 0xA5);
  /* One code at a time: all others stay 0, so no two share a bit; the documented places. */
  for (uint32_t i = 0; i < 64; i++) {
    uint32_t low = bits == 3 ? 2 : bits, step = 64 / (8 / low);
    memset(code, 0, sizeof code);
    code[i] = (uint8_t)(levels - 1);
    kv_tile_pack(code, bits, tile);
    kv_tile_unpack(tile, bits, back);
    CHECK(memcmp(code, back, 64) == 0);
    if (bits == 1) CHECK(tile[i / 8] == 1u << i % 8);
    else CHECK(tile[i % step] == ((1u << low) - 1) << i / step * low);
    if (bits == 3) CHECK(tile[16 + i / 8] == 1u << i % 8);
  }
}

static void ramp(const kv_codec *codec, uint8_t *codes) {
  for (uint32_t j = 0; j < TOKENS; j++)
    for (uint32_t i = 0; i < codec->spans; i++)
      for (uint32_t c = 0; c < codec->span[i].channels; c++)
        codes[j * D + codec->span[i].first + c] = (uint8_t)((j * 7 + c) % (1u << codec->span[i].bits));
}

static int32_t meaning(const kv_codec *codec, const uint8_t *codes, uint32_t token, uint32_t channel) {
  const kv_span *span = &codec->span[codec->spans == 2 && channel >= codec->span[1].first];
  return span->book->table[codes[token * D + channel]];
}

/* A query that is 1 at one channel reads that channel's integers back. */
static void keys(const kv_codec *codec, const uint8_t *codes) {
  uint64_t bytes = kv_code_bytes(codec, TOKENS);
  uint8_t *packed = block(bytes + 16);
  int8_t q[D] = {0};
  int16_t q15[D] = {0};
  int32_t out[TOKENS + 1], out15[TOKENS + 1];
  uint32_t ran = 0;
  memset(packed, 0xA5, bytes + 16);
  K->pack_keys(codec, D, codes, TOKENS, packed, &ran);
  for (uint32_t i = 0; i < 16; i++) CHECK(packed[bytes + i] == 0xA5);
  out[TOKENS] = out15[TOKENS] = 12345;
  for (uint32_t c = 0; c < D; c++) {
    q[c] = -1, q15[c] = -16256;
    K->keyscan(codec, D, packed, TOKENS, q, 1, out, TOKENS, &ran);
    K->keyscan15(codec, D, packed, TOKENS, q15, 1, out15, TOKENS, &ran);
    for (uint32_t j = 0; j < TOKENS; j++)
      CHECK(out[j] == -meaning(codec, codes, j, c) && out15[j] == -16256 * meaning(codec, codes, j, c));
    q[c] = 0, q15[c] = 0;
  }
  CHECK(out[TOKENS] == 12345 && out15[TOKENS] == 12345 && is_forced(ran));
  free(packed);
}

/* Weight on one token: the output is that row (a kernel that skips elements cannot pass). */
static void values(const kv_codec *codec, const uint8_t *codes) {
  uint64_t bytes = kv_code_bytes(codec, TOKENS);
  uint8_t *packed = block(bytes + 16);
  int16_t w[TOKENS] = {0};
  int32_t out[D];
  uint32_t ran = 0;
  memset(packed, 0xA5, bytes + 16);
  K->pack_values(codec, D, codes, TOKENS, packed, &ran);
  for (uint32_t i = 0; i < 16; i++) CHECK(packed[bytes + i] == 0xA5);
  for (uint32_t j = 0; j < TOKENS; j++) {
    const uint8_t *run = packed;
    w[j] = 16383;
    for (uint32_t s = 0; s < codec->spans; s++) {
      const kv_span *span = &codec->span[s];
      K->valuesum(span, run, TOKENS, w, 1, out, span->channels, &ran);
      for (uint32_t c = 0; c < span->channels; c++) CHECK(out[c] == 16383 * meaning(codec, codes, j, span->first + c));
      run += (uint64_t)TOKENS * span->channels * span->bits / 8;
    }
    CHECK(run == packed + bytes);
    w[j] = 0;
  }
  CHECK(is_forced(ran));
  free(packed);
}

static void test(void) {
  static const uint8_t modes[] = {0x14, 0x15, 0x16, 0x17, 0x18, 0x34, 0x36, 0x38};
  uint8_t codes[TOKENS * D];
  K = forced.kernels;
  for (uint32_t bits = 1; bits <= 4; bits++) tiles(bits);
  for (size_t i = 0; i < sizeof modes; i++) {
    kv_codec codec;
    CHECK(kv_codec_of(modes[i], D, 1, &codec));
    ramp(&codec, codes);
    keys(&codec, codes);
    values(&codec, codes);
  }
  kv_codec signs = kv_codec_signs(D);
  ramp(&signs, codes);
  keys(&signs, codes);
}

int main(void) { return for_each_variant("kernels_tiles", 0, test); }
