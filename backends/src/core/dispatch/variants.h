/* The instruction-set builds of the kernels that this library holds, from slowest to fastest. */
#ifndef KV_VARIANTS_H
#define KV_VARIANTS_H

#include "kvassay.h"
#include "kernels/kernels.h"

typedef struct kv_variant {
  const char *name;
  const char *(*missing)(void); /* NULL if this CPU runs it, else what the CPU lacks */
  const kv_kernels *kernels;
} kv_variant;

extern const kv_variant kv_variants[KV_VARIANTS];

/* name NULL: the last one that runs. A name that does not exist or run is an error, never replaced. */
int32_t kv_variant_find(const char *name, uint32_t *variant, kv_error *error);

#endif
