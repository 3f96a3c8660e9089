/* Intrinsics in portable C: SIMD Everywhere, Debian's libsimde-dev. Include this header first. */
#ifndef KVASSAY_TESTS_EMULATED_INTRINSICS_H
#define KVASSAY_TESTS_EMULATED_INTRINSICS_H

#define _DEFAULT_SOURCE
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<simde/x86/avx512.h>)
#pragma GCC diagnostic ignored "-Wpsabi" /* gcc: registers of this width are passed in memory here */
#define KV_EMULATE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#undef _mm512_madd_epi16 /* its alias takes four arguments in some versions */
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#endif
#endif

#endif
