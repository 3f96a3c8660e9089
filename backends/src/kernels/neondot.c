#define KV_ISA neondot
#define KV_ISA_BIT KV_VARIANT_NEONDOT
#include "neon.h"

const kv_kernels kv_kernels_neondot = KV_TABLE_OF(neondot);
