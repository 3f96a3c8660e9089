#include "node.h"

#include "core/base/bits.h"

/* Sessions may be run by several threads at once: a run takes the idle workspace and puts it back, a second one at the
 * same time makes its own. It goes with the last node. */
static _Atomic(kv_workspace *) idle;
static atomic_uint nodes;

OrtStatus *kv_node_status(const kv_node *node, int32_t code, const char *message) {
  static const char *const names[] = {"OK",       "ARGUMENT", "SPEC",     "VARIANT", "VALUE", "MEMORY",
                                      "PAGE",     "IDENTITY", "TRUNCATE", "SPAN",    "STATE"};
  kv_error named;
  kv_fail(&named, code, "node '%s', KV_E_%s: %s", node->name, names[code], message);
  return kv_ort_status(node->api, code == KV_E_MEMORY ? KV_ORT_FAIL : KV_ORT_INVALID_ARGUMENT, named.message);
}

static void read_name(kv_node *node, const OrtKernelInfo *info) {
  size_t size = sizeof node->name;
  OrtStatus *status = KV_ORT(node->api, KernelInfo_GetNodeName)(info, node->name, &size);
  if (status) kv_copy(node->name, "(long name)", 12);
  kv_ort_release_status(node->api, status);
}

static int32_t make_plan(kv_node *node, kv_error *error) {
  uint64_t bytes = 0;
  int32_t code = kv_plan_bytes(&node->spec, &bytes, error);
  if (code) return code;
  node->plan = kv_take(&kv_default_allocator, bytes);
  if (!node->plan) return kv_fail(error, KV_E_MEMORY, "no memory for a plan of %l bytes", bytes);
  return kv_plan_init(&node->spec, node->variant[0] ? node->variant : 0, node->plan, bytes, error);
}

static kv_node *make_node(const OrtApi *api, const OrtKernelInfo *info) {
  kv_node *node = kv_take(&kv_default_allocator, sizeof *node);
  if (!node) return 0;
  kv_fill(node, 0, sizeof *node);
  node->api = api;
  atomic_fetch_add(&nodes, 1);
  read_name(node, info);
  return node;
}

static OrtStatus *made(kv_node *node, int32_t code, const kv_error *error, void **kernel) {
  if (code) {
    OrtStatus *status = kv_node_status(node, code, error->message);
    kv_node_destroy(node);
    return status;
  }
  *kernel = node;
  return 0;
}

OrtStatus *ORT_CALL kv_node_create(const kv_ort_op *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel) {
  kv_error error;
  (void)op;
  kv_node *node = make_node(api, info);
  if (!node) return kv_ort_status(api, KV_ORT_FAIL, "kvassay: no memory for a node");
  int32_t code = kv_node_attributes(node, info, &error);
  if (code == KV_OK) code = make_plan(node, &error);
  return made(node, code, &error, kernel);
}

OrtStatus *kv_node_create_linear(const OrtApi *api, const OrtKernelInfo *info,
                                 int32_t (*choose)(const char *variant, kv_linear_groups **run, kv_error *error),
                                 void **kernel) {
  kv_error error;
  kv_node *node = make_node(api, info);
  if (!node) return kv_ort_status(api, KV_ORT_FAIL, "kvassay: no memory for a node");
  int32_t code = kv_linear_attributes(node, info, &error);
  if (code == KV_OK) code = choose(node->variant, &node->linear, &error);
  return made(node, code, &error, kernel);
}

static void release(void *pointer) { kv_default_allocator.release(0, pointer, 0); }

static void workspace_free(kv_workspace *workspace) {
  if (!workspace) return;
  if (workspace->pool) kv_pool_stop(workspace->pool);
  release(workspace->pool);
  release(workspace->scratch);
  release(workspace);
}

void ORT_CALL kv_node_destroy(void *kernel) {
  kv_node *node = kernel;
  if (atomic_fetch_sub(&nodes, 1) == 1) workspace_free(atomic_exchange(&idle, 0));
  release(node->plan);
  release(node);
}

static kv_workspace *workspace_new(const kv_node *node) {
  kv_workspace *workspace = kv_take(&kv_default_allocator, sizeof *workspace);
  if (!workspace) return 0;
  *workspace = (kv_workspace){.threads = node->threads};
  if (node->threads == 1) return workspace;
  workspace->pool = kv_take(&kv_default_allocator, kv_pool_bytes(node->threads));
  if (workspace->pool) {
    kv_pool_init(workspace->pool, node->threads);
    return workspace;
  }
  workspace_free(workspace);
  return 0;
}

kv_workspace *kv_workspace_take(const kv_node *node, uint64_t needed) {
  kv_workspace *workspace = atomic_exchange(&idle, 0);
  if (workspace && workspace->threads != node->threads) {
    workspace_free(workspace);
    workspace = 0;
  }
  if (!workspace) workspace = workspace_new(node);
  if (!workspace || workspace->scratch_bytes >= needed) return workspace;
  release(workspace->scratch);
  workspace->scratch = kv_take(&kv_default_allocator, needed);
  workspace->scratch_bytes = workspace->scratch ? needed : 0;
  if (workspace->scratch) {
    kv_scratch_init(workspace->scratch, needed);
    return workspace;
  }
  workspace_free(workspace);
  return 0;
}

void kv_workspace_put(kv_workspace *workspace) { workspace_free(atomic_exchange(&idle, workspace)); }
