/* The pinned weights of the tiny models: SplitMix64 (Steele, Lea and Flood 2014), 24 bits a weight. */
#include "decoder.h"

void kvd_uniform(uint64_t seed, uint32_t n, float half_width, float offset, float *out) {
  for (uint32_t i = 0; i < n; i++) {
    seed += 0x9e3779b97f4a7c15u;
    uint64_t z = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    float unit = (float)(int32_t)(z >> 40) * 0x1p-23f - 1.0f; /* exact */
    out[i] = offset + unit * half_width;
  }
}
