/* Where the streams of a page lie (docs/page-format.md, "Body"). */
#ifndef KV_LAYOUT_H
#define KV_LAYOUT_H

#include "kvassay.h"

enum {
  KV_KEY_CODES,
  KV_VALUE_CODES,
  KV_KEY_SIGNS,
  KV_KEY_SCALES,
  KV_KEY_NORMS,
  KV_VALUE_SCALES,
  KV_KEY_STEPS,
  KV_KEY_MINIMA,
  KV_VALUE_STEPS,
  KV_VALUE_MINIMA,
  KV_KEY_MEAN,
  KV_KEY_MAXIMA,
  KV_NORM_MAXIMA,
  KV_VALUE_MAXIMA,
  KV_STREAMS
};

#define KV_ALL_STREAMS ((1u << KV_STREAMS) - 1)
#define KV_VALUE_STREAMS                                                                                     \
  (1u << KV_VALUE_CODES | 1u << KV_VALUE_SCALES | 1u << KV_VALUE_STEPS | 1u << KV_VALUE_MINIMA | 1u << KV_VALUE_MAXIMA)
#define KV_KEY_STREAMS (KV_ALL_STREAMS & ~KV_VALUE_STREAMS)

#define KV_HEADER_BYTES 64u

typedef struct kv_layout {
  uint64_t offset[KV_STREAMS];
  uint64_t head_bytes[KV_STREAMS]; /* of one KV head; 0: the stream is absent */
  uint64_t bytes;                  /* the whole page */
} kv_layout;

/* The spec must be one that kv_supports accepts (or at least its modes and sizes). */
void kv_layout_of(const kv_layer_spec *spec, kv_layout *layout);

static inline const uint8_t *kv_stream(const kv_layout *layout, const void *page, uint32_t stream, uint32_t head) {
  return (const uint8_t *)page + layout->offset[stream] + head * layout->head_bytes[stream];
}

#endif
