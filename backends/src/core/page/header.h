/* The 64 bytes at the start of a page (docs/page-format.md, "Header"). */
#ifndef KV_PAGE_HEADER_H
#define KV_PAGE_HEADER_H

#include "core/plan/plan.h"

#define KV_PAGE_MAGIC 0x4750564bu /* "KVPG" */
#define KV_PAGE_CRC 44u           /* offset of the CRC */
#define KV_CODEBOOK_VERSION 1u

typedef struct kv_page_header {
  uint32_t magic;
  uint16_t version, flags;
  uint64_t model, tokenizer, runtime, seed;
  uint32_t token_start, crc;
  uint16_t layer, tokens, kv_heads, head_dim, stored_dim, transform;
  uint8_t key_mode, value_mode;
  uint16_t reserved;
} kv_page_header;

_Static_assert(sizeof(kv_page_header) == 64, "the struct is the header: little endian, no padding");

/* What a page of this spec says; CRC 0. */
kv_page_header kv_page_header_of(const kv_layer_spec *spec, const kv_page_id *id);

#endif
