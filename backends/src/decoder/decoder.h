/* decoder.h: what a Llama-architecture decoder needs around the cache, for WebAssembly hosts.
 *
 * Weights are read as a GGUF file stores them; no dequantized copy is made. Every function returns the same
 * float32 bits in scalar and SIMD128 modules: all of them are written for four lanes, whatever the machine has.
 * Pointers and sizes belong to the caller and are not checked here: the host checks a file before it maps it.
 * Matrices are row-major, rows outputs by columns inputs; columns is a multiple of 32. */
#ifndef KVASSAY_DECODER_H
#define KVASSAY_DECODER_H

#include <stdint.h>

#include "kvassay.h"

#define KVD_BLOCK 32u

/* Types of weights, with GGUF's numbers. */
#define KVD_F32 0u
#define KVD_Q4_1 3u
#define KVD_Q8_0 8u

/* A block of an input vector as the quantized matrices read it: value c is q[c] * scale. Fifteen bits keep it at
 * float quality, and integer sums are exact in any order. */
typedef struct kvd_activation {
  int16_t q[KVD_BLOCK];
  float scale;
  float sum; /* of the 32 values */
} kvd_activation;

/* Bytes of a matrix; 0 for a type that is not read, columns that are no multiple of 32, or a size beyond 2^53. */
KV_EXPORT double kvd_matrix_bytes(uint32_t type, double rows, double columns);
/* 1 if every scale (for F32: every weight) is finite. */
KV_EXPORT uint32_t kvd_matrix_finite(uint32_t type, const void *matrix, uint32_t rows, uint32_t columns);

/* x [tokens][n] to activations [tokens][n / 32]. */
KV_EXPORT void kvd_activate(const float *x, uint32_t tokens, uint32_t n, kvd_activation *out);
/* y [tokens][rows] = x [tokens][columns] times the transposed matrix. x is read by F32 matrices, activations by the
 * others. */
KV_EXPORT void kvd_matmul(uint32_t type, const void *matrix, uint32_t rows, uint32_t columns, const float *x,
                          const kvd_activation *activations, uint32_t tokens, float *y);
/* Row `row` of a matrix as floats. */
KV_EXPORT void kvd_embed(uint32_t type, const void *matrix, uint32_t row, uint32_t columns, float *out);

/* y [tokens][n] = x / root(mean(x^2) + eps) * weight (Zhang and Sennrich 2019). */
KV_EXPORT void kvd_rms_norm(const float *x, const float *weight, uint32_t tokens, uint32_t n, float eps, float *y);
/* Rotates channel pairs (2i, 2i+1) of x [heads][head_dim] in place; cosines and sines [head_dim / 2]. */
KV_EXPORT void kvd_rope(float *x, uint32_t heads, uint32_t head_dim, const float *cosines, const float *sines);
/* gate = gate / (1 + exp(-gate)) * up (Shazeer 2020). */
KV_EXPORT void kvd_swiglu(float *gate, const float *up, uint32_t n);
/* x += y. */
KV_EXPORT void kvd_add(float *x, const float *y, uint32_t n);

/* The pinned generator of the tiny models: n floats, uniform in [-half_width, half_width), plus offset. */
KV_EXPORT void kvd_uniform(uint64_t seed, uint32_t n, float half_width, float offset, float *out);

#endif
