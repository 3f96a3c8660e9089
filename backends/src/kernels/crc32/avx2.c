/* CRC-32 by carry-less products (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel 2009): 64 bytes are folded over the next 64, so that the last 64, then the last 16, leave the
 * remainder that all would. The tables finish those 16 and the tail. */
#include "core/base/crc32.h"

#include "kernels/avx2.h"

/* x^(n + 32) and x^(n - 32) modulo the polynomial, bit-reflected, for a fold over n bits. */
#define FOLD_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define FOLD_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)

static inline __m128i load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }

static inline __m128i folded(__m128i x, __m128i by, __m128i over) {
  const __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), over);
}

uint32_t KV_KERNEL(crc32)(uint32_t crc, const uint8_t *data, uint64_t bytes, uint32_t *ran) {
  uint8_t rest[16];
  KV_RAN(ran);
  if (bytes < 128) return kv_crc32(crc, data, bytes);
  __m128i x[4] = {load(data), load(data + 16), load(data + 32), load(data + 48)};
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)~crc));
  for (data += 64, bytes -= 64; bytes >= 64; data += 64, bytes -= 64)
    for (int i = 0; i < 4; i++) x[i] = folded(x[i], FOLD_512, load(data + 16 * i));
  for (int i = 1; i < 4; i++) x[i] = folded(x[i - 1], FOLD_128, x[i]);
  _mm_storeu_si128((__m128i *)rest, x[3]);
  return kv_crc32(kv_crc32(~0u, rest, sizeof rest), data, bytes); /* ~0: the start is already inside */
}
