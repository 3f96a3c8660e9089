/* The block that a cache shares with its forks: made once, immutable, released by the last holder. */
#include "cache.h"

#include <string.h>

static int equal_specs(const kv_layer_spec *a, const kv_layer_spec *b) { return memcmp(a, b, sizeof *a) == 0; }

/* The first layer with the same spec; that layer's plan serves all of them. */
static uint32_t plan_layer(const kv_layer_spec *specs, uint32_t layer) {
  uint32_t first = 0;
  while (!equal_specs(&specs[first], &specs[layer])) first++;
  return first;
}

static int32_t check_config(const kv_cache_config *config, kv_error *error) {
  if (config == NULL || config->specs == NULL) return kv_fail(error, KV_E_ARGUMENT, "config or its specs are NULL");
  if (config->layers == 0 || config->layers > KV_MAX_LAYERS)
    return kv_fail(error, KV_E_ARGUMENT, "layers: %u is outside 1 .. %u", config->layers, KV_MAX_LAYERS);
  if (config->threads == 0 || config->threads > KV_MAX_THREADS)
    return kv_fail(error, KV_E_ARGUMENT, "threads: %u is outside 1 .. %u; any of these gives the same bits", config->threads,
                   KV_MAX_THREADS);
  if (config->threads > 1 && !kv_pool_available())
    return kv_fail(error, KV_E_ARGUMENT, "threads: %u, but this build has none; use 1", config->threads);
  if (config->identity_bytes > UINT32_MAX || (config->identity == NULL && config->identity_bytes != 0))
    return kv_fail(error, KV_E_ARGUMENT, "identity: no text, or %l bytes, more than a dump can hold",
                     config->identity_bytes);
  if (config->allocator != NULL && (config->allocator->allocate == NULL || config->allocator->release == NULL))
    return kv_fail(error, KV_E_ARGUMENT, "allocator: a function is NULL");
  return KV_OK;
}

/* Offsets of the parts of the block; with block NULL only its size comes out. */
typedef struct layout {
  uint64_t specs, plans, identity, first_plan, bytes;
} layout;

static uint64_t place(uint64_t *end, uint64_t bytes) {
  uint64_t offset = kv_align_up(*end, 64);
  *end = kv_add(offset, bytes);
  return offset;
}

static int32_t plan_layout(const kv_cache_config *config, layout *out, kv_error *error) {
  uint64_t end = sizeof(kv_shared);
  out->specs = place(&end, kv_mul(config->layers, sizeof(kv_layer_spec)));
  out->plans = place(&end, kv_mul(config->layers, sizeof(void *)));
  out->identity = place(&end, config->identity_bytes);
  out->first_plan = kv_align_up(end, 64);
  for (uint32_t layer = 0; layer < config->layers; layer++) {
    uint64_t bytes = 0;
    int32_t code;
    if (plan_layer(config->specs, layer) != layer) continue;
    code = kv_supports(&config->specs[layer], error);
    if (code == KV_OK) code = kv_plan_bytes(&config->specs[layer], &bytes, error);
    if (code != KV_OK) return kv_at_layer(code, layer, error);
    place(&end, bytes);
  }
  out->bytes = end;
  return KV_OK;
}

static int32_t init_plans(kv_shared *shared, const kv_cache_config *config, uint64_t end, kv_error *error) {
  for (uint32_t layer = 0; layer < shared->layers; layer++) {
    uint32_t first = plan_layer(shared->specs, layer);
    uint64_t bytes = 0, scratch;
    void *plan;
    int32_t code;
    if (first != layer) {
      shared->plans[layer] = shared->plans[first];
      continue;
    }
    code = kv_plan_bytes(&shared->specs[layer], &bytes, error);
    plan = (uint8_t *)shared + place(&end, bytes);
    if (code == KV_OK) code = kv_plan_init(&shared->specs[layer], config->variant, plan, bytes, error);
    if (code != KV_OK) return kv_at_layer(code, layer, error);
    shared->plans[layer] = plan;
    scratch = kv_plan_scratch_bytes(plan, shared->threads);
    if (scratch > shared->scratch_bytes) shared->scratch_bytes = scratch;
  }
  return KV_OK;
}

static void fill(kv_shared *shared, const kv_cache_config *config, const layout *at, const kv_allocator *allocator) {
  uint8_t *base = (uint8_t *)shared;
  memset(shared, 0, sizeof *shared);
  atomic_init(&shared->holders, 1);
  shared->layers = config->layers;
  shared->threads = config->threads;
  shared->allocator = *allocator;
  shared->id = (kv_page_id){.model = config->model, .tokenizer = config->tokenizer, .runtime = config->runtime};
  shared->bytes = at->bytes;
  shared->identity_bytes = config->identity_bytes;
  shared->identity = base + at->identity;
  shared->specs = (kv_layer_spec *)(base + at->specs);
  shared->plans = (void **)(base + at->plans);
  memcpy(shared->specs, config->specs, config->layers * sizeof(kv_layer_spec));
  if (config->identity_bytes != 0) memcpy(shared->identity, config->identity, config->identity_bytes);
}

int32_t kv_shared_create(const kv_cache_config *config, kv_shared **shared, kv_error *error) {
  const kv_allocator *allocator;
  layout at = {0};
  int32_t code = check_config(config, error);
  if (code == KV_OK) code = plan_layout(config, &at, error);
  if (code != KV_OK) return code;
  allocator = config->allocator != NULL ? config->allocator : &kv_default_allocator;
  *shared = kv_take(allocator, at.bytes);
  if (*shared == NULL)
    return kv_fail(error, KV_E_MEMORY, "create: the allocator refused %l bytes for specs and plans",
                     at.bytes);
  fill(*shared, config, &at, allocator);
  code = init_plans(*shared, config, at.first_plan, error);
  if (code != KV_OK) kv_shared_release(*shared);
  return code;
}

void kv_shared_hold(kv_shared *shared) { atomic_fetch_add_explicit(&shared->holders, 1, memory_order_relaxed); }

void kv_shared_release(kv_shared *shared) {
  kv_allocator allocator = shared->allocator;
  if (atomic_fetch_sub_explicit(&shared->holders, 1, memory_order_acq_rel) == 1)
    allocator.release(allocator.context, shared, shared->bytes);
}
