/* What the CPU and its operating system offer. On x86-64 asked with CPUID and XGETBV themselves: the compilers' helpers
 * differ in which features they know, and most leave out whether the registers are saved at all. On ARM programs may
 * not ask the CPU; the system says. */
#ifndef KV_CPU_H
#define KV_CPU_H

/* NULL if everything the variant's instructions need is there, else the first thing that is not. */
#if defined(__x86_64__)
const char *kv_cpu_lacks_avx2(void);
const char *kv_cpu_lacks_avx512(void);     /* F, BW, DQ, VL */
const char *kv_cpu_lacks_avx512vnni(void); /* and VBMI, VNNI */
#elif defined(__aarch64__)
const char *kv_cpu_lacks_neondot(void); /* SDOT, CRC32 */
#endif

#endif
