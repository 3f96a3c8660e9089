#define KV_ISA neondot
#define KV_ISA_BIT KV_VARIANT_NEONDOT
#define KV_DOT
#include "neon.c"
