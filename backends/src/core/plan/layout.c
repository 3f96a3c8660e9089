#include "layout.h"

#include "core/base/bits.h"
#include "core/base/codec.h"

static uint64_t codes(const kv_codec *codec, uint64_t tokens, uint64_t d) {
  return codec->family == KV_FAMILY_FP16 ? tokens * d * 2 : kv_code_bytes(codec, tokens);
}

void kv_layout_of(const kv_layer_spec *spec, kv_layout *layout) {
  const uint64_t d = spec->head_dim, tokens = spec->page_tokens;
  const uint64_t scale = spec->scale_kind == KV_SCALE_FP16 ? 2 : 1, maximum = scale == 1 ? 4 : 0;
  kv_codec key, value;
  kv_codec_of(spec->key_mode, spec->head_dim, 1, &key);
  kv_codec_of(spec->value_mode, spec->head_dim, 0, &value);
  *layout = (kv_layout){0};
  uint64_t *n = layout->head_bytes;
  n[KV_KEY_CODES] = codes(&key, tokens, d);
  n[KV_VALUE_CODES] = codes(&value, tokens, d);
  if (kv_family_rotated(key.family)) {
    n[KV_KEY_SCALES] = tokens * scale;
    n[KV_KEY_MAXIMA] = maximum;
  }
  if (key.family == KV_FAMILY_QJL) {
    n[KV_KEY_SIGNS] = tokens * d / 8;
    n[KV_KEY_NORMS] = tokens * scale;
    n[KV_NORM_MAXIMA] = maximum;
  }
  if (kv_family_rotated(value.family)) {
    n[KV_VALUE_SCALES] = tokens * scale;
    n[KV_VALUE_MAXIMA] = maximum;
  }
  if (key.family == KV_FAMILY_KIVI) n[KV_KEY_STEPS] = n[KV_KEY_MINIMA] = (tokens + 31) / 32 * d * 2;
  if (value.family == KV_FAMILY_KIVI) n[KV_VALUE_STEPS] = n[KV_VALUE_MINIMA] = (d + 31) / 32 * tokens * 2;
  if (key.family != KV_FAMILY_FP16 && spec->key_centre == KV_CENTRE_PAGE) n[KV_KEY_MEAN] = d * 2;

  uint64_t end = KV_HEADER_BYTES;
  for (uint32_t i = 0; i < KV_STREAMS; i++) {
    if (!n[i]) continue;
    layout->offset[i] = kv_round_up(end, 16);
    end = layout->offset[i] + spec->kv_heads * n[i];
  }
  layout->bytes = kv_round_up(end, 64);
}
