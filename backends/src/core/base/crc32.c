#include "crc32.h"

#include "bits.h"
#include "crc32_table.h"

/* Eight bytes a step: the eight look-ups are independent, which hides their latency. */
uint32_t kv_crc32(uint32_t crc, const void *data, uint64_t bytes) {
  const uint8_t *p = data;
  const uint32_t(*t)[256] = kv_crc32_table;
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint32_t a = kv_load32(p) ^ crc, b = kv_load32(p + 4);
    crc = t[7][a & 255] ^ t[6][a >> 8 & 255] ^ t[5][a >> 16 & 255] ^ t[4][a >> 24] ^ t[3][b & 255] ^
          t[2][b >> 8 & 255] ^ t[1][b >> 16 & 255] ^ t[0][b >> 24];
  }
  for (; bytes; bytes--, p++) crc = crc >> 8 ^ t[0][(crc ^ *p) & 255];
  return ~crc;
}

uint32_t kv_crc32_without(const void *data, uint64_t bytes, uint64_t field) {
  static const uint8_t zero[4] = {0, 0, 0, 0};
  const uint8_t *p = data;
  uint32_t crc = kv_crc32(kv_crc32(0, p, field), zero, 4);
  return kv_crc32(crc, p + field + 4, bytes - field - 4);
}
