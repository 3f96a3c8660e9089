/* The operator Linear: inputs times a quantized matrix, eight rows beside each other (../linear/linear.h). */
#include "linear.h"

#include "core/base/bits.h"
#include "core/dispatch/cpu.h"
#include "linear/linear.h"
#include "tensor.h"

#define TASKS_A_THREAD 4u /* so that a thread that was late leaves less undone */

typedef struct groups_of {
  kv_linear job;
  kv_linear_groups *run;
  uint64_t count; /* groups of a task */
} groups_of;

static void some_groups(void *arg, uint32_t index, uint32_t worker) {
  const groups_of *all = arg;
  const uint64_t first = index * all->count, left = all->job.groups - first;
  (void)worker;
  all->run(&all->job, first, left < all->count ? left : all->count);
}

static int32_t choose(const char *variant, kv_linear_groups **run, kv_error *error) {
  *run = kv_linear_scalar;
#if defined(__x86_64__)
  const char *lacks = kv_cpu_lacks_avx2();
  if (!variant[0] && lacks) return KV_OK;
  if (!variant[0] || kv_equal(variant, "avx2")) {
    if (lacks) return kv_fail(error, KV_E_VARIANT, "variant avx2: this CPU lacks %s", lacks);
    *run = kv_linear_avx2;
    return KV_OK;
  }
#endif
  if (!variant[0] || kv_equal(variant, "scalar")) return KV_OK;
  return kv_fail(error, KV_E_VARIANT, "attribute variant: %s is no variant of Linear here", variant);
}

static OrtStatus *ORT_CALL create(const kv_ort_op *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel) {
  (void)op;
  return kv_node_create_linear(api, info, choose, kernel);
}

/* The inputs' columns and the matrix agree. */
static OrtStatus *fit(const kv_node *node, const kv_tensor *x, const kv_tensor *matrix, kv_linear *job) {
  const int64_t step = (int64_t)kv_linear_bytes(job->kind);
  if (matrix->rank != 2 || matrix->dims[1] % step || !matrix->dims[1])
    return kv_refuse(node, "weights", job->kind == KV_WEIGHTS_Q4_1 ? "must be [rows / 8, bytes] with 160 bytes a block"
                                                                   : "must be [rows / 8, bytes] with 272 bytes a block");
  if (!x->rank) return kv_refuse(node, "x", "must have a dimension");
  job->groups = (uint64_t)matrix->dims[0];
  job->blocks = (uint32_t)(matrix->dims[1] / step);
  if (x->dims[x->rank - 1] != (int64_t)job->blocks * KV_LINEAR_BLOCK) {
    kv_error error;
    kv_fail(&error, KV_E_ARGUMENT, "input x has rows of %l, the weights have %l columns",
            (uint64_t)x->dims[x->rank - 1], (uint64_t)job->blocks * KV_LINEAR_BLOCK);
    return kv_node_status(node, KV_E_ARGUMENT, error.message);
  }
  job->tokens = 1;
  for (size_t i = 0; i + 1 < x->rank; i++) job->tokens *= (uint64_t)x->dims[i];
  return 0;
}

static void multiply(const kv_node *node, const float *x, kv_linear *job, kv_workspace *workspace) {
  kv_rounded *rounded = workspace->scratch;
  float *sums = (float *)(rounded + job->tokens * job->blocks);
  kv_linear_round(x, job->tokens * job->blocks, rounded, sums);
  job->x = rounded;
  job->sums = sums;
  if (node->threads == 1) {
    node->linear(job, 0, job->groups);
    return;
  }
  groups_of all = {.job = *job, .run = node->linear};
  const uint32_t tasks = TASKS_A_THREAD * node->threads;
  all.count = (job->groups + tasks - 1) / tasks;
  const kv_parallel parallel = kv_workspace_parallel(workspace);
  parallel.run(parallel.context, (uint32_t)((job->groups + all.count - 1) / all.count), some_groups, &all);
}

static OrtStatus *ORT_CALL compute(void *kernel, OrtKernelContext *context) {
  const kv_node *node = kernel;
  kv_tensor x, matrix;
  kv_linear job = {.kind = node->weights};
  void *out = 0;
  OrtStatus *status = kv_input(node, context, 0, "x", KV_ORT_FLOAT, &x);
  if (!status) status = kv_input(node, context, 1, "weights", KV_ORT_UINT8, &matrix);
  if (!status) status = fit(node, &x, &matrix, &job);
  if (status) return status;
  x.dims[x.rank - 1] = (int64_t)(job.groups * KV_LINEAR_ROWS);
  status = kv_output(node, context, 0, x.dims, x.rank, &out);
  if (status || !job.tokens || !job.groups) return status;
  kv_workspace *workspace = kv_workspace_take(node, job.tokens * job.blocks * (sizeof(kv_rounded) + sizeof(float)));
  if (!workspace) return kv_node_status(node, KV_E_MEMORY, "no memory for scratch");
  job.matrix = matrix.data;
  job.y = out;
  multiply(node, x.data, &job, workspace);
  kv_workspace_put(workspace);
  return 0;
}

static const char *ORT_CALL own_name(const kv_ort_op *op) { (void)op; return "Linear"; }
static int ORT_CALL float_then_bytes(const kv_ort_op *op, size_t index) { (void)op; return index ? KV_ORT_UINT8 : KV_ORT_FLOAT; }
static int ORT_CALL floats(const kv_ort_op *op, size_t index) { (void)op, (void)index; return KV_ORT_FLOAT; }

const kv_ort_op kv_linear_op =
    KV_OPERATOR(own_name, kv_op_two, float_then_bytes, kv_op_one, floats, kv_op_zero_at, create, compute);
