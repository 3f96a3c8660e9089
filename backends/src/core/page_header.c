#include "page_header.h"

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

int kv_page_header_spec(const kv_page_header *h, kv_layer_spec *spec) {
  *spec = (kv_layer_spec){
      .kv_heads = h->kv_heads,
      .query_heads = h->kv_heads,
      .head_dim = h->head_dim,
      .page_tokens = h->tokens,
      .key_mode = h->key_mode,
      .value_mode = h->value_mode,
      .key_centre = h->flags >> 2 & 3,
      .value_centre = h->flags >> 4 & 3,
      .scale_kind = h->flags & 3,
      .rounds = h->transform ? h->transform >> 8 & 255 : 2,
      .softmax_scale = 1.0f,
      .seed = h->seed,
  };
  return kv_spec_check(spec, 0) == KV_OK;
}
