/* The fields of a spec, once: the reader of dumps, the blocks' headers and the attributes of ONNX Runtime's operators are
 * made from this list, and it is checked against kv_layer_spec. X(field, name, least, most, fallback): `name` is what
 * dumps and attributes call it; the rest is of an attribute that is a whole number: its range, and what it is where it is
 * absent (below `least`: it must be given). NAMED(field, name) has other values: codecs, centres, scales, a float. */
#ifndef KV_FIELDS_H
#define KV_FIELDS_H

#include <stddef.h>

#include "kvassay.h"

#define KV_EACH_SPEC_FIELD(X, NAMED)          \
  X(kv_heads, kv_heads, 1, 65535, 0)          \
  X(query_heads, query_heads, 1, 65535, 0)    \
  X(head_dim, head_dim, 16, 576, 0)           \
  X(page_tokens, page_tokens, 16, 1024, 64)   \
  NAMED(key_mode, keys)                       \
  NAMED(value_mode, values)                   \
  NAMED(key_centre, key_centre)               \
  NAMED(value_centre, value_centre)           \
  NAMED(scale_kind, scale)                    \
  X(rounds, rounds, 1, 2, 2)                  \
  X(window, window, 0, INT32_MAX, 0)          \
  X(sinks, sinks, 0, INT32_MAX, 0)            \
  X(span, span, 0, INT32_MAX, 0)              \
  NAMED(softmax_scale, softmax_scale)         \
  X(seed, seed, INT64_MIN, INT64_MAX, 0)

#define KV_FIELD_BYTES(field) sizeof(((kv_layer_spec *)0)->field)
#define KV_NUMBER_BYTES(field, name, least, most, fallback) +KV_FIELD_BYTES(field)
#define KV_NAMED_BYTES(field, name) +KV_FIELD_BYTES(field)
_Static_assert(0 KV_EACH_SPEC_FIELD(KV_NUMBER_BYTES, KV_NAMED_BYTES) + KV_FIELD_BYTES(reserved) == sizeof(kv_layer_spec),
               "the list has every field of a spec, and a spec no padding");

typedef struct kv_spec_field {
  const char *name;
  uint32_t offset, bytes; /* in kv_layer_spec, and in a dump's record of a layer */
} kv_spec_field;

#define KV_FIELD_ROW(field, name) {#name, offsetof(kv_layer_spec, field), KV_FIELD_BYTES(field)},
#define KV_NUMBER_ROW(field, name, least, most, fallback) KV_FIELD_ROW(field, name)
#define KV_SPEC_FIELDS {KV_EACH_SPEC_FIELD(KV_NUMBER_ROW, KV_FIELD_ROW)}

#endif
