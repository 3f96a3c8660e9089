/* The compiler's helper for a product of 64-bit numbers that may overflow; by halves, since `*` of the whole would
 * call this very function. */
#include <stdint.h>

typedef unsigned __int128 wide;

static wide product(uint64_t a, uint64_t b) {
  const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  const uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (uint32_t)middle;
  const uint64_t high = a1 * b1 + (middle >> 32) + (other >> 32);
  return (wide)high << 64 | (other << 32 | (uint32_t)low);
}

wide __multi3(wide a, wide b);

wide __multi3(wide a, wide b) {
  const uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64), b0 = (uint64_t)b, b1 = (uint64_t)(b >> 64);
  const uint64_t crossed = a0 * b1 + a1 * b0;
  return product(a0, b0) + ((wide)crossed << 64);
}
