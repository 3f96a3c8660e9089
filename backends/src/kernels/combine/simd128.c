/* The float steps between the integer sums and the softmax, and after them. */
#include "kernels/simd128.h"

#define SPLAT wasm_f32x4_splat
#define ADD wasm_f32x4_add
#define MUL wasm_f32x4_mul

/* `left` is 4 where the compiler can see it, so that loops have no tails inside. */
#define EACH_FOUR(i, n, ...)                   \
  uint32_t i = 0;                              \
  for (; i + 4 <= (n); i += 4) {               \
    const uint32_t left = 4;                   \
    __VA_ARGS__                                \
  }                                            \
  if (i < (n)) {                               \
    const uint32_t left = (n) - i;             \
    __VA_ARGS__                                \
  }

void KV_KERNEL(logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  const v128_t f = SPLAT(factor);
  KV_RAN(ran);
  EACH_FOUR(j, n, {
    const v128_t scaled = MUL(kv_load4i(sum + j, left), kv_load4(su + j, left));
    kv_store4(t + j, left, MUL(scaled, f));
  })
}

void KV_KERNEL(add_logits)(const int32_t *sum, const float *su, uint32_t n, float factor, float *t, uint32_t *ran) {
  const v128_t f = SPLAT(factor);
  KV_RAN(ran);
  EACH_FOUR(j, n, {
    const v128_t scaled = MUL(kv_load4i(sum + j, left), kv_load4(su + j, left));
    kv_store4(t + j, left, ADD(kv_load4(t + j, left), MUL(scaled, f)));
  })
}

void KV_KERNEL(affine_logits)(const int32_t *sum, uint32_t n, float scale, float bias, float *t, uint32_t *ran) {
  const v128_t s = SPLAT(scale), b = SPLAT(bias);
  KV_RAN(ran);
  EACH_FOUR(j, n, kv_store4(t + j, left, ADD(MUL(kv_load4i(sum + j, left), s), b));)
}

void KV_KERNEL(shift)(float *t, uint32_t n, float bias, uint32_t *ran) {
  const v128_t b = SPLAT(bias);
  KV_RAN(ran);
  EACH_FOUR(j, n, kv_store4(t + j, left, ADD(kv_load4(t + j, left), b));)
}

float KV_KERNEL(weigh)(const float *p, const float *scale, uint32_t n, int16_t *iw, uint32_t *ran) {
  v128_t most = wasm_i64x2_const_splat(0);
  KV_RAN(ran);
  EACH_FOUR(j, n, most = kv_larger(most, MUL(kv_load4(p + j, left), kv_load4(scale + j, left)));)
  const float largest = kv_largest4(most);
  if (largest < 0x1p-60f) {
    kv_fill(iw, 0, n * sizeof *iw);
    return largest;
  }
  const float gain = 16383.0f / largest;
  for (j = 0; j + 8 <= n; j += 8) {
    const v128_t a = MUL(KV_LOAD(p + j), KV_LOAD(scale + j)); /* cheaper again than kept */
    const v128_t b = MUL(KV_LOAD(p + j + 4), KV_LOAD(scale + j + 4));
    KV_STORE(iw + j, kv_words(kv_integers(MUL(a, SPLAT(gain))), kv_integers(MUL(b, SPLAT(gain)))));
  }
  for (; j < n; j++) {
    const float w = p[j] * scale[j];
    iw[j] = (int16_t)kv_rne(w * gain);
  }
  return largest;
}

void KV_KERNEL(blend)(float *acc, const int32_t *sum, uint32_t n, float al, float f, uint32_t *ran) {
  const v128_t a = SPLAT(al), b = SPLAT(f);
  KV_RAN(ran);
  EACH_FOUR(c, n, {
    const v128_t kept = MUL(kv_load4(acc + c, left), a);
    kv_store4(acc + c, left, ADD(kept, MUL(kv_load4i(sum + c, left), b)));
  })
}

void KV_KERNEL(blend_affine)(float *acc, const int32_t *sum, uint32_t n, float al, float scale, float offset, float be,
                             uint32_t *ran) {
  const v128_t a = SPLAT(al), s = SPLAT(scale), o = SPLAT(offset), b = SPLAT(be);
  KV_RAN(ran);
  EACH_FOUR(c, n, {
    const v128_t x = ADD(MUL(kv_load4i(sum + c, left), s), o);
    kv_store4(acc + c, left, ADD(MUL(kv_load4(acc + c, left), a), MUL(x, b)));
  })
}

void KV_KERNEL(blend_rows)(float *acc, const float *x, uint32_t n, float al, float be, uint32_t *ran) {
  const v128_t a = SPLAT(al), b = SPLAT(be);
  KV_RAN(ran);
  EACH_FOUR(c, n, kv_store4(acc + c, left, ADD(MUL(kv_load4(acc + c, left), a), MUL(kv_load4(x + c, left), b)));)
}
