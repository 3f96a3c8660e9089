/* Lane = token, summand = channel. A 7-bit query is one plane of bytes, a 15-bit query two. */
#include "kernels/tiles/neon.h"

typedef struct planes {
  const int8_t *q;
  uint32_t stride;
} planes;

/* One span of some tokens whose tiles lie one after the other: all tokens if it is the only span, else sixteen. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
} part;

/* `each` planes make one row. */
KV_INLINE void start(const part *p, uint32_t token, int32x4_t (*sum)[4], uint32_t count, uint32_t each) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; i++)
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++)
      sum[i][k] = p->span->first && i % each == 0 ? vld1q_s32(p->out + i / each * p->stride + token + 4 * k)
                                                  : vdupq_n_s32(0);
}

KV_INLINE void finish(const part *p, uint32_t token, int32x4_t (*sum)[4], uint32_t count, uint32_t each) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; i += each)
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++)
      vst1q_s32(p->out + i / each * p->stride + token + 4 * k,
                each == 1 ? sum[i][k] : kv_joined(sum[i][k], sum[i + 1][k]));
}

/* Tiles come in pairs, since spans are multiples of 8 channels. */
KV_INLINE void scan(const part *p, const planes *x, uint32_t bits, uint32_t count, uint32_t each) {
  const int8x16_t table = kv_table_neon(p->span);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  const uint8_t *tiles = p->tiles;
  for (uint32_t token = 0; token < p->tokens; token += 16) {
    int32x4_t sum[KV_PLANES][4];
    start(p, token, sum, count, each);
    for (uint32_t c = p->span->first; c < end; c += 8, tiles += 16 * bits) {
      const kv_tile16 a = kv_decode_neon(tiles, bits, table), b = kv_decode_neon(tiles + 8 * bits, bits, table);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < count; i++) {
        const int8x16_t qa = kv_each(x->q + i * x->stride + c), qb = kv_each(x->q + i * x->stride + c + 4);
#pragma GCC unroll 4
        for (uint32_t k = 0; k < 4; k++) sum[i][k] = kv_add_pair(sum[i][k], a.val[k], b.val[k], qa, qb);
      }
    }
    finish(p, token, sum, count, each);
  }
}

KV_INLINE void span7(const part *p, const planes *x, uint32_t bits, uint32_t rows) { scan(p, x, bits, rows, 1); }
KV_INLINE void span15(const part *p, const planes *x, uint32_t bits, uint32_t rows) { scan(p, x, bits, 2 * rows, 2); }
KV_INSTANCES(span7, (const part *p, const planes *x), p, x)
KV_INSTANCES2(span15, (const part *p, const planes *x), p, x)

/* In the order of the stream: memory is read once, forwards. */
#define EACH_PART(codec, all, p, call)                                         \
  for (uint32_t token = 0; token < (all); token += (p).tokens)                 \
    for (uint32_t i = 0; i < (codec)->spans; i++) {                            \
      (p).span = &(codec)->span[i];                                            \
      call;                                                                    \
      (p).tiles += (p).tokens / 8 * (p).span->channels * (p).span->bits;       \
      if (i + 1 == (codec)->spans) (p).out += (p).tokens;                      \
    }

void KV_KERNEL(keyscan)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int8_t *q,
                        uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_PLANES, q += KV_PLANES * d, out += KV_PLANES * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows - r < KV_PLANES ? rows - r : KV_PLANES;
    const planes x = {q, d};
    EACH_PART(codec, tokens, p, span7_of[p.span->bits - 1][count - 1](&p, &x))
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                          uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  int8_t plane[KV_PLANES][KV_MAX_DIM];
  const planes x = {plane[0], KV_MAX_DIM};
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += 2, q += 2 * d, out += 2 * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows - r < 2 ? 1 : 2;
    for (uint32_t i = 0; i < count; i++) kv_split(q + i * d, d, plane[2 * i], plane[2 * i + 1]);
    EACH_PART(codec, tokens, p, span15_of[p.span->bits - 1][count - 1](&p, &x))
  }
}
