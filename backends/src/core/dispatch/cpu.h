/* What the CPU and its operating system offer. On x86-64 asked with CPUID and XGETBV themselves: the compilers' helpers
 * differ in which features they know, and most leave out whether the registers are saved at all. On ARM programs may
 * not ask the CPU; the system says. */
#ifndef KV_CPU_H
#define KV_CPU_H

#include "kernels/variants.h"

/* kv_cpu_lacks_avx2 and so on: NULL if everything the variant's instructions need is there, else the first thing that is
 * not. */
#define KV_DECLARE_LACKS(isa, encode) const char *kv_cpu_lacks_##isa(void);
KV_EACH_VARIANT(KV_DECLARE_LACKS)

#endif
