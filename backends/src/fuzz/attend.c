/* A state whose counts may lie, and queries made of any bits: refused, or computed from exactly the tokens that the
 * counts stand for. Every array has the size that a truthful state of that length needs, and not a byte more. */
#include "support.h"

static const void *sealed_page(const kernel *with) {
  static const void *made[SPECS];
  const void **at = &made[with->spec.seed % SPECS];
  size_t width = (size_t)with->spec.kv_heads * with->spec.head_dim;
  uint16_t *rows;
  uint8_t *page;
  kv_rows tokens;
  kv_page_id id = {0};
  kv_error error;
  if (*at != NULL) return *at;
  rows = calloc(width * with->spec.page_tokens, 2);
  page = aligned(with->page_bytes);
  CHECK(rows != NULL);
  for (size_t i = 0; i < width * with->spec.page_tokens; i++) rows[i] = (uint16_t)(i * 2654435761u >> 8 & 0xbfff);
  tokens = (kv_rows){rows, width, with->spec.head_dim};
  CHECK(kv_page_encode(with->plan, &id, &tokens, &tokens, rows, rows, page, with->page_bytes, with->scratch,
                       with->scratch_bytes, &error) == KV_OK);
  free(rows);
  return *at = page;
}

static uint64_t sealed(const kv_layer_spec *spec, uint64_t length) {
  uint64_t kept = (uint64_t)spec->sinks + spec->window;
  return length <= kept ? 0 : (length - kept) / spec->page_tokens;
}

static kv_rows fp16_rows(const kv_layer_spec *spec, uint64_t tokens, uint16_t **owned) {
  uint64_t width = (uint64_t)spec->kv_heads * spec->head_dim;
  *owned = calloc(tokens != 0 ? tokens * width : 1, 2);
  CHECK(*owned != NULL);
  return (kv_rows){*owned, width, spec->head_dim};
}

static void call(const kernel *with, const kv_state *state, reader *in, uint32_t n, uint64_t out_floats) {
  size_t row = (size_t)with->spec.query_heads * with->spec.head_dim;
  float *q = take_block(in, 4 * row * (n != 0 ? n : 1)), *out = malloc(4 * row * n + 4);
  float *scores = malloc(4 * out_floats + 4);
  kv_error error;
  int32_t code = kv_attend(with->plan, state, q, n, out, with->scratch, with->scratch_bytes, NULL, &error);
  CHECK(code == KV_OK || error.message[0] != 0);
  if (code == KV_OK) CHECK(finite(out, row * n));
  code = kv_scores(with->plan, state, q, scores, out_floats, with->scratch, with->scratch_bytes, NULL, &error);
  if (code == KV_OK) CHECK(out_floats >= with->spec.query_heads * state->length);
  free(q);
  free(out);
  free(scores);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  reader in = {data, size};
  const kernel *with = kernel_number((uint32_t)take(&in, 1), NULL);
  const kv_layer_spec *spec = &with->spec;
  uint32_t lies = (uint32_t)take(&in, 1), n = (uint32_t)take(&in, 1) % 5;
  uint64_t length = take(&in, 2) % 400, pages = sealed(spec, length);
  uint64_t sinks = length < spec->sinks ? length : spec->sinks;
  uint64_t residual = length - sinks - pages * spec->page_tokens;
  const void **index = calloc(pages != 0 ? pages : 1, sizeof *index);
  uint16_t *owned[4], mean[ROW_MAX] = {0};
  kv_state state = {.length = length, .pages = index, .page_count = (uint32_t)pages, .key_mean = mean,
                    .value_mean = mean};
  uint64_t out_floats = spec->query_heads * length;
  CHECK(index != NULL);
  for (uint64_t i = 0; i < pages; i++) index[i] = sealed_page(with);
  state.sink_keys = fp16_rows(spec, sinks, &owned[0]);
  state.sink_values = fp16_rows(spec, sinks, &owned[1]);
  state.residual_keys = fp16_rows(spec, residual, &owned[2]);
  state.residual_values = fp16_rows(spec, residual, &owned[3]);
  /* One of the three at a time: together they could tell of a larger state, and tell it rightly. */
  switch (lies & 3) {
    case 1: state.page_count = (uint32_t)take(&in, 4); break;
    case 2: state.first_page = (uint32_t)take(&in, 4); break;
    case 3: state.length = take(&in, 8); break; /* which pages betray, and only they: rows have no count */
    default: break;
  }
  if (sealed(spec, state.length) == pages) state.length = length;
  if (lies & 8 && pages > 0) index[take(&in, 1) % pages] = NULL;
  if (lies & 16) state.key_mean = state.value_mean = NULL;
  if (lies & 32) state.residual_keys.data = NULL;
  if (lies & 64) out_floats = take(&in, 1);
  /* An index that starts later needs its pages from there on; what was retired may be refused, never read. */
  if (lies & 128 && (lies & 3) == 0 && pages > 0) {
    state.first_page = (uint32_t)(take(&in, 1) % (pages + 1));
    state.page_count = (uint32_t)(pages - state.first_page);
  }
  call(with, &state, &in, n, out_floats);
  for (int i = 0; i < 4; i++) free(owned[i]);
  free(index);
  return 0;
}
