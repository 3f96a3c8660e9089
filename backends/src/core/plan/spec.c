/* What this library executes: everything a kv_layer_spec can say within the ranges of the contract. */
#include "core/base/bits.h"
#include "core/base/fail.h"
#include "plan.h"

#define LIMIT 0x7fffffffu

static int32_t check_shape(const kv_layer_spec *s, kv_error *error) {
  if (s->kv_heads == 0 || s->query_heads == 0 || s->query_heads % s->kv_heads)
    return kv_fail(error, KV_E_SPEC, "query_heads %u is not a positive multiple of kv_heads %u",
                   (uint32_t)s->query_heads, (uint32_t)s->kv_heads);
  if (s->head_dim < 16 || s->head_dim > KV_MAX_DIM || s->head_dim % 16)
    return kv_fail(error, KV_E_SPEC, "head_dim %u is not a multiple of 16 in 16 .. 576", (uint32_t)s->head_dim);
  if (s->page_tokens < 16 || s->page_tokens > KV_MAX_PAGE || s->page_tokens % 16)
    return kv_fail(error, KV_E_SPEC, "page_tokens %u is not a multiple of 16 in 16 .. 1024",
                   (uint32_t)s->page_tokens);
  if (s->window > LIMIT || s->sinks > LIMIT || s->span > LIMIT)
    return kv_fail(error, KV_E_SPEC, "window %u, sinks %u or span %u is above 2147483647", s->window, s->sinks,
                   s->span);
  if (s->reserved) return kv_fail(error, KV_E_SPEC, "reserved is %u and must be 0", (uint32_t)s->reserved);
  return KV_OK;
}

static int32_t check_codecs(const kv_layer_spec *s, kv_error *error) {
  kv_codec codec;
  if (!kv_codec_of(s->key_mode, s->head_dim, 1, &codec))
    return kv_fail(error, KV_E_SPEC, "key_mode 0x%x is not a mode of the page format", (uint64_t)s->key_mode);
  if (!kv_codec_of(s->value_mode, s->head_dim, 0, &codec))
    return kv_fail(error, KV_E_SPEC, "value_mode 0x%x is not a mode of the page format for values",
                   (uint64_t)s->value_mode);
  if (s->key_centre > KV_CENTRE_PAGE || (s->key_mode == KV_MODE_FP16 && s->key_centre))
    return kv_fail(error, KV_E_SPEC, "key_centre %u: 0 none, 1 frozen, 2 page; fp16 keys are never centred",
                   (uint32_t)s->key_centre);
  if (s->value_centre > KV_CENTRE_FROZEN || (s->value_mode == KV_MODE_FP16 && s->value_centre))
    return kv_fail(error, KV_E_SPEC, "value_centre %u: 0 none, 1 frozen; fp16 values are never centred",
                   (uint32_t)s->value_centre);
  if (s->scale_kind > KV_SCALE_FP16)
    return kv_fail(error, KV_E_SPEC, "scale_kind %u: 0 u8, 1 u8log, 2 fp16", (uint32_t)s->scale_kind);
  if (s->rounds != 1 && s->rounds != 2)
    return kv_fail(error, KV_E_SPEC, "rounds %u: the transform has 1 or 2", (uint32_t)s->rounds);
  return KV_OK;
}

int32_t kv_spec_check(const kv_layer_spec *spec, kv_error *error) {
  kv_layout layout;
  if (!spec) return kv_fail(error, KV_E_ARGUMENT, "spec is NULL");
  int32_t code = check_shape(spec, error);
  if (code == KV_OK) code = check_codecs(spec, error);
  if (code) return code;
  if (!(spec->softmax_scale >= 0x1p-20f && spec->softmax_scale <= 0x1p+20f))
    return kv_fail(error, KV_E_SPEC, "softmax_scale is outside 2^-20 .. 2^20");
  kv_layout_of(spec, &layout);
  if (layout.bytes > UINTPTR_MAX / 2)
    return kv_fail(error, KV_E_SPEC, "a page of %l bytes does not fit this address space", layout.bytes);
  return KV_OK;
}

KV_EXPORT int32_t kv_supports(const kv_layer_spec *spec, kv_error *error) {
  int32_t code = kv_spec_check(spec, error);
  return code ? code : kv_success(error);
}
