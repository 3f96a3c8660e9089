/* Bytes as a page: refused, or read without harm and by every variant to the same bits. (Not always to finite numbers:
 * a page may state maxima that no fp16 token has.) The first byte picks the spec and whether the checksum is made
 * right first. */
#include "support.h"

#define TOKENS 64
#define QUERY (QUERY_HEADS * MAX_DIM)

typedef struct result {
  float out[QUERY];
  float scores[QUERY_HEADS * TOKENS];
} result;

static void use(const kernel *with, const uint8_t *page, result *to) {
  const kv_layer_spec *spec = &with->spec;
  static uint16_t rows[MAX_PAGE * ROW_MAX], mean[ROW_MAX];
  float q[QUERY];
  const void *pages[1] = {page};
  uint64_t length = (uint64_t)spec->sinks + spec->window + spec->page_tokens;
  kv_rows fp16 = {rows, ROW_MAX, spec->head_dim};
  kv_state state = {.length = length, .pages = pages, .page_count = 1, .sink_keys = fp16, .sink_values = fp16,
                    .residual_keys = fp16, .residual_values = fp16, .key_mean = mean, .value_mean = mean};
  kv_error error;
  for (int i = 0; i < QUERY; i++) q[i] = (float)(i % 7 - 3);
  memset(to, 0, sizeof *to);
  CHECK(kv_attend(with->plan, &state, q, 1, to->out, with->scratch, with->scratch_bytes, NULL, &error) == KV_OK);
  CHECK(kv_scores(with->plan, &state, q, to->scores, QUERY_HEADS * TOKENS, with->scratch, with->scratch_bytes, NULL,
                  &error) == KV_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  reader in = {data, size};
  uint32_t pick = (uint32_t)take(&in, 1);
  const kernel *with = kernel_number(pick & 7, NULL);
  kv_page_id id = {0, 0, 0, with->spec.sinks, 0};
  kv_error error;
  size_t bytes = in.size;
  uint8_t *page = take_block(&in, bytes);
  if (pick & 8) mend(page, bytes, PAGE_CRC);
  if (pick & 16) (void)kv_page_check(with->plan, &id, page, bytes, &error);
  if (kv_page_check(with->plan, NULL, page, bytes, &error) == KV_OK) {
    CHECK(bytes == with->page_bytes);
    result best, scalar;
    use(with, page, &best);
    use(kernel_number(pick & 7, "scalar"), page, &scalar);
    CHECK(equal(best.out, scalar.out, QUERY));
    CHECK(equal(best.scores, scalar.scores, QUERY_HEADS * TOKENS));
  } else {
    CHECK(error.code == KV_E_PAGE || error.code == KV_E_IDENTITY);
    CHECK(error.message[0] != 0);
  }
  free(page);
  return 0;
}
