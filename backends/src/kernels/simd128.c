#include "simd128.h"

const kv_kernels kv_kernels_simd128 = KV_TABLE_OF(simd128);
