/* The logic of AVX-512 scans and sums on any x86-64 CPU: the sources of one instruction set over an emulation of the
 * intrinsics, in the test program KV_EMULATED_TEST, against scalar. It says nothing of the compiled variant. The build of
 * the test programs names the sources, and the instructions that they are told of. */
#include "intrinsics.h"

#ifdef KV_EMULATE
enum { KV_VARIANT_emulated = 31 };
#include KV_EMULATED_KEYSCAN
#include KV_EMULATED_VALUESUM

#include KV_EMULATED_TEST

int main(void) {
  const kv_kernels emulated = {.keyscan = kv_keyscan_emulated, .keyscan15 = kv_keyscan15_emulated,
                               .valuesum = kv_valuesum_emulated};
  test_forced("emulated", &emulated, 1u << KV_VARIANT_emulated, test);
  return closing(KV_EMULATED_NAME);
}
#else
#include <stdio.h>

int main(void) {
  puts(KV_EMULATED_NAME ": not run: no simde/x86/avx512.h, or not x86-64");
  return 77; /* nothing was tested: not a pass */
}
#endif
