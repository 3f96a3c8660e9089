/* Turbo: codes and scales of transformed vectors, and what the codes leave over. */
#include "avx2_book.h"

/* Stripes 0-7 and 8-15 of D16(y, centroid) and D16(centroid, centroid) of one vector. Products of sizes: a centroid has
 * the sign of its number. */
typedef struct stripes {
  __m256 e[2], squares[2];
} stripes;

INLINE book times_sigma(book b, float sigma, uint32_t bits) {
  if (bits == 4) b.next = _mm256_mul_ps(b.next, _mm256_set1_ps(sigma));
  else
    for (uint32_t i = 0; i + 1 < 1u << (bits - 1); i++) b.th[i] = _mm256_mul_ps(b.th[i], _mm256_set1_ps(sigma));
  return b;
}

INLINE __m256i reached(const book *t, __m256 size, __m256 bins, uint32_t bits) {
  if (bits < 4) {
    __m256i m = _mm256_setzero_si256();
    for (uint32_t i = 0; i + 1 < 1u << (bits - 1); i++)
      m = _mm256_sub_epi32(m, _mm256_castps_si256(_mm256_cmp_ps(size, t->th[i], _CMP_GE_OQ)));
    return m;
  }
  const __m256i bin = _mm256_min_epi32(_mm256_cvttps_epi32(_mm256_mul_ps(size, bins)), _mm256_set1_epi32(7));
  const __m256 next = _mm256_permutevar8x32_ps(t->next, bin);
  return _mm256_sub_epi32(_mm256_permutevar8x32_epi32(t->base, bin),
                          _mm256_castps_si256(_mm256_cmp_ps(size, next, _CMP_GE_OQ)));
}

/* Eight channels: m, or ~m for a negative number; a code is that and half. */
INLINE __m256i eight(const book *t, __m256 bins, const float *y, stripes *sums, uint32_t half, uint32_t bits,
                     int squares) {
  const __m256 x = _mm256_loadu_ps(y), size = kv_abs8(x);
  const __m256i m = reached(t, size, bins, bits);
  const __m256 centroid = _mm256_permutevar8x32_ps(t->centroids, m);
  sums->e[half] = _mm256_add_ps(sums->e[half], _mm256_mul_ps(size, centroid));
  if (squares) sums->squares[half] = _mm256_add_ps(sums->squares[half], _mm256_mul_ps(centroid, centroid));
  return _mm256_xor_si256(m, _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)));
}

INLINE void span_codes(const kv_span *span, const book *b, float sigma, const float *y, stripes *sums,
                       uint8_t *codes, uint32_t bits, int squares) {
  const book t = times_sigma(*b, sigma, bits);
  const __m256 bins = _mm256_set1_ps(1 / BIN / sigma);
  const __m128i half = _mm_set1_epi8(1 << (bits - 1));
  const uint32_t odd = span->first / 8 % 2, even = 1 - odd; /* a span may begin at stripe 8 */
  stripes own = {{sums->e[odd], sums->e[even]}, {sums->squares[odd], sums->squares[even]}};
  uint32_t c = 0;
  for (; c + 16 <= span->channels; c += 16) {
    const __m256i low = eight(&t, bins, y + c, &own, 0, bits, squares);
    const __m256i high = eight(&t, bins, y + c + 8, &own, 1, bits, squares);
    const __m256i words = _mm256_packs_epi32(low, high); /* 0-3 of both, then 4-7 of both */
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(codes + c), _mm_add_epi8(_mm_shuffle_epi32(bytes, 0xd8), half));
  }
  if (c < span->channels) {
    const __m256i low = eight(&t, bins, y + c, &own, 0, bits, squares);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64((__m128i *)(codes + c), _mm_add_epi8(_mm_packs_epi16(words, words), half));
  }
  sums->e[odd] = own.e[0], sums->e[even] = own.e[1];
  sums->squares[odd] = own.squares[0], sums->squares[even] = own.squares[1];
}

#define SPAN_CODES(bits, squares)                                                                                      \
  static __attribute__((noinline)) void span_codes_##bits##_##squares(                                                 \
      const kv_span *span, const book *b, float sigma, const float *y, stripes *sums, uint8_t *codes) {                \
    span_codes(span, b, sigma, y, sums, codes, bits, squares);                                                         \
  }
SPAN_CODES(2, 0)
SPAN_CODES(3, 0)
SPAN_CODES(4, 0)
SPAN_CODES(2, 1)
SPAN_CODES(3, 1)
SPAN_CODES(4, 1)

static void (*const codes_of[2][3])(const kv_span *span, const book *b, float sigma, const float *y, stripes *sums,
                                    uint8_t *codes) = {{span_codes_2_0, span_codes_3_0, span_codes_4_0},
                                                       {span_codes_2_1, span_codes_3_1, span_codes_4_1}};

static void zero_codes(const kv_codec *codec, uint8_t *codes) {
  for (uint32_t i = 0; i < codec->spans; i++)
    kv_fill(codes + codec->span[i].first, 1 << (codec->span[i].bits - 1), codec->span[i].channels);
}

static float encode_vector(const kv_codec *codec, const book *books, int unbiased, const float *y, float n2,
                           float sigma, uint8_t *codes) {
  const __m256 zero = _mm256_setzero_ps();
  stripes sums = {{zero, zero}, {zero, zero}};
  for (uint32_t i = 0; i < codec->spans; i++) {
    const kv_span *span = &codec->span[i];
    codes_of[!unbiased][span->bits - 2](span, &books[i], sigma, y + span->first, &sums, codes + span->first);
  }
  const float e = kv_tree8(_mm256_add_ps(sums.e[0], sums.e[1]));
  return unbiased ? n2 / e : e / kv_tree8(_mm256_add_ps(sums.squares[0], sums.squares[1]));
}

/* The sums of squares of a few tokens first: what follows waits for them, and they do not wait for each other. */
void KV_KERNEL(quantize)(const kv_codec *codec, uint32_t d, int unbiased, const float *y, uint32_t tokens,
                         uint8_t *codes, float *scales, uint32_t *ran) {
  const float inverse_d = (float)(1.0 / d);
  book books[2];
  KV_RAN(ran);
  for (uint32_t i = 0; i < codec->spans; i++) books[i] = book_of(&codec->span[i]);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d) {
    if (j % 8 == 0)
      for (uint32_t i = 0; i < 8 && j + i < tokens; i++) scales[j + i] = kv_d16_avx2(y + i * d, y + i * d, d);
    const float n2 = scales[j];
    if (n2 == 0) zero_codes(codec, codes); /* and a scale of 0 */
    else scales[j] = encode_vector(codec, books, unbiased, y, n2, __builtin_sqrtf(n2 * inverse_d), codes);
  }
}

void KV_KERNEL(residual)(const kv_codec *codec, uint32_t d, const float *y, const uint8_t *codes, const float *scales,
                      uint32_t tokens, float *e, float *n2, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t j = 0; j < tokens; j++, y += d, codes += d, e += d) {
    const __m256 scale = _mm256_set1_ps(scales[j]);
    for (uint32_t i = 0; i < codec->spans; i++) {
      const kv_span *span = &codec->span[i];
      const __m128i table = _mm_loadu_si128((const __m128i *)span->book->table);
      for (uint32_t c = span->first; c < span->first + (uint32_t)span->channels; c += 8) {
        const __m128i centroid = _mm_shuffle_epi8(table, _mm_loadl_epi64((const __m128i *)(codes + c)));
        const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(centroid));
        _mm256_storeu_ps(e + c, _mm256_sub_ps(_mm256_loadu_ps(y + c), _mm256_mul_ps(scale, value)));
      }
    }
    n2[j] = kv_d16_avx2(e, e, d);
  }
}
