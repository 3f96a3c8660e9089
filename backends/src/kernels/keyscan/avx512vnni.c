#define KV_ISA avx512vnni
#define KV_ISA_BIT KV_VARIANT_AVX512VNNI
#include "avx512.c"
