/* Searches of stored vectors by the avx512vnni scan on any x86-64 CPU, over an emulation of the intrinsics; all other kernels
 * of that variant are those of avx2 or scalar. */
#include "variants_emulated.h"

#ifdef KV_EMULATE
#define KV_ISA emulated
#define KV_ISA_BIT 31
#define KV_EMULATE_VBMI
#define KV_EMULATE_VNNI
#include "../kernels/keyscan/avx512.c"

#include "../retrieval/retrieval.h"
#include "retrieval.c"

static kv_kernels emulated;

static void adjust(void *plan) {
  kv_retrieval_plan *adjusted = plan;
  emulated = *adjusted->kernels;
  emulated.keyscan = kv_keyscan_emulated;
  adjusted->kernels = &emulated;
}

int main(void) {
  test("scalar", adjust);
  return closing("retrieval_emulated_avx512vnni");
}
#else
#include <stdio.h>

int main(void) {
  puts("retrieval_emulated_avx512vnni: not run: no simde/x86/avx512.h, or not x86-64");
  return 77; /* nothing was tested: not a pass */
}
#endif
