/* The files of SIMD128 once more, with relaxed instructions where they help. */
#define KV_ISA relaxed
#define KV_ISA_BIT KV_VARIANT_RELAXED
#include "simd128.c"
