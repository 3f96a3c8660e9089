/* How a stream is coded: spans of channels with equal bits, each with its table and thresholds. */
#ifndef KV_CODEC_H
#define KV_CODEC_H

#include <stdint.h>

#define KV_MAX_DIM 576u
#define KV_MAX_PAGE 1024u
#define KV_GROUP 32u /* KIVI: tokens (keys) or channels (values) that share a step and a minimum */

enum { KV_FAMILY_FP16 = 0, KV_FAMILY_TURBO = 1, KV_FAMILY_QJL = 2, KV_FAMILY_KIVI = 3 };

/* `table` gives the integer a code stands for (the centroid; for KIVI the code itself). */
typedef struct kv_codebook {
  int8_t table[16];
  float thresholds[7]; /* in units of sigma; 2^(bits-1) - 1 of them */
} kv_codebook;

typedef struct kv_span {
  uint16_t first, channels;
  uint32_t bits;
  const kv_codebook *book;
} kv_span;

typedef struct kv_codec {
  uint32_t family;
  uint32_t spans; /* 1, or 2 for a fractional rate; 0 for fp16 */
  kv_span span[2];
} kv_codec;

/* 0 if `mode` is not one of docs/page-format.md. Keys alone may have a sign projection. */
int kv_codec_of(uint32_t mode, uint32_t head_dim, int keys, kv_codec *codec);

/* The one-bit codec of the sign projection: table -1, +1. */
kv_codec kv_codec_signs(uint32_t head_dim);

static inline int kv_family_rotated(uint32_t family) {
  return family == KV_FAMILY_TURBO || family == KV_FAMILY_QJL;
}

/* Bytes of the codes of `tokens` tokens of one head, without fp16. */
static inline uint64_t kv_code_bytes(const kv_codec *codec, uint64_t tokens) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < codec->spans; i++) bits += (uint64_t)codec->span[i].channels * codec->span[i].bits;
  return tokens * bits / 8;
}

#endif
