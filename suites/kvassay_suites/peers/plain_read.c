/* Reads bytes and does as little as it can with them: what memory allows, and no kernel undercuts. */
#include <stdint.h>
#include <string.h>

typedef uint64_t lanes __attribute__((vector_size(32)));

/* The exclusive or of all 64-bit words, `times` over; bytes is a multiple of 256. */
uint64_t plain_read(const uint8_t *data, uint64_t bytes, uint32_t times) {
  lanes sum[8] = {{0}};
  while (times--) {
    for (uint64_t i = 0; i < bytes; i += 256)
      for (uint32_t j = 0; j < 8; j++) {
        lanes x;
        memcpy(&x, data + i + 32 * j, 32);
        sum[j] ^= x;
      }
    __asm__ volatile("" ::: "memory"); /* the next time reads again */
  }
  for (uint32_t j = 1; j < 8; j++) sum[0] ^= sum[j];
  return sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}
