#define KV_ISA relaxed
#define KV_ISA_BIT KV_VARIANT_RELAXED
#include "simd128.h"

const kv_kernels kv_kernels_relaxed = KV_TABLE_OF(relaxed);
