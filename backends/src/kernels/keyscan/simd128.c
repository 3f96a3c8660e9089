/* Lane = token, summand = channel. u = centroid + 64; 64 times the sum of the query is taken off at the start. */
#include "../tiles/simd128.h"

/* Query rows of one pass. */
typedef struct scanned {
  v128_t columns[KV_MAX_DIM / 2]; /* two for four channels; one where bytes are multiplied as they are */
  int32_t offset[KV_ROWS];        /* -64 * their sum */
} scanned;

/* One span of some tokens whose tiles lie one after the other: all tokens if it is the only span, else sixteen. */
typedef struct part {
  const kv_span *span;
  const uint8_t *tiles;
  uint32_t tokens;
  int32_t *out; /* [rows][stride]; added to for the second span */
  uint32_t stride;
} part;

KV_ALWAYS void start(const part *p, uint32_t lane, const int32_t *offset, v128_t (*sum)[2], uint32_t rows) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    const int32_t *out = p->out + r * p->stride + lane;
    sum[r][0] = p->span->first ? KV_LOAD(out) : wasm_i32x4_splat(offset[r]);
    sum[r][1] = p->span->first ? KV_LOAD(out + 4) : sum[r][0];
  }
}

KV_ALWAYS void finish(const part *p, uint32_t lane, v128_t (*sum)[2], uint32_t rows) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; r++) {
    int32_t *out = p->out + r * p->stride + lane;
    KV_STORE(out, sum[r][0]);
    KV_STORE(out + 4, sum[r][1]);
  }
}

KV_ALWAYS void half16(const part *p, const scanned *x, const uint8_t *tiles, uint32_t lane, uint32_t half, uint32_t bits,
                      uint32_t rows) {
  const v128_t table = kv_table_simd128(p->span);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  v128_t sum[KV_ROWS][2];
  start(p, lane, x->offset, sum, rows);
  for (uint32_t c = p->span->first; c < end; c += 4, tiles += 8 * bits)
    kv_add_half16(tiles, bits, half, table, x->columns + c / 2, rows, sum);
  finish(p, lane, sum, rows);
}

#ifdef __wasm_relaxed_simd__
/* u is the side in 0 .. 127: no sum of two products leaves 16 bits, so engines cannot differ. */
KV_ALWAYS void half7(const part *p, const scanned *x, const uint8_t *tiles, uint32_t lane, uint32_t half, uint32_t bits,
                     uint32_t rows) {
  const v128_t table = kv_table_simd128(p->span);
  const uint32_t end = p->span->first + (uint32_t)p->span->channels;
  v128_t sum[KV_ROWS][2];
  start(p, lane, x->offset, sum, rows);
  for (uint32_t c = p->span->first; c < end; c += 4, tiles += 8 * bits) {
    const v128_t column = x->columns[c / 4];
    const v128_t u[2] = {kv_decode(tiles, bits, 2 * half, table), kv_decode(tiles, bits, 2 * half + 1, table)};
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
      sum[r][0] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(kv_row(column, r), u[0], sum[r][0]);
      sum[r][1] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(kv_row(column, r), u[1], sum[r][1]);
    }
  }
  finish(p, lane, sum, rows);
}
#endif

#define SCAN(name, half)                                                                   \
  KV_ALWAYS void name(const part *p, const scanned *x, uint32_t bits, uint32_t rows) {     \
    const uint32_t block = 2 * bits * p->span->channels; /* bytes of sixteen tokens */     \
    for (uint32_t token = 0; token < p->tokens; token += 16) {                             \
      const uint8_t *tiles = p->tiles + token / 16 * block;                                \
      half(p, x, tiles, token, 0, bits, rows);                                             \
      half(p, x, tiles, token + 8, 1, bits, rows);                                         \
    }                                                                                      \
  }                                                                                        \
  KV_INSTANCES(name, (const part *p, const scanned *x), p, x)
SCAN(scan16, half16)
#ifdef __wasm_relaxed_simd__
SCAN(scan7, half7)
#else
#define scan7_of scan16_of
#endif

static void columns7(const int8_t *q, uint32_t d, uint32_t rows, v128_t *out) {
#ifdef __wasm_relaxed_simd__
  kv_columns(q, d, d / 4, rows, out);
#else
  int16_t words[KV_ROWS * KV_MAX_DIM];
  for (uint32_t c = 0; c < rows * d; c += 8) KV_STORE(words + c, wasm_i16x8_load8x8(q + c));
  kv_columns16(words, d, rows, out);
#endif
}

static int32_t sum_bytes(const int8_t *q, uint32_t d) {
  v128_t sum = wasm_i64x2_const_splat(0);
  for (uint32_t c = 0; c < d; c += 8)
    sum = wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_load8x8(q + c)));
  return kv_sum4(sum);
}

static uint32_t rows_of(uint32_t left) { return left < KV_ROWS ? left : KV_ROWS; }

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
  scanned x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS, q += KV_ROWS * d, out += KV_ROWS * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows_of(rows - r);
    columns7(q, d, count, x.columns);
    for (uint32_t i = 0; i < count; i++) x.offset[i] = -KV_OFFSET * sum_bytes(q + i * d, d);
    EACH_PART(codec, tokens, p, scan7_of[p.span->bits - 1][count - 1](&p, &x))
  }
}

void KV_KERNEL(keyscan15)(const kv_codec *codec, uint32_t d, const uint8_t *tiles, uint32_t tokens, const int16_t *q,
                          uint32_t rows, int32_t *out, uint32_t stride, uint32_t *ran) {
  scanned x;
  KV_RAN(ran);
  for (uint32_t r = 0; r < rows; r += KV_ROWS, q += KV_ROWS * d, out += KV_ROWS * stride) {
    part p = {0, tiles, codec->spans == 1 ? tokens : 16, out, stride};
    const uint32_t count = rows_of(rows - r);
    kv_columns16(q, d, count, x.columns);
    for (uint32_t i = 0; i < count; i++) x.offset[i] = -KV_OFFSET * kv_sum16(q + i * d, d);
    EACH_PART(codec, tokens, p, scan16_of[p.span->bits - 1][count - 1](&p, &x))
  }
}
