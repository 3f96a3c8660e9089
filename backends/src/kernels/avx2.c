#include "avx2.h"

const kv_kernels kv_kernels_avx2 = KV_KERNEL_TABLE(avx2);
