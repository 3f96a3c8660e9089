/* Scales of the tokens of a page and KV head, stored by kind (numeric contract, section 5, step 4). */
#ifndef KV_SCALE_H
#define KV_SCALE_H

#include <stdint.h>

/* Stores n scales; the result is the maximum to store (unused for fp16). */
float kv_scales_write(uint32_t kind, const float *scales, uint32_t n, uint8_t *stored);

/* Reads su [n] back; the result is `unit`, so that a scale is su * unit. */
float kv_scales_read(uint32_t kind, const uint8_t *stored, float maximum, uint32_t n, float *su);

#endif
