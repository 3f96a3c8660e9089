/* Turbo pages in one: fp16 rows less their mean, transformed, coded and packed, eight tokens at once, a token a lane.
 * Then stages, sums and thresholds are plain operations between registers, and codes fall almost into the order of
 * tiles: 1120 instructions a vector of 128 numbers, and 1450 in the kernels one after the other. */
#include "kernels/pack/avx2_tile.h"
#include "kernels/transform/avx2_eight.h"
#include "avx2_book.h"

typedef struct lanes {
  float y[8 * KV_MAX_DIM], z[8 * KV_MAX_DIM]; /* [d][8] */
  uint8_t quads[2][8 * KV_MAX_DIM];           /* of eight tokens: [d / 4][2 fours of tokens][4 channels][4 tokens] */
} lanes;

/* Eight channels of eight tokens, channel by channel. */
INLINE void columns(const uint16_t *x, uint64_t stride, __m256 out[8]) {
  __m128i r[8], a[8], b[8];
  for (uint32_t i = 0; i < 8; i++) r[i] = _mm_loadu_si128((const __m128i *)(x + i * stride));
  for (uint32_t i = 0; i < 4; i++) {
    a[i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);     /* channels 0-3 of two tokens */
    a[i + 4] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]); /* channels 4-7 */
  }
  for (uint32_t i = 0; i < 8; i += 2) {
    b[i] = _mm_unpacklo_epi32(a[i], a[i + 1]); /* two channels of four tokens */
    b[i + 1] = _mm_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (uint32_t half = 0; half < 2; half++)
    for (uint32_t i = 0; i < 2; i++) {
      const __m128i low = b[4 * half + i], high = b[4 * half + 2 + i];
      out[4 * half + 2 * i] = _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
      out[4 * half + 2 * i + 1] = _mm256_cvtph_ps(_mm_unpackhi_epi64(low, high));
    }
}

static float *rotated(const kv_transform *t, const uint16_t *x, uint64_t stride, const float *mean, lanes *w) {
  __m256 in[8];
  for (uint32_t c = 0; c < t->head_dim; c += 8) {
    columns(x + c, stride, in);
    if (mean)
      for (uint32_t i = 0; i < 8; i++) in[i] = _mm256_sub_ps(in[i], _mm256_set1_ps(mean[c + i]));
    first_stages(in, t->sign1 + c, w->y + 8 * c);
  }
  return forward_rest(t, w->y, w->z);
}

/* The tree of D16. */
INLINE __m256 tree(__m256 s[16]) {
  for (uint32_t h = 8; h; h /= 2)
    for (uint32_t i = 0; i < h; i++) s[i] = _mm256_add_ps(s[i], s[i + h]);
  return s[0];
}

static __m256 sum_of_squares(const float *y, uint32_t d) {
  __m256 s[16];
  for (uint32_t i = 0; i < 16; i += 8) {
    __m256 own[8];
#pragma GCC unroll 8
    for (uint32_t k = 0; k < 8; k++) own[k] = _mm256_setzero_ps();
    for (const float *x = y + 8 * i; x < y + 8 * d; x += 128)
#pragma GCC unroll 8
      for (uint32_t k = 0; k < 8; k++) {
        const __m256 z = _mm256_loadu_ps(x + 8 * k);
        own[k] = _mm256_add_ps(own[k], _mm256_mul_ps(z, z));
      }
    for (uint32_t k = 0; k < 8; k++) s[i + k] = own[k];
  }
  return tree(s);
}

/* Of four stripes: sums of size * centroid and of centroid squared. */
typedef struct sums {
  __m256 e[16], squares[16];
} sums;

/* m of one channel, or ~m where the number is negative: the code less half. */
INLINE __m256i code(const book *b, const __m256 *th, __m256 sigma, __m256 bins, const float *y, __m256 *e,
                    __m256 *squares, uint32_t bits, int least_squares) {
  const __m256 x = _mm256_loadu_ps(y), size = kv_abs8(x);
  __m256i m = _mm256_setzero_si256();
  if (bits == 4) {
    const __m256i bin = _mm256_min_epi32(_mm256_cvttps_epi32(_mm256_mul_ps(size, bins)), _mm256_set1_epi32(7));
    const __m256 next = _mm256_mul_ps(_mm256_permutevar8x32_ps(b->next, bin), sigma);
    m = _mm256_sub_epi32(_mm256_permutevar8x32_epi32(b->base, bin),
                         _mm256_castps_si256(_mm256_cmp_ps(size, next, _CMP_GE_OQ)));
  } else {
    for (uint32_t i = 0; i + 1 < 1u << (bits - 1); i++)
      m = _mm256_sub_epi32(m, _mm256_castps_si256(_mm256_cmp_ps(size, th[i], _CMP_GE_OQ)));
  }
  const __m256 centroid = _mm256_permutevar8x32_ps(b->centroids, m);
  *e = _mm256_add_ps(*e, _mm256_mul_ps(size, centroid));
  if (least_squares) *squares = _mm256_add_ps(*squares, _mm256_mul_ps(centroid, centroid));
  return _mm256_xor_si256(m, _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)));
}

/* Channels of a span that belong to stripes 4 * quarter and the next three: four at a time, a quad of codes. */
INLINE void quads(const kv_span *span, const book *b, __m256 sigma, const float *y, uint32_t quarter, sums *s,
                  uint8_t *out, uint32_t bits, int least_squares) {
  const uint32_t end = span->first + (uint32_t)span->channels;
  const __m256i half = _mm256_set1_epi8(1 << (bits - 1));
  const __m256 bins = _mm256_div_ps(_mm256_set1_ps(1 / BIN), sigma);
  __m256 th[3], e[4], q[4];
  uint32_t c = span->first / 16 * 16 + 4 * quarter;
  if (c < span->first) c += 16;
  for (uint32_t i = 0; i < 3; i++) th[i] = _mm256_mul_ps(b->th[i], sigma);
  for (uint32_t i = 0; i < 4; i++) e[i] = s->e[4 * quarter + i], q[i] = s->squares[4 * quarter + i];
  for (; c < end; c += 16) {
    __m256i m[4];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
      m[i] = code(b, th, sigma, bins, y + 8 * (c + i), &e[i], &q[i], bits, least_squares);
    const __m256i low = _mm256_packs_epi32(m[0], m[1]), high = _mm256_packs_epi32(m[2], m[3]);
    _mm256_storeu_si256((__m256i *)(out + 8 * c), _mm256_add_epi8(_mm256_packs_epi16(low, high), half));
  }
  for (uint32_t i = 0; i < 4; i++) s->e[4 * quarter + i] = e[i], s->squares[4 * quarter + i] = q[i];
}

#define QUADS(bits, least_squares)                                                                                     \
  static __attribute__((noinline)) void quads_##bits##_##least_squares(                                                \
      const kv_span *span, const book *b, __m256 sigma, const float *y, uint32_t quarter, sums *s, uint8_t *out) {     \
    quads(span, b, sigma, y, quarter, s, out, bits, least_squares);                                                    \
  }
QUADS(2, 0)
QUADS(3, 0)
QUADS(4, 0)
QUADS(2, 1)
QUADS(3, 1)
QUADS(4, 1)

static void (*const quads_of[2][3])(const kv_span *span, const book *b, __m256 sigma, const float *y, uint32_t quarter,
                                    sums *s, uint8_t *out) = {{quads_2_0, quads_3_0, quads_4_0},
                                                              {quads_2_1, quads_3_1, quads_4_1}};

/* A vector without squares has the scale 0 and one code: of its numbers none is negative, none reaches infinity. */
static __m256 dead_lanes(float *y, uint32_t d, __m256 dead, __m256 sigma) {
  for (uint32_t c = 0; c < 8 * d; c += 8) _mm256_storeu_ps(y + c, _mm256_andnot_ps(dead, _mm256_loadu_ps(y + c)));
  return _mm256_blendv_ps(sigma, _mm256_set1_ps(__builtin_inff()), dead);
}

/* Codes of eight tokens, their scales to `scales`. */
static void code_lanes(const kv_codec *codec, const book *books, uint32_t d, int unbiased, float *y, uint8_t *out,
                       float *scales) {
  const __m256 n2 = sum_of_squares(y, d), dead = _mm256_cmp_ps(n2, _mm256_setzero_ps(), _CMP_EQ_OQ);
  __m256 sigma = _mm256_sqrt_ps(_mm256_mul_ps(n2, _mm256_set1_ps((float)(1.0 / d))));
  sums s;
  for (uint32_t i = 0; i < 16; i++) s.e[i] = s.squares[i] = _mm256_setzero_ps();
  if (_mm256_movemask_ps(dead)) sigma = dead_lanes(y, d, dead, sigma);
  for (uint32_t quarter = 0; quarter < 4; quarter++)
    for (uint32_t i = 0; i < codec->spans; i++)
      quads_of[!unbiased][codec->span[i].bits - 2](&codec->span[i], &books[i], sigma, y, quarter, &s, out);
  const __m256 e = tree(s.e);
  const __m256 scale = unbiased ? _mm256_div_ps(n2, e) : _mm256_div_ps(e, tree(s.squares));
  _mm256_storeu_ps(scales, _mm256_andnot_ps(dead, scale));
}

static inline __m256i quad(const uint8_t *quads, uint32_t c) {
  return _mm256_loadu_si256((const __m256i *)(quads + 8 * c));
}

/* Keys: lane = token, summand = channel; a quad has them the other way round. */
static uint8_t *key_tiles(const kv_codec *codec, const lanes *w, uint8_t *tiles) {
  const __m256i turn = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c += 4) {
      const __m256i a = _mm256_shuffle_epi8(quad(w->quads[0], c), turn);
      const __m256i b = _mm256_shuffle_epi8(quad(w->quads[1], c), turn);
      const codes64 tile = {{_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1), _mm256_castsi256_si128(b),
                             _mm256_extracti128_si256(b, 1)}};
      tiles = pack_tile(&tile, span->bits, tiles);
    }
  }
  return tiles;
}

/* Values: lane = channel, summand = token. Of the eight tokens from j on, each four are a tile of sixteen channels;
 * eight channels of all are one. `tiles` is where those of the head begin. */
static void value_tiles(const kv_codec *codec, const uint8_t *quads, uint32_t j, uint32_t tokens, uint8_t *tiles) {
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    const uint64_t bytes = 8ull * span->bits;
    for (uint32_t c = 0; c < span->channels; c += 16) {
      const __m256i q0 = quad(quads, span->first + c), q1 = quad(quads, span->first + c + 4);
      const int narrow = span->channels - c < 16;
      if (narrow) {
        const codes64 tile = {{_mm256_castsi256_si128(q0), _mm256_castsi256_si128(q1), _mm256_extracti128_si256(q0, 1),
                               _mm256_extracti128_si256(q1, 1)}};
        pack_tile(&tile, span->bits, tiles + j / 8 * bytes);
        tiles += tokens / 8 * bytes;
        continue;
      }
      const __m256i q2 = quad(quads, span->first + c + 8), q3 = quad(quads, span->first + c + 12);
      const codes64 first = {{_mm256_castsi256_si128(q0), _mm256_castsi256_si128(q1), _mm256_castsi256_si128(q2),
                              _mm256_castsi256_si128(q3)}};
      const codes64 second = {{_mm256_extracti128_si256(q0, 1), _mm256_extracti128_si256(q1, 1),
                               _mm256_extracti128_si256(q2, 1), _mm256_extracti128_si256(q3, 1)}};
      pack_tile(&second, span->bits, pack_tile(&first, span->bits, tiles + j / 4 * bytes));
      tiles += tokens / 4 * bytes;
    }
  }
}

void KV_KERNEL(encode)(const kv_codec *codec, const kv_transform *t, int keys, int unbiased, const uint16_t *x,
                       uint64_t stride, const uint16_t *mean, uint32_t tokens, uint8_t *tiles, float *scales,
                       uint32_t *ran) {
  const uint32_t d = t->head_dim;
  float wide_mean[KV_MAX_DIM];
  book books[2];
  lanes w;
  if (mean) KV_KERNEL(widen)(mean, 0, 1, d, 0, wide_mean, ran);
  for (uint32_t i = 0; i < codec->spans; i++) books[i] = book_of(&codec->span[i]);
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j += 8, x += 8 * stride) {
    uint8_t *out = w.quads[j / 8 % 2];
    float *y = rotated(t, x, stride, mean ? wide_mean : 0, &w);
    code_lanes(codec, books, d, unbiased, y, out, scales + j);
    if (!keys) value_tiles(codec, out, j, tokens, tiles);
    else if (j % 16) tiles = key_tiles(codec, &w, tiles);
  }
}
