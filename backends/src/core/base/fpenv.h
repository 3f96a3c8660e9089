/* Floating-point environment of a call: nearest even, nothing flushed to zero, exceptions masked. Every
 * entry point and every task of a thread saves, sets and restores it; the work between sits in a function
 * that is never inlined, so that no operation moves across. */
#ifndef KV_FPENV_H
#define KV_FPENV_H

#include <stdint.h>

#define KV_NOINLINE __attribute__((noinline))

#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE2__))
typedef uint32_t kv_fpenv;
static inline kv_fpenv kv_fpenv_enter(void) {
  uint32_t saved = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x1f80u);
  return saved;
}
static inline void kv_fpenv_leave(kv_fpenv saved) { __builtin_ia32_ldmxcsr(saved); }
#elif defined(__aarch64__)
typedef uint64_t kv_fpenv;
static inline kv_fpenv kv_fpenv_enter(void) {
  uint64_t saved, standard = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved)::"memory");
  __asm__ volatile("msr fpcr, %0" ::"r"(standard) : "memory");
  return saved;
}
static inline void kv_fpenv_leave(kv_fpenv saved) { __asm__ volatile("msr fpcr, %0" ::"r"(saved) : "memory"); }
#elif defined(__wasm__)
typedef uint32_t kv_fpenv; /* WebAssembly has one environment, the right one */
static inline kv_fpenv kv_fpenv_enter(void) { return 0; }
static inline void kv_fpenv_leave(kv_fpenv saved) { (void)saved; }
#else
#error "the floating-point environment of this CPU is not known; add it here"
#endif

#endif
