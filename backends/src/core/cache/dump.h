/* Where things are in a dump (docs/page-format.md): a function of specs and lengths, shared by writer and reader. */
#ifndef KVASSAY_CORE_DUMP_H
#define KVASSAY_CORE_DUMP_H

#include "cache.h"

#define KV_DUMP_HEADER 32u
#define KV_DUMP_RECORD 64u
#define KV_DUMP_CRC 16u /* offset of the checksum */

/* One layer's section. Sizes are those of one stream; offsets count from the start of the file. */
typedef struct kv_section {
  uint64_t start;
  uint64_t key_mean_bytes;
  uint64_t value_mean_bytes;
  uint64_t sinks; /* tokens */
  uint64_t residual;
  uint64_t sink_bytes;
  uint64_t residual_bytes;
  uint64_t first_page;
  uint64_t page_count;
  uint64_t page_bytes;
  uint64_t pages; /* offset of the first page */
  uint64_t end;
} kv_section;

/* Sums saturate at UINT64_MAX. `after` is the end of what comes before. */
kv_section kv_section_at(const kv_layer_spec *spec, uint64_t page_bytes, uint64_t length, uint64_t after);
uint64_t kv_dump_records(uint64_t identity_bytes); /* offset of the layer records */
void kv_dump_write_record(const kv_layer_spec *spec, uint64_t length, const kv_section *section, uint8_t *record);

/* The cache of a dump, with what it has in common with others already made. */
int32_t kv_dump_restore(kv_shared *shared, const uint8_t *file, uint64_t bytes, kv_cache **cache, kv_error *error);

#endif
