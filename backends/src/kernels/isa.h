/* What a file of kernels is compiled for: KV_ISA, which the build recipe defines. */
#ifndef KV_KERNELS_ISA_H
#define KV_KERNELS_ISA_H

#include "core/base/bits.h"
#include "kernels.h"

#define KV_PASTE(prefix, name, isa) prefix##name##isa
#define KV_NAMED(prefix, name, isa) KV_PASTE(prefix, name, isa)
#define KV_KERNEL(name) KV_NAMED(kv_, name##_, KV_ISA)
#define KV_RAN(ran) (*(ran) |= 1u << KV_NAMED(KV_VARIANT, _, KV_ISA))
#define KV_DECLARE(isa) KV_DECLARE_KERNELS(isa)

KV_DECLARE(KV_ISA)

#endif
