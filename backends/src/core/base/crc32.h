#ifndef KV_CRC32_H
#define KV_CRC32_H

#include <stdint.h>

/* CRC-32 as in zlib: start from 0, feed pieces in order. */
uint32_t kv_crc32(uint32_t crc, const void *data, uint64_t bytes);

/* CRC of bytes whose own 4-byte CRC field at `field` counts as zero. */
uint32_t kv_crc32_without(const void *data, uint64_t bytes, uint64_t field);

#endif
