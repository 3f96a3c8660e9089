/* Drafts: mark, rollback, commit. */
#include <string.h>

#include "kvassay_share.h"
#include "cache.h"

/* ---- mark ---- */

/* Tokens of the residual that pages sealed within `tokens` more would replace. */
static uint64_t at_risk(const kv_layer_spec *spec, const kv_layer *at, uint64_t tokens) {
  uint64_t end = kv_add(at->length, tokens);
  uint64_t pages, count;
  if (end > KV_MAX_LENGTH) end = KV_MAX_LENGTH;
  pages = kv_pages_sealed(spec, end) - kv_pages_sealed(spec, at->length);
  count = pages * spec->page_tokens;
  return count < at->residual.count ? count : at->residual.count;
}

static uint64_t mark_bytes(const kv_cache *cache, uint32_t first, uint32_t end, uint64_t tokens) {
  uint64_t bytes = kv_align_up(sizeof(kv_mark) + (end - first) * sizeof(kv_marked), 64);
  for (uint32_t layer = first; layer < end; layer++) {
    const kv_layer_spec *spec = &cache->shared->specs[layer];
    bytes = kv_add(bytes, kv_store_bytes(spec, at_risk(spec, &cache->layers[layer], tokens)));
  }
  return bytes;
}

static void fill(kv_cache *cache, kv_mark *mark, uint64_t tokens) {
  uint8_t *room = (uint8_t *)mark + kv_align_up(sizeof *mark + mark->count * sizeof(kv_marked), 64);
  for (uint32_t i = 0; i < mark->count; i++) {
    uint32_t layer = mark->first + i;
    const kv_layer_spec *spec = &cache->shared->specs[layer];
    kv_layer *at = &cache->layers[layer];
    kv_store oldest = at->residual, *kept = &mark->layers[i].residual;
    oldest.count = at_risk(spec, at, tokens);
    *kept = (kv_store){(uint16_t *)room, oldest.count, 0};
    kv_store_copy(spec, kept, &oldest);
    room += kv_store_bytes(spec, oldest.count);
    mark->layers[i].length = at->length;
    mark->layers[i].retire_to = at->retire_to;
  }
}

KV_EXPORT int32_t kv_cache_mark(kv_cache *cache, uint32_t layer, uint64_t tokens, kv_error *error) {
  int32_t code = layer == KV_ALL_LAYERS ? kv_usable(cache, error) : kv_usable_layer(cache, layer, error);
  uint32_t first, end;
  uint64_t bytes;
  kv_mark *mark;
  if (code != KV_OK) return code;
  first = layer == KV_ALL_LAYERS ? 0 : layer;
  end = layer == KV_ALL_LAYERS ? cache->shared->layers : layer + 1;
  bytes = mark_bytes(cache, first, end, tokens);
  mark = kv_cache_take(cache, bytes);
  if (mark == NULL) return kv_fail(error, KV_E_MEMORY, "mark: the allocator refused %l bytes", bytes);
  *mark = (kv_mark){.below = cache->mark, .bytes = bytes, .first = first, .count = end - first};
  fill(cache, mark, tokens);
  cache->mark = mark;
  return kv_success(error);
}

KV_EXPORT uint32_t kv_cache_marks(const kv_cache *cache) {
  uint32_t count = 0;
  for (const kv_mark *mark = cache != NULL ? cache->mark : NULL; mark != NULL; mark = mark->below) count++;
  return count;
}

/* ---- forgetting one ---- */

static void drop(kv_cache *cache) {
  kv_mark *mark = cache->mark;
  cache->mark = mark->below;
  kv_cache_give_back(cache, mark, mark->bytes);
}

/* The last one to go lets go what its appends would have retired. */
static void pop(kv_cache *cache) {
  drop(cache);
  if (cache->mark != NULL) return;
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) {
    kv_layer_retire(cache, layer, cache->layers[layer].retire_to);
    cache->layers[layer].retire_to = 0;
  }
}

void kv_cache_forget_marks(kv_cache *cache) {
  while (cache->mark != NULL) drop(cache);
  for (uint32_t layer = 0; layer < cache->shared->layers; layer++) cache->layers[layer].retire_to = 0;
}

static int32_t marked(const kv_cache *cache, const char *call, kv_error *error) {
  int32_t code = kv_usable(cache, error);
  if (code == KV_OK && cache->mark == NULL) code = kv_fail(error, KV_E_STATE, "%s: no mark; make one first", call);
  return code;
}

KV_EXPORT int32_t kv_cache_commit(kv_cache *cache, kv_error *error) {
  int32_t code = marked(cache, "commit", error);
  if (code != KV_OK) return code;
  pop(cache);
  return kv_success(error);
}

/* ---- rollback ---- */

/* Where the fp16 tokens of a layer at length `to` come from: those of the mark, then those still in the residual. */
typedef struct source {
  uint64_t to;       /* the length */
  uint64_t sealed;   /* pages at that length */
  uint64_t start;    /* first residual token at that length */
  uint64_t present;  /* first token of the residual as it is now */
  uint64_t kept;     /* first token of the mark's copy */
  uint64_t kept_end;
} source;

static source source_of(const kv_cache *cache, uint32_t i, uint64_t keep) {
  const kv_marked *from = &cache->mark->layers[i];
  uint32_t layer = cache->mark->first + i;
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  source at = {.to = from->length + keep};
  at.sealed = kv_pages_sealed(spec, at.to);
  at.start = spec->sinks + at.sealed * spec->page_tokens;
  at.present = spec->sinks + kv_pages_sealed(spec, cache->layers[layer].length) * spec->page_tokens;
  at.kept = spec->sinks + kv_pages_sealed(spec, from->length) * spec->page_tokens;
  at.kept_end = at.kept + from->residual.count;
  return at;
}

static int exact(const source *at) {
  uint64_t missing = at->to < at->present ? at->to : at->present; /* end of the tokens that only the mark has */
  return at->start >= missing || (at->kept <= at->start && missing <= at->kept_end);
}

/* The first layer that cannot keep so many, or the count of layers. */
static uint32_t obstacle(const kv_cache *cache, uint64_t keep) {
  uint32_t i = 0;
  for (; i < cache->mark->count; i++) {
    source at = source_of(cache, i, keep);
    if (!exact(&at)) break;
  }
  return i;
}

static uint64_t most_kept(const kv_cache *cache) {
  uint64_t most = UINT64_MAX;
  for (uint32_t i = 0; i < cache->mark->count; i++) {
    uint64_t more = cache->layers[cache->mark->first + i].length - cache->mark->layers[i].length;
    if (more < most) most = more;
  }
  return most;
}

static int32_t refuse(const kv_cache *cache, uint64_t keep, uint64_t most, kv_error *error) {
  uint32_t layer = cache->mark->first + obstacle(cache, keep);
  uint64_t below = keep, above = keep;
  while (below > 0 && obstacle(cache, below) < cache->mark->count) below--;
  while (above <= most && obstacle(cache, above) < cache->mark->count) above++;
  if (above <= most)
    kv_fail(error, KV_E_TRUNCATE, "rollback: to keep %l tokens layer %u needs fp16 tokens that exist only as codes; "
            "nearest allowed lengths: %l, %l", keep, layer, below, above);
  else
    kv_fail(error, KV_E_TRUNCATE, "rollback: to keep %l tokens layer %u needs fp16 tokens that exist only as codes; "
            "nearest allowed lengths: %l", keep, layer, below);
  return kv_at_layer(KV_E_TRUNCATE, layer, error);
}

/* Room for the residual of one layer, where its store is too small. */
static int32_t reserve(kv_cache *cache, uint32_t i, uint64_t keep, kv_error *error) {
  uint32_t layer = cache->mark->first + i;
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  source from = source_of(cache, i, keep);
  uint64_t needed = from.to > from.start ? from.to - from.start : 0;
  kv_store larger = {NULL, 0, 0};
  int32_t code;
  if (needed <= at->residual.capacity) return KV_OK;
  code = kv_store_take(cache, spec, needed, &larger, error);
  if (code != KV_OK) return kv_at_layer(code, layer, error);
  kv_store_copy(spec, &larger, &at->residual);
  kv_store_give_back(cache, spec, &at->residual);
  at->residual = larger;
  return KV_OK;
}

static void restore_layer(kv_cache *cache, uint32_t i, uint64_t keep) {
  const kv_marked *mark = &cache->mark->layers[i];
  uint32_t layer = cache->mark->first + i;
  const kv_layer_spec *spec = &cache->shared->specs[layer];
  kv_layer *at = &cache->layers[layer];
  source from = source_of(cache, i, keep);
  uint64_t lost = from.present < from.to ? from.present : from.to; /* end of what the mark gives back */
  kv_layer_keep_pages(cache, layer, from.sealed);
  if (from.to < at->sinks.count) at->sinks.count = from.to;
  at->residual.count = from.to > from.present ? from.to - from.present : 0;
  if (lost > from.start)
    kv_store_put_before(spec, &at->residual, &mark->residual, from.start - from.kept, lost - from.start);
  at->length = from.to;
  at->retire_to = mark->retire_to;
}

KV_EXPORT int32_t kv_cache_rollback(kv_cache *cache, uint64_t keep, kv_error *error) {
  int32_t code = marked(cache, "rollback", error);
  uint64_t most;
  if (code != KV_OK) return code;
  most = most_kept(cache);
  if (keep > most)
    return kv_fail(error, KV_E_STATE, "rollback: to keep %l tokens, but only %l came since the mark", keep, most);
  if (obstacle(cache, keep) < cache->mark->count) return refuse(cache, keep, most, error);
  for (uint32_t i = 0; i < cache->mark->count; i++) {
    code = reserve(cache, i, keep, error);
    if (code != KV_OK) return code;
  }
  for (uint32_t i = 0; i < cache->mark->count; i++) restore_layer(cache, i, keep);
  pop(cache);
  return kv_success(error);
}
