/* kv_page_check: everything docs/page-format.md asks under "Reading a page from outside". */
#include "core/base/bits.h"
#include "core/base/crc32.h"
#include "core/base/fail.h"
#include "header.h"

static int32_t damaged(kv_error *error, const char *what, uint64_t found, uint64_t expected) {
  return kv_fail(error, KV_E_PAGE, "page: %s is %l, expected %l; the page is damaged", what, found, expected);
}

static int32_t differs(kv_error *error, const char *field, uint64_t found, uint64_t expected) {
  return kv_fail(error, KV_E_IDENTITY, "%s: 0x%x in the page, 0x%x in this cache; it belongs to another cache", field,
                 found, expected);
}

/* Fields that say whether these bytes are a page at all. */
static int32_t check_form(const kv_page_header *h, kv_error *error) {
  if (h->magic != KV_PAGE_MAGIC) return kv_fail(error, KV_E_PAGE, "page: magic is not KVPG; these bytes are no page");
  if (h->version != KV_PAGE_VERSION) return damaged(error, "version", h->version, KV_PAGE_VERSION);
  if ((h->flags >> 8 & 15) != KV_CODEBOOK_VERSION)
    return damaged(error, "codebook version", h->flags >> 8 & 15, KV_CODEBOOK_VERSION);
  if (h->flags & 0xf0c0) return damaged(error, "unknown flag bits", h->flags & 0xf0c0, 0);
  if (h->reserved) return damaged(error, "reserved field", h->reserved, 0);
  return KV_OK;
}

static int32_t check_gaps(const kv_layout *layout, uint32_t kv_heads, const uint8_t *page, kv_error *error) {
  uint64_t at = KV_HEADER_BYTES;
  for (uint32_t i = 0; i <= KV_STREAMS; i++) {
    if (i < KV_STREAMS && !layout->head_bytes[i]) continue;
    uint64_t next = i < KV_STREAMS ? layout->offset[i] : layout->bytes;
    for (; at < next; at++)
      if (page[at]) return kv_fail(error, KV_E_PAGE, "page: padding byte %l is not 0; the page is damaged", at);
    if (i < KV_STREAMS) at = next + kv_heads * layout->head_bytes[i];
  }
  return KV_OK;
}

/* Every field against the one right value; which error it gives does not depend on what stands in it. */
static int32_t check_fields(const kv_page_header *h, const kv_layer_spec *spec, const kv_page_id *id,
                            kv_error *error) {
  const kv_page_id self = {h->model, h->tokenizer, h->runtime, h->token_start, h->layer};
  if (!id) id = &self;
  const kv_page_header w = kv_page_header_of(spec, id);
  const struct {
    const char *name;
    uint64_t found, expected;
  } fields[] = {
      {"KV heads", h->kv_heads, w.kv_heads},
      {"head dim", h->head_dim, w.head_dim},
      {"token count", h->tokens, w.tokens},
      {"key mode", h->key_mode, w.key_mode},
      {"value mode", h->value_mode, w.value_mode},
      {"scale kind", h->flags & 3u, w.flags & 3u},
      {"key centring", h->flags >> 2 & 3u, w.flags >> 2 & 3u},
      {"value centring", h->flags >> 4 & 3u, w.flags >> 4 & 3u},
      {"transform", h->transform, w.transform},
      {"seed", h->seed, w.seed},
      {"model", h->model, w.model},
      {"tokenizer", h->tokenizer, w.tokenizer},
      {"runtime", h->runtime, w.runtime},
  };
  for (uint32_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].found != fields[i].expected)
      return differs(error, fields[i].name, fields[i].found, fields[i].expected);
  if (h->stored_dim != w.stored_dim) return damaged(error, "stored dim", h->stored_dim, w.stored_dim);
  if (h->layer != id->layer) return damaged(error, "layer", h->layer, id->layer);
  if (h->token_start != w.token_start) return damaged(error, "token start", h->token_start, w.token_start);
  return KV_OK;
}

/* What a number of a stream may be. */
enum { KIND_NONE, KIND_FINITE16, KIND_POSITIVE16, KIND_MAXIMUM };

static int sound(uint32_t kind, const uint8_t *p) {
  if (kind == KIND_MAXIMUM) {
    uint32_t bits = kv_load32(p); /* +0 or a positive normal number */
    return bits == 0 || (bits >= 0x00800000u && bits < 0x7f800000u);
  }
  uint16_t h = kv_load16(p);
  return kv_f16_finite(h) && !(kind == KIND_POSITIVE16 && h & 0x8000u);
}

static uint32_t kind_of(const kv_layer_spec *spec, uint32_t stream) {
  switch (stream) {
    case KV_KEY_CODES: return spec->key_mode == KV_MODE_FP16 ? KIND_FINITE16 : KIND_NONE;
    case KV_VALUE_CODES: return spec->value_mode == KV_MODE_FP16 ? KIND_FINITE16 : KIND_NONE;
    case KV_KEY_SCALES:
    case KV_KEY_NORMS:
    case KV_VALUE_SCALES: return spec->scale_kind == KV_SCALE_FP16 ? KIND_POSITIVE16 : KIND_NONE;
    case KV_KEY_STEPS:
    case KV_VALUE_STEPS: return KIND_POSITIVE16;
    case KV_KEY_MINIMA:
    case KV_VALUE_MINIMA:
    case KV_KEY_MEAN: return KIND_FINITE16;
    case KV_KEY_MAXIMA:
    case KV_NORM_MAXIMA:
    case KV_VALUE_MAXIMA: return KIND_MAXIMUM;
    default: return KIND_NONE;
  }
}

static int32_t check_numbers(const kv_plan *plan, const uint8_t *page, kv_error *error) {
  static const char *const names[KV_STREAMS] = {
      "key codes", "value codes", "key signs",    "key scales",   "key norms", "value scales", "key steps",
      "key minima", "value steps", "value minima", "key mean",     "key maxima", "norm maxima",  "value maxima"};
  for (uint32_t i = 0; i < KV_STREAMS; i++) {
    const uint32_t kind = kind_of(&plan->spec, i), size = kind == KIND_MAXIMUM ? 4 : 2;
    const uint64_t head_bytes = plan->layout.head_bytes[i], bytes = plan->spec.kv_heads * head_bytes;
    if (kind == KIND_NONE) continue;
    for (uint64_t at = 0; at < bytes; at += size) {
      if (sound(kind, page + plan->layout.offset[i] + at)) continue;
      int32_t code = kv_fail(error, KV_E_PAGE, "page: entry %l of %s is negative, NaN, infinite or subnormal",
                             at / size, names[i]);
      if (error) error->head = (int32_t)(at / head_bytes);
      return code;
    }
  }
  return KV_OK;
}

KV_EXPORT int32_t kv_page_check(const void *plan, const kv_page_id *id, const void *page, uint64_t bytes,
                                kv_error *error) {
  const kv_plan *p = plan;
  kv_page_header header;
  int32_t code = kv_plan_check(plan, error);
  if (code) return code;
  if (!page) return kv_fail(error, KV_E_ARGUMENT, "page is NULL");
  if (bytes < KV_HEADER_BYTES)
    return kv_fail(error, KV_E_PAGE, "page: %l bytes are fewer than a header of 64; it was cut", bytes);
  kv_copy(&header, page, sizeof header);
  code = check_form(&header, error);
  if (code == KV_OK) code = check_fields(&header, &p->spec, id, error);
  if (code) return code;
  if (bytes != p->layout.bytes)
    return kv_fail(error, KV_E_PAGE, "page: %l bytes, but one of this cache has %l; it was cut or extended", bytes,
                   p->layout.bytes);
  code = check_gaps(&p->layout, header.kv_heads, page, error);
  if (code) return code;
  uint32_t crc = kv_crc32_without(page, bytes, KV_PAGE_CRC);
  if (crc != header.crc)
    return kv_fail(error, KV_E_PAGE, "page: CRC is 0x%x, its bytes give 0x%x; the page is damaged",
                   (uint64_t)header.crc, (uint64_t)crc);
  code = check_numbers(p, page, error);
  return code ? code : kv_success(error);
}
