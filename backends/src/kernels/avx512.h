/* The AVX-512 variants: F, BW, DQ and VL, and VBMI and VNNI where the compiler was told of them. Scans and sums use
 * 512 bits, the rest the 256-bit sources of AVX2. */
#ifndef KV_KERNELS_AVX512_H
#define KV_KERNELS_AVX512_H

#include "avx2.h"

#endif
