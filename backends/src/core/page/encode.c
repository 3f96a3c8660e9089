/* kv_page_encode: P tokens of all KV heads into the bytes of one page; kv_page_mean. */
#include "encode.h"

#include "core/base/bits.h"
#include "core/base/fail.h"
#include "core/base/fpenv.h"
#include "header.h"
#include "core/base/scale.h"
#include "core/plan/scratch.h"

/* One stream of one KV head on its way into the page. */
typedef struct source {
  const kv_plan *plan;
  uint8_t *page;
  const kv_rows *rows;
  const uint16_t *mean; /* [head_dim] of this head, NULL: none */
  uint32_t head;
  uint32_t stream;      /* KV_STREAM_KEYS or KV_STREAM_VALUES */
  kv_encoder *work;
} source;

static uint8_t *place(const source *s, uint32_t which) {
  return s->page + s->plan->layout.offset[which] + s->head * s->plan->layout.head_bytes[which];
}

/* r of section 3 for tokens [first, first + count). */
static void load(const source *s, uint32_t first, uint32_t count, float *r) {
  const uint16_t *x = s->rows->data + first * s->rows->token_stride + s->head * s->rows->head_stride;
  s->plan->kernels->widen(x, s->rows->token_stride, count, s->plan->spec.head_dim, s->mean, r, s->work->ran);
}

static void load_rotated(const source *s, uint32_t first, uint32_t count, float *y) {
  kv_transform t = kv_plan_transform(s->plan, s->stream);
  load(s, first, count, y);
  s->plan->kernels->forward(&t, y, count, s->work->ran);
}

static uint32_t block_of(const kv_plan *plan, uint32_t first) {
  uint32_t left = plan->spec.page_tokens - first;
  return left < KV_GROUP ? left : KV_GROUP;
}

static float store_scales(const source *s, const float *scales, uint32_t which, uint32_t maxima) {
  const kv_layer_spec *spec = &s->plan->spec;
  float maximum = kv_scales_write(spec->scale_kind, scales, spec->page_tokens, place(s, which));
  if (spec->scale_kind != KV_SCALE_FP16) kv_store32(place(s, maxima), kv_bits(maximum));
  return maximum;
}

/* What the codes leave over, as the signs of its projection and its norm (section 5, "+qjl"). */
static void encode_signs(const source *s, float maximum) {
  const kv_plan *plan = s->plan;
  const kv_kernels *k = plan->kernels;
  kv_encoder *w = s->work;
  const uint32_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens;
  kv_transform signs = kv_plan_transform(plan, KV_STREAM_SIGNS);
  uint8_t *tiles = place(s, KV_KEY_SIGNS);
  float unit = kv_scales_read(plan->spec.scale_kind, place(s, KV_KEY_SCALES), maximum, tokens, w->su);
  for (uint32_t j = 0; j < tokens; j++) {
    float scale = w->su[j] * unit;
    w->su[j] = scale * plan->unstore;
  }
  for (uint32_t first = 0; first < tokens; first += KV_GROUP) {
    const uint32_t count = block_of(plan, first);
    load_rotated(s, first, count, w->y);
    k->residual(&plan->key, d, w->y, w->codes + first * d, w->su + first, count, w->e, w->norms + first, w->ran);
    k->forward(&signs, w->e, count, w->ran);
    for (uint32_t i = 0; i < count * d; i++) w->signs[i] = w->e[i] >= 0;
    k->pack_keys(&plan->signs, d, w->signs, count, tiles, w->ran);
    tiles += kv_code_bytes(&plan->signs, count);
  }
  for (uint32_t j = 0; j < tokens; j++) w->norms[j] = __builtin_sqrtf(w->norms[j]) * plan->store;
  store_scales(s, w->norms, KV_KEY_NORMS, KV_NORM_MAXIMA);
}

/* Tiles and scales, and codes too, which the sign projection needs. */
static void encode_pieces(const source *s, const kv_codec *codec, int keys, int unbiased, uint8_t *tiles) {
  const kv_kernels *k = s->plan->kernels;
  kv_encoder *w = s->work;
  const uint32_t d = s->plan->spec.head_dim, tokens = s->plan->spec.page_tokens;
  for (uint32_t first = 0; first < tokens; first += KV_GROUP) {
    const uint32_t count = block_of(s->plan, first);
    load_rotated(s, first, count, w->y);
    k->quantize(codec, d, unbiased, w->y, count, w->codes + first * d, w->scales + first, w->ran);
  }
  (keys ? k->pack_keys : k->pack_values)(codec, d, w->codes, tokens, tiles, w->ran);
}

static void encode_turbo(const source *s) {
  const kv_plan *plan = s->plan;
  kv_encoder *w = s->work;
  const uint32_t tokens = plan->spec.page_tokens;
  const int keys = s->stream == KV_STREAM_KEYS;
  const kv_codec *codec = keys ? &plan->key : &plan->value;
  const int unbiased = keys && codec->family == KV_FAMILY_TURBO;
  uint8_t *tiles = place(s, keys ? KV_KEY_CODES : KV_VALUE_CODES);
  if (plan->kernels->encode && codec->family != KV_FAMILY_QJL) {
    const kv_transform t = kv_plan_transform(plan, s->stream);
    plan->kernels->encode(codec, &t, keys, unbiased, s->rows->data + s->head * s->rows->head_stride,
                          s->rows->token_stride, s->mean, tokens, tiles, w->scales, w->ran);
  } else {
    encode_pieces(s, codec, keys, unbiased, tiles);
  }
  for (uint32_t j = 0; j < tokens; j++) w->scales[j] = w->scales[j] * plan->store;
  if (!keys) {
    store_scales(s, w->scales, KV_VALUE_SCALES, KV_VALUE_MAXIMA);
    return;
  }
  float maximum = store_scales(s, w->scales, KV_KEY_SCALES, KV_KEY_MAXIMA);
  if (codec->family == KV_FAMILY_QJL) encode_signs(s, maximum);
}

static void encode_kivi_keys(const source *s) {
  const kv_plan *plan = s->plan;
  kv_encoder *w = s->work;
  const uint32_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens;
  for (uint32_t first = 0; first < tokens; first += KV_GROUP) {
    const uint64_t group = first / KV_GROUP * 2ull * d;
    load(s, first, block_of(plan, first), w->y);
    plan->kernels->affine_keys(plan->key.span[0].bits, w->y, block_of(plan, first), d, w->codes + first * d,
                               place(s, KV_KEY_STEPS) + group, place(s, KV_KEY_MINIMA) + group, w->ran);
  }
  plan->kernels->pack_keys(&plan->key, d, w->codes, tokens, place(s, KV_KEY_CODES), w->ran);
}

static void encode_kivi_values(const source *s) {
  const kv_plan *plan = s->plan;
  kv_encoder *w = s->work;
  const uint32_t d = plan->spec.head_dim, tokens = plan->spec.page_tokens;
  for (uint32_t first = 0; first < tokens; first += KV_GROUP) {
    const uint32_t count = block_of(plan, first);
    load(s, first, count, w->y);
    for (uint32_t i = 0; i < count; i++) {
      const uint64_t j = first + i;
      plan->kernels->affine_values(plan->value.span[0].bits, w->y + i * d, d, w->codes + j * d,
                                   place(s, KV_VALUE_STEPS) + 2 * j, place(s, KV_VALUE_MINIMA) + 2 * j, tokens, w->ran);
    }
  }
  plan->kernels->pack_values(&plan->value, d, w->codes, tokens, place(s, KV_VALUE_CODES), w->ran);
}

static void encode_fp16(const source *s, uint32_t which) {
  const uint64_t d = s->plan->spec.head_dim;
  for (uint64_t j = 0; j < s->plan->spec.page_tokens; j++)
    kv_copy(place(s, which) + j * d * 2,
            s->rows->data + j * s->rows->token_stride + s->head * s->rows->head_stride, d * 2);
}

static void mean_of_head(const kv_plan *plan, const kv_rows *rows, uint32_t head, uint16_t *mean, uint32_t *ran) {
  plan->kernels->mean(rows->data + head * rows->head_stride, rows->token_stride, plan->spec.page_tokens,
                      plan->spec.head_dim, mean, ran);
}

static void encode_keys(source *s) {
  uint16_t mean[KV_MAX_DIM];
  if (s->plan->spec.key_centre == KV_CENTRE_PAGE) {
    mean_of_head(s->plan, s->rows, s->head, mean, s->work->ran);
    kv_copy(place(s, KV_KEY_MEAN), mean, s->plan->spec.head_dim * sizeof *mean);
    s->mean = mean;
  }
  switch (s->plan->key.family) {
    case KV_FAMILY_FP16: encode_fp16(s, KV_KEY_CODES); break;
    case KV_FAMILY_KIVI: encode_kivi_keys(s); break;
    default: encode_turbo(s); break;
  }
}

static void encode_values(const source *s) {
  switch (s->plan->value.family) {
    case KV_FAMILY_FP16: encode_fp16(s, KV_VALUE_CODES); break;
    case KV_FAMILY_KIVI: encode_kivi_values(s); break;
    default: encode_turbo(s); break;
  }
}

static KV_NOINLINE void means(const kv_plan *plan, const kv_rows *rows, uint16_t *mean) {
  uint32_t ran = 0; /* kv_page_mean has no scratch to say it in */
  for (uint32_t h = 0; h < plan->spec.kv_heads; h++)
    mean_of_head(plan, rows, h, mean + (uint64_t)h * plan->spec.head_dim, &ran);
}

void kv_mean_valid(const kv_plan *plan, const kv_rows *rows, uint16_t *mean) {
  kv_fpenv saved = kv_fpenv_enter();
  means(plan, rows, mean);
  kv_fpenv_leave(saved);
}

static KV_NOINLINE void encode(const kv_plan *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                               const uint16_t *key_mean, const uint16_t *value_mean, uint8_t *page, kv_encoder *work) {
  const kv_layer_spec *spec = &plan->spec;
  kv_page_header header = kv_page_header_of(spec, id);
  kv_fill(page, 0, plan->layout.bytes);
  for (uint32_t h = 0; h < spec->kv_heads; h++) {
    const uint64_t head = (uint64_t)h * spec->head_dim;
    const uint16_t *frozen = spec->key_centre == KV_CENTRE_FROZEN ? key_mean + head : 0;
    source k = {plan, page, keys, frozen, h, KV_STREAM_KEYS, work};
    source v = {plan, page, values, spec->value_centre ? value_mean + head : 0, h, KV_STREAM_VALUES, work};
    encode_keys(&k);
    encode_values(&v);
  }
  kv_copy(page, &header, sizeof header);
  /* its field is still 0 */
  kv_store32(page + KV_PAGE_CRC, plan->kernels->crc32(0, page, plan->layout.bytes, work->ran));
}

void kv_encode_valid(const kv_plan *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                     const uint16_t *key_mean, const uint16_t *value_mean, void *page, void *scratch) {
  kv_encoder work = kv_scratch_encoder(plan, scratch);
  kv_fpenv saved = kv_fpenv_enter();
  encode(plan, id, keys, values, key_mean, value_mean, page, &work);
  kv_fpenv_leave(saved);
}

/* ---- with checks, for callers of the kernels alone ---- */

static int32_t check_rows(const kv_plan *plan, const char *what, const kv_rows *rows, kv_error *error) {
  const kv_layer_spec *spec = &plan->spec;
  if (!rows || !rows->data || (uintptr_t)rows->data % 2)
    return kv_fail(error, KV_E_ARGUMENT, "%s: rows must not be NULL and must be aligned to 2 bytes", what);
  for (uint32_t j = 0; j < spec->page_tokens; j++)
    for (uint32_t h = 0; h < spec->kv_heads; h++) {
      const uint16_t *x = rows->data + j * rows->token_stride + h * rows->head_stride;
      for (uint32_t c = 0; c < spec->head_dim; c++) {
        if (kv_f16_finite(x[c])) continue;
        int32_t code = kv_fail(error, KV_E_VALUE,
                               "%s: token %u, head %u, channel %u is NaN or infinite; mend the input", what, j, h, c);
        if (error) {
          error->token = j;
          error->head = (int32_t)h;
          error->channel = (int32_t)c;
        }
        return code;
      }
    }
  return KV_OK;
}

static int32_t check_mean(const kv_plan *plan, const char *what, int frozen, const uint16_t *mean, kv_error *error) {
  if (!frozen) return KV_OK;
  if (!mean || (uintptr_t)mean % 2)
    return kv_fail(error, KV_E_ARGUMENT, "%s is NULL or unaligned, but the spec centres on a frozen mean", what);
  for (uint32_t i = 0; i < (uint32_t)plan->spec.kv_heads * plan->spec.head_dim; i++)
    if (!kv_f16_finite(mean[i]))
      return kv_fail(error, KV_E_VALUE, "%s: head %u, channel %u is NaN or infinite", what, i / plan->spec.head_dim,
                     i % plan->spec.head_dim);
  return KV_OK;
}

static int32_t check_page(const kv_plan *plan, const kv_page_id *id, const void *page, uint64_t bytes,
                          kv_error *error) {
  if (!id) return kv_fail(error, KV_E_ARGUMENT, "id is NULL; a page says which tokens it holds");
  if (id->layer > 65535) return kv_fail(error, KV_E_ARGUMENT, "id: layer %u is above 65535", id->layer);
  if (!page) return kv_fail(error, KV_E_ARGUMENT, "page is NULL");
  if (bytes != plan->layout.bytes)
    return kv_fail(error, KV_E_ARGUMENT, "page has %l bytes; a page of this plan has %l (kv_plan_page_bytes)", bytes,
                   plan->layout.bytes);
  return KV_OK;
}

KV_EXPORT int32_t kv_page_mean(const void *plan, const kv_rows *rows, uint16_t *mean, kv_error *error) {
  const kv_plan *p = plan;
  int32_t code = kv_plan_check(plan, error);
  if (code) return code;
  if (!mean || (uintptr_t)mean % 2) return kv_fail(error, KV_E_ARGUMENT, "mean is NULL or not aligned to 2 bytes");
  code = check_rows(p, "rows", rows, error);
  if (code) return code;
  kv_mean_valid(p, rows, mean);
  return kv_success(error);
}

KV_EXPORT int32_t kv_page_encode(const void *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                                 const uint16_t *key_mean, const uint16_t *value_mean, void *page, uint64_t page_bytes,
                                 void *scratch, uint64_t scratch_bytes, kv_error *error) {
  const kv_plan *p = plan;
  int32_t code = kv_plan_check(plan, error);
  if (code == KV_OK) code = check_page(p, id, page, page_bytes, error);
  if (code == KV_OK) code = kv_scratch_check(p, 1, scratch, scratch_bytes, error);
  if (code == KV_OK) code = check_rows(p, "keys", keys, error);
  if (code == KV_OK) code = check_rows(p, "values", values, error);
  if (code == KV_OK) code = check_mean(p, "key_mean", p->spec.key_centre == KV_CENTRE_FROZEN, key_mean, error);
  if (code == KV_OK) code = check_mean(p, "value_mean", p->spec.value_centre == KV_CENTRE_FROZEN, value_mean, error);
  if (code) return code;
  kv_encode_valid(p, id, keys, values, key_mean, value_mean, page, scratch);
  return kv_success(error);
}
