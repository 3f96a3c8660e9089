#include "variants.h"

#include "cpu.h"
#include "core/base/fail.h"

#define VARIANT(isa, encode) {#isa, kv_cpu_lacks_##isa, &kv_kernels_##isa},
const kv_variant kv_variants[KV_VARIANTS] = {KV_EACH_VARIANT(VARIANT)};

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
