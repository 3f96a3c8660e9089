#include "avx2_tile.h"

/* Keys: lane = token, summand = channel. Sixteen channels of sixteen tokens are four tiles, transposed by fours;
 * a span may end with eight channels, two tiles. */
static uint8_t *pack_channels(const uint8_t *codes, uint32_t d, uint32_t channels, uint32_t bits, uint8_t *tiles) {
  codes64 tile[4];
  for (uint32_t quad = 0; quad < 4; quad++) {
    __m128i x[4];
    for (uint32_t k = 0; k < 4; k++) {
      const __m128i *row = (const __m128i *)(codes + (4 * quad + k) * d);
      x[k] = channels == 16 ? _mm_loadu_si128(row) : _mm_loadl_epi64(row);
    }
    const __m128i a = _mm_unpacklo_epi32(x[0], x[1]), b = _mm_unpacklo_epi32(x[2], x[3]);
    const __m128i e = _mm_unpackhi_epi32(x[0], x[1]), f = _mm_unpackhi_epi32(x[2], x[3]);
    tile[0].part[quad] = _mm_unpacklo_epi64(a, b);
    tile[1].part[quad] = _mm_unpackhi_epi64(a, b);
    tile[2].part[quad] = _mm_unpacklo_epi64(e, f);
    tile[3].part[quad] = _mm_unpackhi_epi64(e, f);
  }
  for (uint32_t n = 0; n < channels / 4; n++) tiles = pack_tile(&tile[n], bits, tiles);
  return tiles;
}

void KV_KERNEL(pack_keys)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                       uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t block = 0; block < tokens; block += 16)
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      const uint8_t *from = codes + block * d + span->first;
      for (uint32_t c = 0; c < span->channels; c += 16)
        tiles = pack_channels(from + c, d, span->channels - c < 16 ? 8 : 16, span->bits, tiles);
    }
}

/* Values: lane = channel, summand = token. Bytes of four tokens are interleaved. */
static codes64 interleave16(const uint8_t *codes, uint32_t d) {
  __m128i x[4];
  for (uint32_t k = 0; k < 4; k++) x[k] = _mm_loadu_si128((const __m128i *)(codes + k * d));
  const __m128i a = _mm_unpacklo_epi8(x[0], x[1]), b = _mm_unpacklo_epi8(x[2], x[3]);
  const __m128i e = _mm_unpackhi_epi8(x[0], x[1]), f = _mm_unpackhi_epi8(x[2], x[3]);
  return (codes64){{_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(e, f),
                    _mm_unpackhi_epi16(e, f)}};
}

/* Eight channels: lanes 8-15 are the next four tokens. */
static codes64 interleave8(const uint8_t *codes, uint32_t d) {
  codes64 c;
  for (uint32_t half = 0; half < 2; half++) {
    __m128i x[4];
    for (uint32_t k = 0; k < 4; k++) x[k] = _mm_loadl_epi64((const __m128i *)(codes + (4 * half + k) * d));
    const __m128i a = _mm_unpacklo_epi8(x[0], x[1]), b = _mm_unpacklo_epi8(x[2], x[3]);
    c.part[2 * half] = _mm_unpacklo_epi16(a, b);
    c.part[2 * half + 1] = _mm_unpackhi_epi16(a, b);
  }
  return c;
}

void KV_KERNEL(pack_values)(const kv_codec *codec, uint32_t d, const uint8_t *codes, uint32_t tokens, uint8_t *tiles,
                         uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    for (uint32_t c = 0; c < span->channels; c += 16) {
      const uint8_t *from = codes + span->first + c;
      const int narrow = span->channels - c < 16;
      for (uint32_t j = 0; j < tokens; j += narrow ? 8 : 4) {
        const codes64 tile = narrow ? interleave8(from + j * d, d) : interleave16(from + j * d, d);
        tiles = pack_tile(&tile, span->bits, tiles);
      }
    }
  }
}
