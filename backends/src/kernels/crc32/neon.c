/* The tables of core/crc32.c: ARMv8.0 has neither the instruction nor carry-less products for certain. */
#include "core/base/crc32.h"

#include "kernels/neon.h"

uint32_t KV_KERNEL(crc32)(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran) {
  KV_RAN(ran);
  return kv_crc32(crc, data, bytes);
}
