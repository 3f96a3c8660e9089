/* The 128-bit product is the widest that every CPU of this variant has. */
#define KV_ISA avx512vnni
#define KV_ISA_BIT KV_VARIANT_AVX512VNNI
#include "avx2.c"
