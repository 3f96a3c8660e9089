#define KV_ISA avx512vnni
#define KV_ISA_BIT KV_VARIANT_AVX512VNNI
#include "avx512.h"

const kv_kernels kv_kernels_avx512vnni = KV_TABLE_OF(avx512vnni);
