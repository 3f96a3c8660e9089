/* kvassay.h: C interface of a KV-cache backend, version 1.
 *
 * Two layers. The pure kernels own no state: a plan (tables made from a spec) and all working memory
 * belong to the caller, a page is bytes. The cache on top of them is one sequence with its life cycle
 * (docs/lifecycle.md). Every function that can fail returns KV_OK or another KV_ code and, where `error` is
 * not NULL, fills it. Nothing is changed by a call that fails. fp16 data is uint16_t, IEEE binary16.
 *
 * Version 1 is frozen: functions and struct fields are only ever added, at the end, under a new version.
 * Between the BEGIN and END marks there are only declarations and integer #defines, so that foreign-function
 * interfaces can read the text as it is.
 */
#ifndef KVASSAY_H
#define KVASSAY_H

#include <stdint.h>

/* clang heeds visibility for Windows too, and there refuses dllexport where the declaration below did not have it. */
#if defined(_WIN32) && !defined(__clang__)
#define KV_EXPORT __declspec(dllexport)
#else
#define KV_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* BEGIN declarations */

#define KV_ABI_VERSION 1
#define KV_CONTRACT_VERSION 1
#define KV_PAGE_VERSION 2
#define KV_DUMP_VERSION 1

#define KV_OK 0
#define KV_E_ARGUMENT 1   /* a pointer, count or size that cannot be right */
#define KV_E_SPEC 2       /* a spec this library does not execute */
#define KV_E_VARIANT 3    /* no such variant, or it cannot run on this CPU */
#define KV_E_VALUE 4      /* NaN, infinity or a magnitude beyond fp16: layer, token, head, channel are set */
#define KV_E_MEMORY 5     /* the allocator returned NULL, or a buffer is too small */
#define KV_E_PAGE 6       /* page or dump bytes that are damaged */
#define KV_E_IDENTITY 7   /* sound bytes that belong to another cache: the message names the field */
#define KV_E_TRUNCATE 8   /* needs fp16 data that exists only as codes: the message ends with
                             "nearest allowed lengths: " and one or two numbers */
#define KV_E_SPAN 9       /* needs a page that was retired */
#define KV_E_STATE 10     /* not possible in this state (attend on an empty cache, n beyond the length) */

#define KV_MODE_FP16 0
#define KV_MODE_TURBO 16      /* + 2 * bits: 0x14 .. 0x18 */
#define KV_MODE_TURBO_QJL 32  /* + 2 * bits, keys only */
#define KV_MODE_KIVI 48       /* + 2 * bits: 0x34, 0x36, 0x38 */

#define KV_CENTRE_NONE 0
#define KV_CENTRE_FROZEN 1
#define KV_CENTRE_PAGE 2  /* keys only */

#define KV_SCALE_U8 0
#define KV_SCALE_U8LOG 1
#define KV_SCALE_FP16 2

#define KV_FLAG_EXACT 1  /* promises the numeric contract bit for bit */
#define KV_FLAG_CACHE 2  /* offers the kv_cache functions, not only the pure kernels */

typedef struct kv_error {
  int32_t code;
  int32_t layer;   /* -1 where it does not apply, likewise below */
  int32_t head;
  int32_t channel;
  int64_t token;
  char message[232];
} kv_error;

typedef struct kv_info {
  uint32_t abi_version;
  uint32_t contract_version;
  uint32_t page_version;
  uint32_t dump_version;
  uint32_t flags;
  uint32_t variant_count;
  const char *name;
  const char *build_id;  /* digest of the sources and flags it was built from */
} kv_info;

/* One layer's spec; 40 bytes. */
typedef struct kv_layer_spec {
  uint16_t kv_heads;
  uint16_t query_heads;
  uint16_t head_dim;
  uint16_t page_tokens;
  uint8_t key_mode;
  uint8_t value_mode;
  uint8_t key_centre;
  uint8_t value_centre;
  uint8_t scale_kind;
  uint8_t rounds;
  uint16_t reserved;     /* 0 */
  uint32_t window;
  uint32_t sinks;
  uint32_t span;         /* 0: none */
  float softmax_scale;
  uint64_t seed;
} kv_layer_spec;

/* What a page says of itself beyond the spec. */
typedef struct kv_page_id {
  uint64_t model;
  uint64_t tokenizer;
  uint64_t runtime;
  uint32_t token_start;
  uint32_t layer;
} kv_page_id;

/* fp16 rows: element (token, head, channel) is data[token * token_stride + head * head_stride + channel]. */
typedef struct kv_rows {
  const uint16_t *data;
  uint64_t token_stride;
  uint64_t head_stride;
} kv_rows;

/* The stored state of one layer, as the pure kernels read it. */
typedef struct kv_state {
  uint64_t length;            /* tokens appended, retired ones included */
  const void *const *pages;   /* page_count pointers to sealed pages in order */
  uint32_t first_page;        /* number of pages[0]: pages retired before it */
  uint32_t page_count;
  kv_rows sink_keys;          /* min(length, sinks) tokens */
  kv_rows sink_values;
  kv_rows residual_keys;      /* all tokens after the last sealed page */
  kv_rows residual_values;
  const uint16_t *key_mean;   /* frozen means [kv_heads][head_dim]; NULL before the first seal or if not used */
  const uint16_t *value_mean;
} kv_state;

/* Caller's threads. run() calls task(arg, index, worker) once for each index < tasks, worker < threads naming
 * the one that runs it, and returns when all are done. NULL instead of a kv_parallel: one thread, none made. */
typedef struct kv_parallel {
  void *context;
  uint32_t threads;
  uint32_t reserved;
  void (*run)(void *context, uint32_t tasks, void (*task)(void *arg, uint32_t index, uint32_t worker), void *arg);
} kv_parallel;

/* ---- pure kernels ---- */

const kv_info *kv_get_info(void);
const char *kv_variant_name(uint32_t variant);                 /* NULL beyond variant_count */
int32_t kv_variant_runs(uint32_t variant, kv_error *error);    /* KV_OK, or KV_E_VARIANT with the reason */
int32_t kv_supports(const kv_layer_spec *spec, kv_error *error);

/* A plan: bytes made from a spec, position-independent within the process, read-only afterwards.
 * variant NULL takes the best that runs. plan must be aligned to 64. */
int32_t kv_plan_bytes(const kv_layer_spec *spec, uint64_t *bytes, kv_error *error);
int32_t kv_plan_init(const kv_layer_spec *spec, const char *variant, void *plan, uint64_t bytes, kv_error *error);
uint32_t kv_plan_variant(const void *plan);
uint64_t kv_plan_page_bytes(const void *plan);
uint64_t kv_plan_scratch_bytes(const void *plan, uint32_t threads);  /* for any call below, any length */

/* The kernels add 1 << variant to this when they run: proof of which variant executed with this scratch. */
uint32_t kv_scratch_ran(const void *scratch);
void kv_scratch_init(void *scratch, uint64_t bytes);  /* once, before first use; aligned to 64 */

/* Mean of page_tokens rows, [kv_heads][head_dim] (numeric contract, section 3). */
int32_t kv_page_mean(const void *plan, const kv_rows *rows, uint16_t *mean, kv_error *error);
int32_t kv_page_encode(const void *plan, const kv_page_id *id, const kv_rows *keys, const kv_rows *values,
                       const uint16_t *key_mean, const uint16_t *value_mean, void *page, uint64_t page_bytes,
                       void *scratch, uint64_t scratch_bytes, kv_error *error);
/* Everything docs/page-format.md asks of a reader. id NULL: hashes, layer and token start are not compared. */
int32_t kv_page_check(const void *plan, const kv_page_id *id, const void *page, uint64_t bytes, kv_error *error);

/* q [n][query_heads][head_dim], out alike; causal over the last n tokens. */
int32_t kv_attend(const void *plan, const kv_state *state, const float *q, uint32_t n, float *out,
                  void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error);
/* q [query_heads][head_dim], out [query_heads][length]. */
int32_t kv_scores(const void *plan, const kv_state *state, const float *q, float *out, uint64_t out_floats,
                  void *scratch, uint64_t scratch_bytes, const kv_parallel *parallel, kv_error *error);

/* ---- cache ---- */

typedef struct kv_cache kv_cache;

/* Forks share it: where they are used by different threads it is called from all of them. */
typedef struct kv_allocator {
  void *context;
  void *(*allocate)(void *context, uint64_t bytes);  /* aligned to 64, NULL if it cannot */
  void (*release)(void *context, void *pointer, uint64_t bytes);
} kv_allocator;

typedef struct kv_cache_config {
  uint32_t layers;
  uint32_t threads;               /* at least 1 */
  const kv_layer_spec *specs;     /* one a layer */
  const char *variant;            /* NULL: the best that runs */
  const uint8_t *identity;        /* text kept in dumps and compared on restore */
  uint64_t identity_bytes;
  uint64_t model;                 /* hashes for page headers */
  uint64_t tokenizer;
  uint64_t runtime;
  const kv_allocator *allocator;  /* NULL: the C library's; copied */
} kv_cache_config;

/* Bytes by part (docs/lifecycle.md); their sum is `allocated`. */
typedef struct kv_stats {
  uint64_t codes;
  uint64_t scales;
  uint64_t means;
  uint64_t headers;
  uint64_t residual;
  uint64_t sinks;
  uint64_t scratch;
  uint64_t staging;
  uint64_t reserved;
  uint64_t allocated;       /* asked of the allocator and not yet released, shared pages included */
  uint64_t peak_allocated;
  uint64_t allocations;
  uint64_t pages_encoded;
  uint64_t pages_scanned;   /* page and KV head pairs read by attend and scores */
  uint32_t variant;
  uint32_t ran;             /* 1 << variant for each variant whose kernels executed */
} kv_stats;

int32_t kv_cache_create(const kv_cache_config *config, kv_cache **cache, kv_error *error);
void kv_cache_destroy(kv_cache *cache);
int32_t kv_cache_append(kv_cache *cache, uint32_t layer, const float *keys, const float *values, uint64_t tokens,
                        kv_error *error);  /* both [tokens][kv_heads][head_dim] */
int32_t kv_cache_attend(kv_cache *cache, uint32_t layer, const float *q, uint32_t n, float *out, kv_error *error);
int32_t kv_cache_scores(kv_cache *cache, uint32_t layer, const float *q, float *out, uint64_t out_floats,
                        kv_error *error);
uint64_t kv_cache_length(const kv_cache *cache, uint32_t layer);
uint32_t kv_cache_page_count(const kv_cache *cache, uint32_t layer);  /* live pages */
int32_t kv_cache_page(const kv_cache *cache, uint32_t layer, uint32_t index, const void **page, uint64_t *bytes,
                      kv_error *error);
int32_t kv_cache_truncate(kv_cache *cache, uint64_t length, kv_error *error);
int32_t kv_cache_fork(kv_cache *cache, kv_cache **copy, kv_error *error);
int32_t kv_cache_reset(kv_cache *cache, kv_error *error);
int32_t kv_cache_dump_bytes(const kv_cache *cache, uint64_t *bytes, kv_error *error);
int32_t kv_cache_dump(const kv_cache *cache, void *buffer, uint64_t bytes, kv_error *error);
int32_t kv_cache_restore(const kv_cache_config *config, const void *buffer, uint64_t bytes, kv_cache **cache,
                         kv_error *error);
void kv_cache_get_stats(const kv_cache *cache, kv_stats *stats);

/* END declarations */

#ifdef __cplusplus
}
#endif
#endif
