#define KV_ISA avx512
#define KV_ISA_BIT KV_VARIANT_AVX512
#include "avx512.h"

const kv_kernels kv_kernels_avx512 = KV_TABLE_OF(avx512);
