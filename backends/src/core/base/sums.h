/* The two sums of the numeric contract, section 0: sixteen stripes and a fixed tree. */
#ifndef KV_SUMS_H
#define KV_SUMS_H

#include "bits.h"

/* s[i] + s[i + 8], then + 4, + 2, + 1. In a file of its own: compilers that see the tree narrow the vectors of
 * the sums before it to the width of its last step. */
float kv_tree16(float s[16]);

/* D16(a, b), n a multiple of 16. */
static inline float kv_d16(const float *a, const float *b, uint32_t n) {
  float s[16] = {0};
  for (uint32_t c = 0; c < n; c += 16)
    for (uint32_t i = 0; i < 16; i++) {
      float product = a[c + i] * b[c + i];
      s[i] = s[i] + product;
    }
  return kv_tree16(s);
}

#endif
