/* What an x86-64 CPU and its operating system offer. Asked with CPUID and XGETBV themselves: the compilers' helpers
 * differ in which features they know, and most leave out whether the registers are saved at all. */
#ifndef KV_CPU_H
#define KV_CPU_H

#if defined(__x86_64__)

/* NULL if everything the variant's instructions need is there, else the first thing that is not. */
const char *kv_cpu_lacks_avx2(void);
const char *kv_cpu_lacks_avx512(void);     /* F, BW, DQ, VL */
const char *kv_cpu_lacks_avx512vnni(void); /* and VBMI, VNNI */

#endif

#endif
