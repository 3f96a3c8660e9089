#include "kvassay_share.h"
#include "variants.h"

/* The build defines them; a library built by hand says so. */
#ifndef KV_BUILD_NAME
#define KV_BUILD_NAME "native"
#endif
#ifndef KV_BUILD_ID
#define KV_BUILD_ID "not stamped"
#endif
#ifdef KV_WITHOUT_CACHE
#define FLAGS KV_FLAG_EXACT
#else
#define FLAGS (KV_FLAG_EXACT | KV_FLAG_CACHE | KV_FLAG_SHARE)
#endif

KV_EXPORT const kv_info *kv_get_info(void) {
  static const kv_info info = {KV_ABI_VERSION, KV_CONTRACT_VERSION, KV_PAGE_VERSION, KV_DUMP_VERSION,
                               FLAGS,          KV_VARIANTS,         KV_BUILD_NAME,   KV_BUILD_ID};
  return &info;
}
