/* The operators Append, Attend and Scores over caches held in uint8 tensors, and the domain of all operators. */
#include "linear.h"
#include "tensor.h"

#include "block/block.h"
#include "core/base/bits.h"

/* What all operators are given: blocks of bytes, and float rows [n][heads][head_dim] for each. */
typedef struct run {
  kv_node *node;
  OrtKernelContext *context;
  kv_tensor cache;
  int64_t sequences, block_bytes;
  kv_workspace *workspace;
  kv_parallel parallel;
} run;

/* [sequences][bytes], or [bytes] for one sequence. */
static OrtStatus *read_cache(run *r) {
  OrtStatus *status = kv_input(r->node, r->context, 0, "cache", KV_ORT_UINT8, &r->cache);
  if (status) return status;
  if (r->cache.rank != 1 && r->cache.rank != 2)
    return kv_refuse(r->node, "cache", "must be [bytes] or [sequences, bytes]");
  r->sequences = r->cache.rank == 2 ? r->cache.dims[0] : 1;
  r->block_bytes = r->cache.dims[r->cache.rank - 1];
  if (r->sequences > 1 && r->block_bytes % 16) return kv_refuse(r->node, "cache", "has rows that are no multiple of 16 bytes");
  return 0;
}

/* [sequences][n][heads][head_dim], without the first for a cache of rank 1; the last two may be one. */
static OrtStatus *read_rows(const run *r, size_t index, const char *name, uint32_t heads, kv_tensor *out, int64_t *n) {
  OrtStatus *status = kv_input(r->node, r->context, index, name, KV_ORT_FLOAT, out);
  if (status) return status;
  const int64_t *dims = out->dims + r->cache.rank - 1;
  const int flat = out->rank == r->cache.rank + 1;
  if (!flat && out->rank != r->cache.rank + 2)
    return kv_refuse(r->node, name, r->cache.rank == 2 ? "must be [sequences, tokens, heads, head_dim]"
                                                       : "must be [tokens, heads, head_dim]");
  if (r->cache.rank == 2 && out->dims[0] != r->sequences) return kv_refuse(r->node, name, "has another number of sequences than cache");
  const uint32_t head_dim = r->node->spec.head_dim;
  kv_error error;
  *n = dims[0];
  if (flat && dims[1] != (int64_t)heads * head_dim) {
    kv_fail(&error, KV_E_ARGUMENT, "input %s has rows of %l, the spec has %u heads of %u", name, (uint64_t)dims[1], heads, head_dim);
    return kv_node_status(r->node, KV_E_ARGUMENT, error.message);
  }
  if (!flat && (dims[1] != heads || dims[2] != head_dim)) {
    kv_fail(&error, KV_E_ARGUMENT, "input %s has %l heads of %l, the spec has %u of %u", name, (uint64_t)dims[1],
            (uint64_t)dims[2], heads, head_dim);
    return kv_node_status(r->node, KV_E_ARGUMENT, error.message);
  }
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
  r->workspace = kv_workspace_take(r->node, kv_block_scratch_bytes(r->node->plan, (uint64_t)r->block_bytes, r->node->threads));
  if (!r->workspace) return kv_node_status(r->node, KV_E_MEMORY, "no memory for scratch");
  kv_scratch_init(r->workspace->scratch, r->workspace->scratch_bytes); /* forgets what earlier runs executed */
  r->parallel = kv_workspace_parallel(r->workspace);
  return 0;
}

/* The optional second output: 1 << variant for each variant whose kernels this run executed. */
static OrtStatus *say_ran(const run *r) {
  static const int64_t one[1] = {1};
  size_t outputs = 0;
  void *data = 0;
  OrtStatus *status = KV_ORT(r->node->api, KernelContext_GetOutputCount)(r->context, &outputs);
  if (!status && outputs > 1) status = kv_output(r->node, r->context, 1, one, 1, &data);
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
  kv_tensor keys, values;
  int64_t n = 0, n_values = 0;
  void *out = 0;
  OrtStatus *status = read_rows(r, 1, "keys", r->node->spec.kv_heads, &keys, &n);
  if (!status) status = read_rows(r, 2, "values", r->node->spec.kv_heads, &values, &n_values);
  if (status) return status;
  if (n != n_values) return kv_refuse(r->node, "values", "has another number of tokens than keys");
  status = kv_output(r->node, r->context, 0, r->cache.dims, r->cache.rank, &out);
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
  kv_tensor q;
  int64_t n = 0;
  void *out = 0;
  kv_error error;
  OrtStatus *status = read_rows(r, 1, "query", node->spec.query_heads, &q, &n);
  if (!status) status = kv_output(r->node, r->context, 0, q.dims, q.rank, &out);
  const int64_t width = n * node->spec.query_heads * node->spec.head_dim;
  if (!status && n > UINT32_MAX) return kv_refuse(node, "query", "has too many tokens");
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
    if (!status && other != *length) status = kv_refuse(r->node, "cache", "holds sequences of different lengths");
  }
  return status;
}

static OrtStatus *scores(run *r) {
  const kv_node *node = r->node;
  const uint32_t heads = node->spec.query_heads;
  kv_tensor q;
  int64_t n = 0, dims[3];
  uint64_t length = 0;
  void *out = 0;
  kv_error error;
  OrtStatus *status = read_rows(r, 1, "query", heads, &q, &n);
  if (!status && n != 1) status = kv_refuse(node, "query", "must have one token a sequence");
  if (!status) status = common_length(r, &length);
  if (status) return status;
  dims[0] = r->sequences, dims[r->cache.rank - 1] = heads, dims[r->cache.rank] = (int64_t)length;
  status = kv_output(r->node, r->context, 0, dims, r->cache.rank + 1, &out);
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
static int ORT_CALL cache_then_floats(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_FLOAT : KV_ORT_UINT8; }
static int ORT_CALL cache_and_ran(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_INT64 : KV_ORT_UINT8; }
static int ORT_CALL floats_and_ran(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_INT64 : KV_ORT_FLOAT; }
static int ORT_CALL first_required(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_OPTIONAL : KV_ORT_REQUIRED; }

#define OPERATOR(own_name, inputs, output_type, compute)                                               \
  KV_OPERATOR(own_name, inputs, cache_then_floats, kv_op_two, output_type, first_required, kv_node_create, compute)

static const kv_ort_op caching[] = {OPERATOR(append_name, kv_op_three, cache_and_ran, append_compute),
                                    OPERATOR(attend_name, kv_op_two, floats_and_ran, attend_compute),
                                    OPERATOR(scores_name, kv_op_two, floats_and_ran, scores_compute)};

static OrtStatus *make_domain(const OrtApi *api, OrtCustomOpDomain **domain) {
  OrtStatus *status = KV_ORT(api, CreateCustomOpDomain)("kvassay", domain);
  for (size_t i = 0; !status && i < sizeof caching / sizeof *caching; i++)
    status = KV_ORT(api, CustomOpDomain_Add)(*domain, &caching[i]);
  if (!status) status = KV_ORT(api, CustomOpDomain_Add)(*domain, &kv_linear_op);
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
