#include "cpu.h"

/* Of every processor of its machine. */
#define LACKS_NOTHING(isa, encode) const char *kv_cpu_lacks_##isa(void) { return 0; }

#if defined(__x86_64__)

#include <stdint.h>

typedef struct registers {
  uint32_t a, b, c, d;
} registers;

static registers cpuid(uint32_t leaf) {
  registers r;
  __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(0));
  return r;
}

/* XCR0: which registers the operating system saves. Faults unless CPUID reports OSXSAVE. */
static uint32_t saved_registers(void) {
  uint32_t a, d;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return a;
}

enum { LEAF_1_C, LEAF_7_B, LEAF_7_C };

typedef struct feature {
  const char *name;
  uint32_t word, bit;
} feature;

#define OSXSAVE 27u
#define XCR0_AVX 0x06u    /* XMM and the upper halves of YMM */
#define XCR0_AVX512 0xe6u /* and masks, the upper halves of ZMM, ZMM16 to ZMM31 */

static const char *lacks(const feature *features, uint32_t count, uint32_t saved, const char *registers_name) {
  const uint32_t leaves = cpuid(0).a;
  uint32_t words[3] = {0};
  words[LEAF_1_C] = cpuid(1).c;
  if (leaves >= 7) {
    const registers seven = cpuid(7);
    words[LEAF_7_B] = seven.b;
    words[LEAF_7_C] = seven.c;
  }
  for (uint32_t i = 0; i < count; i++)
    if (!(words[features[i].word] >> features[i].bit & 1)) return features[i].name;
  if (!(words[LEAF_1_C] >> OSXSAVE & 1) || (saved_registers() & saved) != saved) return registers_name;
  return 0;
}

LACKS_NOTHING(scalar, 0)

const char *kv_cpu_lacks_avx2(void) {
  static const feature needed[] = {
      {"pclmulqdq", LEAF_1_C, 1}, {"avx", LEAF_1_C, 28}, {"f16c", LEAF_1_C, 29}, {"avx2", LEAF_7_B, 5}};
  return lacks(needed, sizeof needed / sizeof *needed, XCR0_AVX, "an operating system that saves the AVX registers");
}

static const char *lacks512(const feature *needed, uint32_t count) {
  const char *missing = kv_cpu_lacks_avx2(); /* whose kernels they share */
  if (missing) return missing;
  return lacks(needed, count, XCR0_AVX512, "an operating system that saves the AVX-512 registers");
}

static const feature avx512[] = {{"fma", LEAF_1_C, 12},       {"avx512f", LEAF_7_B, 16},
                                 {"avx512dq", LEAF_7_B, 17},  {"avx512bw", LEAF_7_B, 30},
                                 {"avx512vl", LEAF_7_B, 31},  {"avx512_vbmi", LEAF_7_C, 1},
                                 {"avx512_vnni", LEAF_7_C, 11}};

const char *kv_cpu_lacks_avx512(void) { return lacks512(avx512, 5); }
const char *kv_cpu_lacks_avx512vnni(void) { return lacks512(avx512, 7); }

#elif defined(__aarch64__)

LACKS_NOTHING(scalar, 0)
LACKS_NOTHING(neon, 0)

#if defined(__linux__)

#include <sys/auxv.h>

#define CRC32 (1ul << 7)
#define ASIMDDP (1ul << 20)

const char *kv_cpu_lacks_neondot(void) {
  const unsigned long has = getauxval(AT_HWCAP);
  return !(has & ASIMDDP) ? "asimddp" : !(has & CRC32) ? "crc32" : 0;
}

#elif defined(__APPLE__)

LACKS_NOTHING(neondot, 0) /* since the first Mac with an ARM CPU */

#else

const char *kv_cpu_lacks_neondot(void) { return "a way to ask this operating system for the dot product"; }

#endif

#else

KV_EACH_VARIANT(LACKS_NOTHING)

#endif
