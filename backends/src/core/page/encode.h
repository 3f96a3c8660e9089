/* kv_page_encode and kv_page_mean of what is known to be valid: rows are finite, nothing is NULL, sizes fit. */
#ifndef KV_PAGE_ENCODE_H
#define KV_PAGE_ENCODE_H

#include "core/plan/plan.h"

void kv_encode_valid(const kv_plan *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                     const uint16_t *key_mean, const uint16_t *value_mean, void *page, void *scratch);
void kv_mean_valid(const kv_plan *plan, const kv_rows *rows, uint16_t *mean);

#endif
