/* Validation of what kv_attend and kv_scores are given, before anything is computed. */
#include "core/base/bits.h"
#include "call.h"
#include "core/base/fail.h"

static int32_t check_rows(const char *what, const kv_rows *keys, const kv_rows *values, uint64_t tokens,
                          kv_error *error) {
  if (tokens == 0) return KV_OK;
  if (!keys->data || !values->data || (uintptr_t)keys->data % 2 || (uintptr_t)values->data % 2)
    return kv_fail(error, KV_E_ARGUMENT, "state: the %s rows hold %l tokens but are NULL or not aligned to 2 bytes",
                   what, tokens);
  return KV_OK;
}

static int32_t check_pages(const kv_call *call, kv_error *error) {
  const kv_state *s = call->state;
  uint64_t described = (uint64_t)s->first_page + s->page_count;
  if (described != call->sealed)
    return kv_fail(error, KV_E_ARGUMENT, "state: first_page + page_count is %l, but %l tokens seal %l pages",
                   described, s->length, call->sealed);
  if (s->page_count && !s->pages) return kv_fail(error, KV_E_ARGUMENT, "state: pages is NULL for %u pages", s->page_count);
  for (uint32_t i = 0; i < s->page_count; i++)
    if (!s->pages[i]) return kv_fail(error, KV_E_ARGUMENT, "state: pages[%u] is NULL", i);
  if (call->sealed == 0) return KV_OK;
  if (call->plan->spec.key_centre == KV_CENTRE_FROZEN && !s->key_mean)
    return kv_fail(error, KV_E_ARGUMENT, "state: key_mean is NULL, but keys are centred on the frozen mean");
  if (call->plan->spec.value_centre == KV_CENTRE_FROZEN && !s->value_mean)
    return kv_fail(error, KV_E_ARGUMENT, "state: value_mean is NULL, but values are centred on the frozen mean");
  return KV_OK;
}

/* The first page that any query attends. Both ends of the visible range rise from query to query, so it is
 * that of the first query which sees past the sinks. */
static uint64_t first_needed(const kv_call *call) {
  const kv_layer_spec *spec = &call->plan->spec;
  uint64_t visible = call->state->length - call->n + 1;
  if (visible <= spec->sinks) visible = (uint64_t)spec->sinks + 1;
  uint64_t low = spec->span && visible > spec->span ? visible - spec->span : 0;
  uint64_t page = low > spec->sinks ? (low - spec->sinks) / spec->page_tokens : 0;
  return page < call->sealed ? page : call->sealed;
}

static int32_t check_span(const kv_call *call, kv_error *error) {
  const kv_layer_spec *spec = &call->plan->spec;
  uint64_t page = call->first_needed;
  if (page >= call->sealed || page >= call->state->first_page) return KV_OK;
  uint64_t token = spec->sinks + page * spec->page_tokens;
  int32_t code = kv_fail(error, KV_E_SPAN,
                         "a query needs token %l of page %l, but pages before %u were retired; ask fewer queries "
                         "after an append",
                         token, page, call->state->first_page);
  if (error) error->token = (int64_t)token;
  return code;
}

static int32_t check_buffers(const kv_call *call, void *scratch, uint64_t scratch_bytes, kv_error *error) {
  const kv_parallel *p = call->parallel;
  if (!call->q || !call->out || (uintptr_t)call->q % 4 || (uintptr_t)call->out % 4)
    return kv_fail(error, KV_E_ARGUMENT, "q and out must not be NULL and must be aligned to 4 bytes");
  if (p && (p->threads == 0 || (p->threads > 1 && !p->run)))
    return kv_fail(error, KV_E_ARGUMENT, "parallel: %u threads %s", p->threads,
                   p->threads ? "but run is NULL" : "; pass at least 1");
  return kv_scratch_check(call->plan, p ? p->threads : 1, scratch, scratch_bytes, error);
}

static void measure(kv_call *call) {
  const kv_plan *plan = call->plan;
  const kv_layer_spec *spec = &plan->spec;
  uint64_t length = call->state->length;
  call->rows = (uint64_t)call->n * plan->group;
  call->row_blocks = (call->rows + plan->max_rows - 1) / plan->max_rows;
  call->sealed = kv_sealed(spec, length);
  call->sinks_held = length < spec->sinks ? length : spec->sinks;
  call->recent_first = call->sinks_held + call->sealed * spec->page_tokens;
  call->recent_count = length - call->recent_first;
}

int32_t kv_call_make(kv_call *call, const void *plan, const kv_state *state, const float *q, uint32_t n, float *out,
                     void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error) {
  *call = (kv_call){.plan = plan, .state = state, .q = q, .out = out, .n = n, .parallel = parallel};
  int32_t code = kv_plan_check(plan, error);
  if (code) return code;
  if (!state) return kv_fail(error, KV_E_ARGUMENT, "state is NULL");
  if (n == 0) return kv_fail(error, KV_E_ARGUMENT, "n is 0; pass at least one query");
  if (n > state->length)
    return kv_fail(error, KV_E_STATE, "%u queries over %l tokens: append at least as many tokens first", n,
                   state->length);
  if (state->length > INT64_MAX / 2)
    return kv_fail(error, KV_E_ARGUMENT, "state: a length of %l cannot be right", state->length);
  measure(call);
  if (call->row_blocks * call->plan->spec.kv_heads > UINT32_MAX)
    return kv_fail(error, KV_E_ARGUMENT, "%u queries at once are too many; split the call", n);
  code = check_buffers(call, scratch, scratch_bytes, error);
  if (code == KV_OK) code = check_rows("sink", &state->sink_keys, &state->sink_values, call->sinks_held, error);
  if (code == KV_OK)
    code = check_rows("residual", &state->residual_keys, &state->residual_values, call->recent_count, error);
  if (code == KV_OK) code = check_pages(call, error);
  if (code) return code;
  call->first_needed = first_needed(call);
  code = check_span(call, error);
  if (code) return code;
  call->space = kv_scratch_space(call->plan, parallel ? parallel->threads : 1, scratch);
  return KV_OK;
}

int32_t kv_call_input(const kv_call *call, kv_error *error) {
  const kv_layer_spec *spec = &call->plan->spec;
  uint64_t count = (uint64_t)call->n * spec->query_heads * spec->head_dim;
  for (uint64_t i = 0; i < count; i++) {
    /* 65504 is 0x477fe000: one integer comparison refuses NaN, infinity and what is beyond. */
    if ((kv_bits(call->q[i]) & 0x7fffffffu) <= 0x477fe000u) continue;
    uint64_t row = i / spec->head_dim, head = row % spec->query_heads, channel = i % spec->head_dim;
    int32_t code = kv_fail(error, KV_E_VALUE,
                           "q: query %l, head %l, channel %l is NaN, infinite or beyond 65504; mend the input",
                           row / spec->query_heads, head, channel);
    if (error) {
      error->head = (int32_t)head;
      error->channel = (int32_t)channel;
      error->token = (int64_t)(call->state->length - call->n + row / spec->query_heads);
    }
    return code;
  }
  return KV_OK;
}
