/* Pages lie apart, and what fetches ahead by itself stops at the end of each stream, so the next page is asked for
 * while one is worked on. Some after each step: asked for at once, lines wait for each other, and everything else for them.
 * Into the second-level cache: the first holds what is worked on. */
#include "core/base/bits.h"
#include "call.h"

void kv_ahead_begin(const kv_call *call, const kv_job *job, uint32_t streams, uint32_t steps, kv_ahead *a) {
  const kv_layout *layout = &call->plan->layout;
  uint64_t all = 0;
#ifdef __wasm__
  streams = 0; /* it has no such request */
#endif
  a->count = 0;
  for (uint32_t which = 0; which < KV_STREAMS; which++) {
    const uint64_t bytes = layout->head_bytes[which];
    if (!bytes || !(streams >> which & 1)) continue;
    a->first[a->count] = layout->offset[which] + job->head * bytes;
    a->end[a->count++] = layout->offset[which] + (job->head + 1) * bytes;
    all += bytes;
  }
  a->bytes = kv_round_up(all / steps + 1, 64);
}

void kv_ahead_page(const kv_call *call, uint64_t page, kv_ahead *a) {
  a->next = page >= call->first_needed && page < call->sealed ? 0 : a->count;
  if (a->next == a->count) return;
  a->page = kv_call_page(call, page);
  a->at = a->first[0];
}

void kv_ahead_ask(kv_ahead *a) {
  for (uint64_t left = a->bytes; a->next < a->count;) {
    const uint64_t end = a->end[a->next], stop = a->at + left < end ? a->at + left : end;
#pragma GCC unroll 8
    for (uint64_t i = a->at; i < stop; i += 64) __builtin_prefetch(a->page + i, 0, 2);
    left -= stop - a->at;
    a->at = stop;
    if (stop < end) return;
    if (++a->next < a->count) a->at = a->first[a->next];
  }
}
