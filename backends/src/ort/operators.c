/* The operators Append, Attend and Scores over caches held in uint8 tensors. */
#include "node.h"

#include "../block/block.h"
#include "../core/bits.h"

#define MOST_DIMS 4

typedef struct tensor {
  void *data;
  int64_t dims[MOST_DIMS];
  size_t rank;
} tensor;

/* What all operators are given: blocks of bytes, and float rows [n][heads][head_dim] for each. */
typedef struct run {
  kv_node *node;
  OrtKernelContext *context;
  tensor cache;
  int64_t sequences, block_bytes;
  kv_workspace *workspace;
  kv_parallel parallel;
} run;

/* ---- tensors ---- */

static OrtStatus *refuse(const kv_node *node, const char *input, const char *what) {
  kv_error error;
  kv_fail(&error, KV_E_ARGUMENT, "input %s %s", input, what);
  return kv_node_status(node, KV_E_ARGUMENT, error.message);
}

static OrtStatus *read_shape(const kv_node *node, const OrtTensorTypeAndShapeInfo *info, const char *name, int type,
                             tensor *out) {
  int found = 0;
  OrtStatus *status = KV_ORT(node->api, GetTensorElementType)(info, &found);
  if (!status) status = KV_ORT(node->api, GetDimensionsCount)(info, &out->rank);
  if (status) return status;
  if (found != type) return refuse(node, name, type == KV_ORT_FLOAT ? "must be float" : "must be uint8");
  if (out->rank > MOST_DIMS) return refuse(node, name, "has more than 4 dimensions");
  return KV_ORT(node->api, GetDimensions)(info, out->dims, out->rank);
}

static OrtStatus *input(const run *r, size_t index, const char *name, int type, tensor *out) {
  const OrtApi *api = r->node->api;
  const OrtValue *value = 0;
  OrtTensorTypeAndShapeInfo *info = 0;
  OrtStatus *status = KV_ORT(api, KernelContext_GetInput)(r->context, index, &value);
  if (!status && !value) return refuse(r->node, name, "is missing");
  if (!status) status = KV_ORT(api, GetTensorTypeAndShape)(value, &info);
  if (status) return status;
  status = read_shape(r->node, info, name, type, out);
  kv_ort_release_shape(api, info);
  return status ? status : KV_ORT(api, GetTensorMutableData)((OrtValue *)value, &out->data);
}

static OrtStatus *output(const run *r, size_t index, const int64_t *dims, size_t rank, void **data) {
  OrtValue *value = 0;
  OrtStatus *status = KV_ORT(r->node->api, KernelContext_GetOutput)(r->context, index, dims, rank, &value);
  return status ? status : KV_ORT(r->node->api, GetTensorMutableData)(value, data);
}

/* [sequences][bytes], or [bytes] for one sequence. */
static OrtStatus *read_cache(run *r) {
  OrtStatus *status = input(r, 0, "cache", KV_ORT_UINT8, &r->cache);
  if (status) return status;
  if (r->cache.rank != 1 && r->cache.rank != 2)
    return refuse(r->node, "cache", "must be [bytes] or [sequences, bytes]");
  r->sequences = r->cache.rank == 2 ? r->cache.dims[0] : 1;
  r->block_bytes = r->cache.dims[r->cache.rank - 1];
  if (r->sequences > 1 && r->block_bytes % 16) return refuse(r->node, "cache", "has rows that are no multiple of 16 bytes");
  return 0;
}

/* [sequences][n][heads][head_dim], without the first for a cache of rank 1. */
static OrtStatus *read_rows(const run *r, size_t index, const char *name, uint32_t heads, tensor *out, int64_t *n) {
  OrtStatus *status = input(r, index, name, KV_ORT_FLOAT, out);
  if (status) return status;
  const int64_t *dims = out->dims + r->cache.rank - 1;
  if (out->rank != r->cache.rank + 2)
    return refuse(r->node, name, r->cache.rank == 2 ? "must be [sequences, tokens, heads, head_dim]"
                                                    : "must be [tokens, heads, head_dim]");
  if (r->cache.rank == 2 && out->dims[0] != r->sequences) return refuse(r->node, name, "has another number of sequences than cache");
  kv_error error;
  if (dims[1] != heads || dims[2] != r->node->spec.head_dim) {
    kv_fail(&error, KV_E_ARGUMENT, "input %s has %l heads of %l, the spec has %u of %u", name, (uint64_t)dims[1],
            (uint64_t)dims[2], heads, (uint32_t)r->node->spec.head_dim);
    return kv_node_status(r->node, KV_E_ARGUMENT, error.message);
  }
  *n = dims[0];
  return 0;
}

static uint8_t *block_of(const run *r, uint8_t *cache, int64_t sequence) { return cache + sequence * r->block_bytes; }

/* ---- a run ---- */

static OrtStatus *failed(const run *r, int64_t sequence, int32_t code, const kv_error *error) {
  kv_error where;
  if (code == KV_OK) return 0;
  if (r->cache.rank == 1) return kv_node_status(r->node, code, error->message);
  kv_fail(&where, code, "sequence %l: %s", (uint64_t)sequence, error->message);
  return kv_node_status(r->node, code, where.message);
}

static OrtStatus *begin(run *r, void *kernel, OrtKernelContext *context) {
  *r = (run){.node = kernel, .context = context};
  OrtStatus *status = read_cache(r);
  if (status) return status;
  r->workspace = kv_workspace_take(r->node, (uint64_t)r->block_bytes);
  if (!r->workspace) return kv_node_status(r->node, KV_E_MEMORY, "no memory for scratch");
  kv_scratch_init(r->workspace->scratch, r->workspace->scratch_bytes); /* forgets what earlier runs executed */
  r->parallel = (kv_parallel){.context = r->workspace->pool, .threads = r->node->threads, .run = kv_pool_run};
  return 0;
}

/* The optional second output: 1 << variant for each variant whose kernels this run executed. */
static OrtStatus *say_ran(const run *r) {
  static const int64_t one[1] = {1};
  size_t outputs = 0;
  void *data = 0;
  OrtStatus *status = KV_ORT(r->node->api, KernelContext_GetOutputCount)(r->context, &outputs);
  if (!status && outputs > 1) status = output(r, 1, one, 1, &data);
  if (data) *(int64_t *)data = kv_scratch_ran(r->workspace->scratch);
  return status;
}

static OrtStatus *end(run *r, OrtStatus *status) {
  if (!status) status = say_ran(r);
  if (r->workspace) kv_workspace_put(r->workspace);
  return status;
}

static const kv_parallel *parallel(const run *r) { return r->node->threads > 1 ? &r->parallel : 0; }

/* ---- Append ---- */

/* Every sequence is checked before the first is written; one alone checks itself. */
static OrtStatus *append_all(run *r, uint8_t *cache, const float *keys, const float *values, int64_t n) {
  const kv_node *node = r->node;
  const int64_t width = n * node->spec.kv_heads * node->spec.head_dim;
  kv_error error;
  int32_t code = KV_OK;
  for (int64_t i = 0; r->sequences > 1 && i < r->sequences; i++) {
    code = kv_block_can_append(node->plan, &node->id, block_of(r, cache, i), (uint64_t)r->block_bytes, keys + i * width,
                               values + i * width, (uint64_t)n, &error);
    if (code) return failed(r, i, code, &error);
  }
  for (int64_t i = 0; i < r->sequences; i++) {
    code = kv_block_append(node->plan, &node->id, block_of(r, cache, i), (uint64_t)r->block_bytes, keys + i * width,
                           values + i * width, (uint64_t)n, r->workspace->scratch, r->workspace->scratch_bytes, &error);
    if (code) return failed(r, i, code, &error);
  }
  return 0;
}

static OrtStatus *append(run *r) {
  tensor keys, values;
  int64_t n = 0, n_values = 0;
  void *out = 0;
  OrtStatus *status = read_rows(r, 1, "keys", r->node->spec.kv_heads, &keys, &n);
  if (!status) status = read_rows(r, 2, "values", r->node->spec.kv_heads, &values, &n_values);
  if (status) return status;
  if (n != n_values) return refuse(r->node, "values", "has another number of tokens than keys");
  status = output(r, 0, r->cache.dims, r->cache.rank, &out);
  if (status) return status;
  if (out != r->cache.data) {
    if (r->node->in_place)
      return kv_node_status(r->node, KV_E_STATE,
                            "output cache is another buffer than input cache: bind both to one value by I/O binding, or "
                            "set attribute in_place to 0 to have it copied");
    kv_copy(out, r->cache.data, (size_t)(r->sequences * r->block_bytes));
  }
  return append_all(r, out, keys.data, values.data, n);
}

static OrtStatus *ORT_CALL append_compute(void *kernel, OrtKernelContext *context) {
  run r;
  OrtStatus *status = begin(&r, kernel, context);
  return end(&r, status ? status : append(&r));
}

/* ---- Attend ---- */

static OrtStatus *attend(run *r) {
  const kv_node *node = r->node;
  tensor q;
  int64_t n = 0;
  void *out = 0;
  kv_error error;
  OrtStatus *status = read_rows(r, 1, "query", node->spec.query_heads, &q, &n);
  if (!status) status = output(r, 0, q.dims, q.rank, &out);
  const int64_t width = n * node->spec.query_heads * node->spec.head_dim;
  if (!status && n > UINT32_MAX) return refuse(node, "query", "has too many tokens");
  for (int64_t i = 0; !status && i < r->sequences; i++) {
    const int32_t code = kv_block_attend(node->plan, &node->id, block_of(r, r->cache.data, i), (uint64_t)r->block_bytes,
                                         (const float *)q.data + i * width, (uint32_t)n, (float *)out + i * width,
                                         r->workspace->scratch, r->workspace->scratch_bytes, parallel(r), &error);
    status = failed(r, i, code, &error);
  }
  return status;
}

static OrtStatus *ORT_CALL attend_compute(void *kernel, OrtKernelContext *context) {
  run r;
  OrtStatus *status = begin(&r, kernel, context);
  return end(&r, status ? status : attend(&r));
}

/* ---- Scores: one query a sequence, sequences of equal length ---- */

static OrtStatus *length_of(const run *r, int64_t sequence, uint64_t *length) {
  kv_error error;
  const int32_t code = kv_block_length(r->node->plan, &r->node->id, block_of(r, r->cache.data, sequence),
                                       (uint64_t)r->block_bytes, length, &error);
  return failed(r, sequence, code, &error);
}

static OrtStatus *common_length(const run *r, uint64_t *length) {
  OrtStatus *status = r->sequences ? length_of(r, 0, length) : 0;
  for (int64_t i = 1; !status && i < r->sequences; i++) {
    uint64_t other = 0;
    status = length_of(r, i, &other);
    if (!status && other != *length) status = refuse(r->node, "cache", "holds sequences of different lengths");
  }
  return status;
}

static OrtStatus *scores(run *r) {
  const kv_node *node = r->node;
  const uint32_t heads = node->spec.query_heads;
  tensor q;
  int64_t n = 0, dims[3];
  uint64_t length = 0;
  void *out = 0;
  kv_error error;
  OrtStatus *status = read_rows(r, 1, "query", heads, &q, &n);
  if (!status && n != 1) status = refuse(node, "query", "must have one token a sequence");
  if (!status) status = common_length(r, &length);
  if (status) return status;
  dims[0] = r->sequences, dims[r->cache.rank - 1] = heads, dims[r->cache.rank] = (int64_t)length;
  status = output(r, 0, dims, r->cache.rank + 1, &out);
  for (int64_t i = 0; !status && i < r->sequences; i++) {
    const int32_t code =
        kv_block_scores(node->plan, &node->id, block_of(r, r->cache.data, i), (uint64_t)r->block_bytes,
                        (const float *)q.data + i * heads * node->spec.head_dim, (float *)out + i * heads * length,
                        heads * length, r->workspace->scratch, r->workspace->scratch_bytes, parallel(r), &error);
    status = failed(r, i, code, &error);
  }
  return status;
}

static OrtStatus *ORT_CALL scores_compute(void *kernel, OrtKernelContext *context) {
  run r;
  OrtStatus *status = begin(&r, kernel, context);
  return end(&r, status ? status : scores(&r));
}

/* ---- registration ---- */

static const char *ORT_CALL append_name(const kv_ort_op *op) { (void)op; return "Append"; }
static const char *ORT_CALL attend_name(const kv_ort_op *op) { (void)op; return "Attend"; }
static const char *ORT_CALL scores_name(const kv_ort_op *op) { (void)op; return "Scores"; }
static const char *ORT_CALL cpu(const kv_ort_op *op) { (void)op; return 0; }
static int ORT_CALL cache_then_floats(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_FLOAT : KV_ORT_UINT8; }
static int ORT_CALL cache_and_ran(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_INT64 : KV_ORT_UINT8; }
static int ORT_CALL floats_and_ran(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_INT64 : KV_ORT_FLOAT; }
static size_t ORT_CALL two(const kv_ort_op *op) { (void)op; return 2; }
static size_t ORT_CALL three(const kv_ort_op *op) { (void)op; return 3; }
static int ORT_CALL required(const kv_ort_op *op, size_t index) { (void)op, (void)index; return KV_ORT_REQUIRED; }
static int ORT_CALL first_required(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_OPTIONAL : KV_ORT_REQUIRED; }
static int ORT_CALL default_memory(const kv_ort_op *op, size_t index) { (void)op, (void)index; return 0; }
static int ORT_CALL not_variadic(const kv_ort_op *op) { (void)op; return 0; }

#define OPERATOR(own_name, inputs, output_type, compute)                                                           \
  {.version = KV_ORT_API,                                                                                          \
   .GetName = own_name,                                                                                            \
   .GetExecutionProviderType = cpu,                                                                                \
   .GetInputType = cache_then_floats,                                                                              \
   .GetInputTypeCount = inputs,                                                                                    \
   .GetOutputType = output_type,                                                                                   \
   .GetOutputTypeCount = two,                                                                                      \
   .KernelDestroy = kv_node_destroy,                                                                               \
   .GetInputCharacteristic = required,                                                                             \
   .GetOutputCharacteristic = first_required,                                                                      \
   .GetInputMemoryType = default_memory,                                                                           \
   .GetVariadicInputMinArity = not_variadic,                                                                       \
   .GetVariadicInputHomogeneity = not_variadic,                                                                    \
   .GetVariadicOutputMinArity = not_variadic,                                                                      \
   .GetVariadicOutputHomogeneity = not_variadic,                                                                   \
   .CreateKernelV2 = kv_node_create,                                                                               \
   .KernelComputeV2 = compute}

static const kv_ort_op operators[] = {OPERATOR(append_name, three, cache_and_ran, append_compute),
                                      OPERATOR(attend_name, two, floats_and_ran, attend_compute),
                                      OPERATOR(scores_name, two, floats_and_ran, scores_compute)};

static OrtStatus *make_domain(const OrtApi *api, OrtCustomOpDomain **domain) {
  OrtStatus *status = KV_ORT(api, CreateCustomOpDomain)("kvassay", domain);
  for (size_t i = 0; !status && i < sizeof operators / sizeof *operators; i++)
    status = KV_ORT(api, CustomOpDomain_Add)(*domain, &operators[i]);
  return status;
}

static OrtStatus *too_old(const OrtApiBase *base) {
  kv_error error;
  kv_fail(&error, KV_E_STATE, "kvassay needs ONNX Runtime 1.%u or newer (API %u); this is ONNX Runtime %s", KV_ORT_API,
          KV_ORT_API, base->GetVersionString());
  return kv_ort_status(base->GetApi(1), KV_ORT_FAIL, error.message);
}

/* Called by SessionOptions.register_custom_ops_library. The domain stays for as long as the process: sessions made
 * from the options refer to it. */
KV_EXPORT OrtStatus *ORT_CALL RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);
KV_EXPORT OrtStatus *ORT_CALL RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  static _Atomic(OrtCustomOpDomain *) shared;
  const OrtApi *api = base->GetApi(KV_ORT_API);
  OrtCustomOpDomain *domain = atomic_load(&shared), *none = 0;
  if (!api) return too_old(base);
  if (!domain) {
    OrtStatus *status = make_domain(api, &domain);
    if (status) return status;
    if (!atomic_compare_exchange_strong(&shared, &none, domain)) domain = none; /* another thread was first */
  }
  return KV_ORT(api, AddCustomOpDomain)(options, domain);
}
