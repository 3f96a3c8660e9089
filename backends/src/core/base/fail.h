/* Errors: code, place, and a message that names what, where and what to do. */
#ifndef KV_FAIL_H
#define KV_FAIL_H

#include "kvassay.h"

/* Fills `error` (if not NULL) and returns `code`. The format knows %s (const char *), %u (uint32_t),
 * %l (uint64_t) and %x (uint64_t in hexadecimal); no libc is needed. Places are set to -1. */
int32_t kv_fail(kv_error *error, int32_t code, const char *format, ...);

/* Sets `error` (if not NULL) to "no error". */
int32_t kv_success(kv_error *error);

#endif
