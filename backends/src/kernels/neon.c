#include "neon.h"

const kv_kernels kv_kernels_neon = KV_KERNEL_TABLE(neon);
