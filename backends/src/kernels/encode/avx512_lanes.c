/* 256 bits do here; with more registers and masks of their own. */
#define KV_ISA avx512
#define KV_ISA_BIT KV_VARIANT_AVX512
#include "avx2_lanes.c"
