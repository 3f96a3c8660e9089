/* Nothing here is a dot product of bytes. */
#define KV_ISA neondot
#define KV_ISA_BIT KV_VARIANT_NEONDOT
#include "neon.c"
