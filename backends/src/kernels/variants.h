/* The instruction sets that this library's kernels are compiled for, from slowest to fastest: the build recipe has the
 * same list (`ISAS`), with what each is compiled with. X(isa, encode): `encode` is its encoder in one, 0 where it has
 * only the pieces. */
#ifndef KV_KERNELS_VARIANTS_H
#define KV_KERNELS_VARIANTS_H

#if defined(__wasm__) /* one unknown instruction and a module does not load at all: each holds one variant */
#define KV_EACH_VARIANT(X) KV_VARIANT_ROW(X, KV_ISA, 0)
#define KV_VARIANT_ROW(X, isa, encode) X(isa, encode)
#elif defined(__x86_64__)
#define KV_EACH_VARIANT(X) \
  X(scalar, 0)             \
  X(avx2, kv_encode_avx2)  \
  X(avx512, kv_encode_avx512) \
  X(avx512vnni, kv_encode_avx512vnni)
#elif defined(__aarch64__)
#define KV_EACH_VARIANT(X) \
  X(scalar, 0)             \
  X(neon, 0)               \
  X(neondot, 0)
#else
#define KV_EACH_VARIANT(X) X(scalar, 0)
#endif

#define KV_VARIANT_NUMBER(isa, encode) KV_VARIANT_##isa,
enum { KV_EACH_VARIANT(KV_VARIANT_NUMBER) KV_VARIANTS };

#endif
