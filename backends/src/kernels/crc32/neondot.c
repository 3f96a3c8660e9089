/* The instruction for this very polynomial, which every CPU with the dot product has. */
#include <arm_acle.h>

#include "kernels/neon.h"

uint32_t KV_KERNEL(crc32)(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran) {
  KV_RAN(ran);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, data += 8) crc = __crc32d(crc, kv_load64(data));
  for (; bytes; bytes--, data++) crc = __crc32b(crc, *data);
  return ~crc;
}
