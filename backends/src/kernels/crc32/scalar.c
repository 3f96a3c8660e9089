/* The tables of core/crc32.c. */
#include "../../core/crc32.h"

#include "../scalar.h"

uint32_t kv_crc32_scalar(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran) {
  KV_RAN_SCALAR(ran);
  return kv_crc32(crc, data, bytes);
}
