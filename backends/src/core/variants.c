#include "variants.h"

#include "cpu.h"
#include "fail.h"

static const char *nothing_missing(void) { return 0; }

const kv_variant kv_variants[KV_VARIANTS] = {
#if defined(KV_WASM_RELAXED)
    [KV_VARIANT_RELAXED] = {"relaxed", nothing_missing, &kv_kernels_relaxed},
#elif defined(__wasm_simd128__)
    [KV_VARIANT_SIMD128] = {"simd128", nothing_missing, &kv_kernels_simd128},
#else
    [KV_VARIANT_SCALAR] = {"scalar", nothing_missing, &kv_kernels_scalar},
#endif
#if defined(__x86_64__)
    [KV_VARIANT_AVX2] = {"avx2", kv_cpu_lacks_avx2, &kv_kernels_avx2},
    [KV_VARIANT_AVX512] = {"avx512", kv_cpu_lacks_avx512, &kv_kernels_avx512},
    [KV_VARIANT_AVX512VNNI] = {"avx512vnni", kv_cpu_lacks_avx512vnni, &kv_kernels_avx512vnni},
#elif defined(__aarch64__)
    [KV_VARIANT_NEON] = {"neon", nothing_missing, &kv_kernels_neon}, /* of every ARMv8 */
    [KV_VARIANT_NEONDOT] = {"neondot", kv_cpu_lacks_neondot, &kv_kernels_neondot},
#endif
};

static int equal(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

int32_t kv_variant_find(const char *name, uint32_t *variant, kv_error *error) {
  for (uint32_t i = KV_VARIANTS; i-- > 0;) {
    if (name && !equal(name, kv_variants[i].name)) continue;
    const char *missing = kv_variants[i].missing();
    if (name && missing)
      return kv_fail(error, KV_E_VARIANT, "variant %s cannot run here: this CPU lacks %s", name, missing);
    if (missing) continue;
    *variant = i;
    return KV_OK;
  }
  return kv_fail(error, KV_E_VARIANT, "no variant named %s in this library; kv_variant_name lists them",
                 name ? name : "(any)");
}

KV_EXPORT const char *kv_variant_name(uint32_t variant) {
  return variant < KV_VARIANTS ? kv_variants[variant].name : 0;
}

KV_EXPORT int32_t kv_variant_runs(uint32_t variant, kv_error *error) {
  if (variant >= KV_VARIANTS)
    return kv_fail(error, KV_E_VARIANT, "no variant %u; this library has %u", variant, (uint32_t)KV_VARIANTS);
  const char *missing = kv_variants[variant].missing();
  if (missing)
    return kv_fail(error, KV_E_VARIANT, "variant %s cannot run here: this CPU lacks %s",
                   kv_variants[variant].name, missing);
  return kv_success(error);
}
