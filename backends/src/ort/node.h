/* A node of a graph: its spec, made into a plan once, and working memory for the runs that use it. */
#ifndef KVASSAY_ORT_NODE_H
#define KVASSAY_ORT_NODE_H

#include <stdatomic.h>

#include "core/cache/cache.h"
#include "core/base/fail.h"
#include "core/base/threads.h"
#include "kvassay_block.h"
#include "linear/linear.h"
#include "abi.h"

/* Scratch and threads of one run at a time. Nodes run one after the other, mostly: they share one that is idle. */
typedef struct kv_workspace {
  uint32_t threads;
  uint64_t scratch_bytes;
  void *scratch;
  kv_pool *pool; /* NULL with one thread */
} kv_workspace;

typedef struct kv_node {
  const OrtApi *api;
  kv_layer_spec spec;
  kv_page_id id;
  uint32_t threads;
  int in_place;
  char variant[32];
  char name[64];
  void *plan;             /* of a cache's operator */
  kv_weights weights;     /* of Linear, and what multiplies by them */
  kv_linear_groups *linear;
} kv_node;

int32_t kv_node_attributes(kv_node *node, const OrtKernelInfo *info, kv_error *error);
int32_t kv_linear_attributes(kv_node *node, const OrtKernelInfo *info, kv_error *error);

/* CreateKernelV2 of the operators of a cache; KernelDestroy of every operator. */
OrtStatus *ORT_CALL kv_node_create(const kv_ort_op *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel);
/* A node of Linear; `choose` finds what runs a variant, "" being the best. */
OrtStatus *kv_node_create_linear(const OrtApi *api, const OrtKernelInfo *info,
                                 int32_t (*choose)(const char *variant, kv_linear_groups **run, kv_error *error),
                                 void **kernel);
void ORT_CALL kv_node_destroy(void *kernel);

/* Scratch of so many bytes; NULL if the memory is refused. */
kv_workspace *kv_workspace_take(const kv_node *node, uint64_t scratch_bytes);
void kv_workspace_put(kv_workspace *workspace);

static inline kv_parallel kv_workspace_parallel(const kv_workspace *workspace) {
  return (kv_parallel){.context = workspace->pool, .threads = workspace->threads, .run = kv_pool_run};
}

static inline int kv_equal(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

/* "node 'name': message", as a status. */
OrtStatus *kv_node_status(const kv_node *node, int32_t code, const char *message);

#endif
