#include "kernels/tiles/scalar.h"

/* Keys: lane = token, summand = channel. */
void KV_KERNEL(pack_keys)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                         uint32_t *ran) {
  uint8_t code[64];
  KV_RAN(ran);
  for (uint32_t block = 0; block < tokens; block += KV_LANES)
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c += 4) {
        for (uint32_t lane = 0; lane < KV_LANES; lane++) kv_copy(code + 4 * lane, codes + (block + lane) * d + c, 4);
        kv_tile_pack(code, span->bits, tiles);
        tiles += kv_tile_bytes(span->bits);
      }
    }
}

/* Values: lane = channel, summand = token. Lanes beyond `width` continue with the next four tokens. */
static uint8_t *pack_group(const uint8_t *codes, uint32_t d, uint32_t tokens, uint32_t width, uint32_t bits,
                           uint8_t *tiles) {
  uint8_t code[64];
  const uint32_t step = 4 * KV_LANES / width;
  for (uint32_t j = 0; j < tokens; j += step) {
    for (uint32_t lane = 0; lane < KV_LANES; lane++)
      for (uint32_t s = 0; s < 4; s++)
        code[4 * lane + s] = codes[(j + 4 * (lane / width) + s) * d + lane % width];
    kv_tile_pack(code, bits, tiles);
    tiles += kv_tile_bytes(bits);
  }
  return tiles;
}

void KV_KERNEL(pack_values)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                           uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    for (uint32_t c = 0; c < span->channels; c += KV_LANES) {
      uint32_t width = span->channels - c < KV_LANES ? 8 : KV_LANES;
      tiles = pack_group(codes + span->first + c, d, tokens, width, span->bits, tiles);
    }
  }
}
