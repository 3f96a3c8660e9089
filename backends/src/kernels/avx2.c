#include "avx2.h"

const kv_kernels kv_kernels_avx2 = KV_TABLE_OF(avx2);
