/* The table of each variant. */
#include "kernels.h"

#define ENTRY(isa, result, name, parameters) .name = kv_##name##_##isa,
#define NONE(isa, result, name, parameters)
#define TABLE(isa, fused) \
  KV_DECLARE_KERNELS(isa) \
  const kv_kernels kv_kernels_##isa = {KV_EACH_KERNEL(ENTRY, NONE, isa).encode = fused};

KV_EACH_VARIANT(TABLE)
