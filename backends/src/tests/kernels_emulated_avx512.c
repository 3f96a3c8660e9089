/* The logic of the avx512 scans and sums on any x86-64 CPU: the same sources over an emulation of the intrinsics,
 * against scalar. It says nothing of the compiled variant. */
#include "variants_emulated.h"

#ifdef KV_EMULATE
#define KV_ISA emulated
#define KV_ISA_BIT 31
#include "../kernels/keyscan/avx512.c"
#include "../kernels/valuesum/avx512.c"

#include "kernels_variants.c"

int main(void) {
  const kv_kernels emulated = {.keyscan = kv_keyscan_emulated, .keyscan15 = kv_keyscan15_emulated,
                               .valuesum = kv_valuesum_emulated};
  test(&emulated, 1u << KV_ISA_BIT);
  return closing("kernels_emulated_avx512");
}
#else
#include <stdio.h>

int main(void) {
  puts("kernels_emulated_avx512: not run: no simde/x86/avx512.h, or not x86-64");
  return 77; /* nothing was tested: not a pass */
}
#endif
