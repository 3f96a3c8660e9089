#include "header.h"

static int rotated(const kv_layer_spec *spec) {
  return kv_family_rotated(spec->key_mode >> 4) || kv_family_rotated(spec->value_mode >> 4);
}

kv_page_header kv_page_header_of(const kv_layer_spec *spec, const kv_page_id *id) {
  const int turbo = rotated(spec);
  kv_page_header h = {
      .magic = KV_PAGE_MAGIC,
      .version = KV_PAGE_VERSION,
      .flags = (uint16_t)((turbo ? spec->scale_kind : 0) | spec->key_centre << 2 | spec->value_centre << 4 |
                          KV_CODEBOOK_VERSION << 8),
      .model = id->model,
      .tokenizer = id->tokenizer,
      .runtime = id->runtime,
      .seed = turbo ? spec->seed : 0,
      .token_start = id->token_start,
      .layer = (uint16_t)id->layer,
      .tokens = spec->page_tokens,
      .kv_heads = spec->kv_heads,
      .head_dim = spec->head_dim,
      .stored_dim = spec->head_dim,
      .transform = (uint16_t)(turbo ? 1 + 256 * spec->rounds : 0),
      .key_mode = spec->key_mode,
      .value_mode = spec->value_mode,
  };
  return h;
}
