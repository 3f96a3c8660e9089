/* Vectors to codes and scales. */
#include "retrieval.h"

#include "core/base/bits.h"
#include "core/base/fail.h"
#include "core/base/fpenv.h"
#include "core/base/sums.h"

#define STEP 16u

/* One half of the rotation: signs and Hadamard blocks of rows that lie slab by slab. */
static void half_turn(const kv_retrieval_plan *plan, const uint32_t *signs, uint32_t n, float *rows) {
  uint32_t ran = 0;
  for (uint32_t s = 0; s < plan->slabs; s++) {
    const kv_transform t = {plan->width, plan->block, 1, signs + s * plan->width, 0, 0};
    plan->kernels->forward(&t, rows + (uint64_t)s * KV_RETRIEVAL_ROWS * plan->width, n, &ran);
  }
}

/* Row r of the input, filled up with zeros, to its slabs. */
static void spread(const kv_retrieval_plan *plan, const float *x, uint32_t r, float *rows) {
  const uint32_t width = plan->width, dim = plan->spec.dim;
  for (uint32_t s = 0; s < plan->slabs; s++) {
    float *row = rows + ((uint64_t)s * KV_RETRIEVAL_ROWS + r) * width;
    const uint32_t first = s * width, have = first >= dim ? 0 : dim - first < width ? dim - first : width;
    kv_copy(row, x + first, 4ull * have);
    kv_fill(row + have, 0, 4ull * (width - have));
  }
}

void kv_retrieval_turn(const kv_retrieval_plan *plan, const float *x, uint32_t n, const kv_retrieval_work *work) {
  const uint32_t width = plan->width, channels = plan->channels;
  const uint32_t *place = kv_retrieval_table(plan, plan->place);
  for (uint32_t r = 0; r < n; r++) spread(plan, x + (uint64_t)r * plan->spec.dim, r, work->rows);
  half_turn(plan, kv_retrieval_table(plan, plan->sign1), n, work->rows);
  for (uint32_t s = 0; s < plan->slabs; s++)
    for (uint32_t r = 0; r < n; r++) {
      float *to = work->other + ((uint64_t)s * KV_RETRIEVAL_ROWS + r) * width;
      for (uint32_t c = 0; c < width; c++) to[c] = work->rows[place[s * width + c] + r * width];
    }
  half_turn(plan, kv_retrieval_table(plan, plan->sign2), n, work->other);
  for (uint32_t r = 0; r < n; r++)
    for (uint32_t s = 0; s < plan->slabs; s++)
      kv_copy(work->line + (uint64_t)r * channels + s * width,
              work->other + ((uint64_t)s * KV_RETRIEVAL_ROWS + r) * width, 4ull * width);
}

/* Codes of w by thresholds, and their centroids. */
static void quantize(const kv_retrieval_plan *plan, const float *w, const float *th, uint8_t *codes, float *centroids) {
  const int8_t *table = plan->codec.span[0].book->table;
  const uint32_t half = 1u << (plan->spec.bits - 1);
  for (uint32_t c = 0; c < plan->channels; c += STEP) {
    uint32_t m[STEP] = {0};
    for (uint32_t i = 0; i + 1 < half; i++)
      for (uint32_t k = 0; k < STEP; k++) m[k] += kv_abs(w[c + k]) >= th[i];
    for (uint32_t k = 0; k < STEP; k++) {
      const uint32_t code = w[c + k] < 0 ? half - 1 - m[k] : half + m[k];
      codes[c + k] = (uint8_t)code;
      centroids[c + k] = (float)table[code];
    }
  }
}

/* Standard deviations over that of the vector that codes are tried with; which suits best differs from vector to
 * vector. */
static const float FACTORS[] = {0.8125f, 0.875f, 0.9375f, 1, 1.0625f, 1.125f, 1.1875f, 1.25f};

/* The codes nearest in direction of those tried; the first of equals. */
static float encode_plain(const kv_retrieval_plan *plan, const float *y, float n2, float sigma, uint8_t *codes,
                          const kv_retrieval_work *work) {
  const uint32_t channels = plan->channels, thresholds = (1u << (plan->spec.bits - 1)) - 1;
  uint8_t *tried = (uint8_t *)work->other;
  float most = 0, along = 0;
  for (uint32_t f = 0; f < sizeof FACTORS / sizeof *FACTORS; f++) {
    const float unit = sigma * FACTORS[f];
    float th[7];
    for (uint32_t i = 0; i < thresholds; i++) th[i] = plan->codec.span[0].book->thresholds[i] * unit;
    quantize(plan, y, th, tried, work->towards);
    const float e = kv_d16(y, work->towards, channels);
    const float fit = e / __builtin_sqrtf(kv_d16(work->towards, work->towards, channels));
    if (!(fit > most)) continue;
    most = fit;
    along = e;
    kv_copy(codes, tried, channels);
  }
  return n2 / along;
}

/* `y` is overwritten: with y over sigma, `moved` with what is coded. */
static float encode_calibrated(const kv_retrieval_plan *plan, float *y, float sigma, uint8_t *codes, float *moved,
                               float *towards) {
  const float *shift = kv_retrieval_table(plan, plan->shift), *gain = kv_retrieval_table(plan, plan->gain);
  const float *step = kv_retrieval_table(plan, plan->step), g = 1.0f / sigma;
  for (uint32_t c = 0; c < plan->channels; c++) {
    y[c] = y[c] * g;
    const float from = y[c] - shift[c];
    moved[c] = from * gain[c];
  }
  quantize(plan, moved, plan->codec.span[0].book->thresholds, codes, towards);
  for (uint32_t c = 0; c < plan->channels; c++) {
    const float scaled = towards[c] * step[c];
    towards[c] = scaled + shift[c];
  }
  const float ratio = kv_d16(y, y, plan->channels) / kv_d16(y, towards, plan->channels);
  return ratio * sigma;
}

/* The stored scale of one rotated vector. */
static float encode_row(const kv_retrieval_plan *plan, float *y, uint8_t *codes, const kv_retrieval_work *work) {
  if (plan->shifted && !plan->scaled) {
    const float *shift = kv_retrieval_table(plan, plan->shift);
    for (uint32_t c = 0; c < plan->channels; c++) y[c] = y[c] - shift[c];
  }
  const float n2 = kv_d16(y, y, plan->channels);
  if (n2 == 0) {
    kv_fill(codes, 1 << (plan->spec.bits - 1), plan->channels);
    return 0;
  }
  const float sigma = __builtin_sqrtf(n2 * plan->inverse_channels);
  const float scale = plan->scaled ? encode_calibrated(plan, y, sigma, codes, work->rows, work->towards)
                                       : encode_plain(plan, y, n2, sigma, codes, work);
  return scale * plan->inverse_block;
}

static KV_NOINLINE void encode(const kv_retrieval_plan *plan, const float *x, uint64_t n, float *y, uint8_t *codes,
                               float *scales, const kv_retrieval_work *work) {
  const uint32_t channels = plan->channels;
  for (uint64_t i = 0; i < n; i += KV_RETRIEVAL_ROWS) {
    const uint32_t rows = n - i < KV_RETRIEVAL_ROWS ? (uint32_t)(n - i) : KV_RETRIEVAL_ROWS;
    kv_retrieval_turn(plan, x + i * plan->spec.dim, rows, work);
    if (y) kv_copy(y + i * channels, work->line, 4ull * rows * channels);
    for (uint32_t r = 0; r < rows && codes; r++)
      scales[i + r] = encode_row(plan, work->line + (uint64_t)r * channels, codes + (i + r) * channels, work);
  }
}

KV_EXPORT int32_t kv_retrieval_rotate(const void *plan, const float *x, uint64_t n, float *y, void *scratch,
                                      uint64_t scratch_bytes, kv_error *error) {
  int32_t code = kv_retrieval_check(plan, 1, scratch, scratch_bytes, error);
  if (code) return code;
  if (n && (!x || !y)) return kv_fail(error, KV_E_ARGUMENT, "retrieval: x or y is NULL");
  const kv_retrieval_work work = kv_retrieval_cut(plan, 1, scratch);
  const kv_fpenv saved = kv_fpenv_enter();
  encode(plan, x, n, y, 0, 0, &work);
  kv_fpenv_leave(saved);
  return kv_success(error);
}

KV_EXPORT int32_t kv_retrieval_encode(const void *plan, const float *x, uint64_t n, uint8_t *codes, float *scales,
                                      void *scratch, uint64_t scratch_bytes, kv_error *error) {
  int32_t code = kv_retrieval_check(plan, 1, scratch, scratch_bytes, error);
  if (code) return code;
  if (n && (!x || !codes || !scales)) return kv_fail(error, KV_E_ARGUMENT, "retrieval: x, codes or scales is NULL");
  const kv_retrieval_work work = kv_retrieval_cut(plan, 1, scratch);
  const kv_fpenv saved = kv_fpenv_enter();
  encode(plan, x, n, 0, codes, scales, &work);
  kv_fpenv_leave(saved);
  return kv_success(error);
}

/* Sixteen vectors, slab by slab: the kernel takes codes whose rows are as long as the slab. */
static void pack_block(const kv_retrieval_plan *plan, const uint8_t *codes, uint8_t *tiles, uint64_t slab_bytes,
                       uint8_t *rows) {
  uint32_t ran = 0;
  for (uint32_t s = 0; s < plan->slabs; s++, tiles += slab_bytes) {
    for (uint32_t r = 0; r < 16; r++)
      kv_copy(rows + r * plan->width, codes + (uint64_t)r * plan->channels + s * plan->width, plan->width);
    plan->kernels->pack_keys(&plan->codec, plan->width, rows, 16, tiles, &ran);
  }
}

KV_EXPORT int32_t kv_retrieval_pack(const void *memory, const uint8_t *codes, uint64_t n, uint8_t *tiles,
                                    uint64_t slab_bytes, void *scratch, uint64_t scratch_bytes, kv_error *error) {
  const kv_retrieval_plan *plan = memory;
  int32_t code = kv_retrieval_check(plan, 1, scratch, scratch_bytes, error);
  if (code) return code;
  const uint64_t block_bytes = kv_code_bytes(&plan->codec, 16);
  if (n % 16 || (n && (!codes || !tiles)) || (plan->slabs > 1 && slab_bytes < n / 16 * block_bytes))
    return kv_fail(error, KV_E_ARGUMENT, "retrieval: %l vectors are packed by sixteen into slabs of %l bytes", n,
                   n / 16 * block_bytes);
  const kv_retrieval_work work = kv_retrieval_cut(plan, 1, scratch);
  for (uint64_t i = 0; i < n / 16; i++)
    pack_block(plan, codes + i * 16 * plan->channels, tiles + i * block_bytes, slab_bytes, (uint8_t *)work.rows);
  return kv_success(error);
}
