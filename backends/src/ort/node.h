/* A node of a graph: its spec, made into a plan once, and working memory for the runs that use it. */
#ifndef KVASSAY_ORT_NODE_H
#define KVASSAY_ORT_NODE_H

#include <stdatomic.h>

#include "../core/cache.h"
#include "../core/fail.h"
#include "../core/threads.h"
#include "../include/kvassay_block.h"
#include "abi.h"

/* Scratch and threads of one run at a time. */
typedef struct kv_workspace {
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
  void *plan;
  /* Sessions may be run by several threads at once: a run takes this and puts it back, a second one at the same time
   * makes its own. */
  _Atomic(kv_workspace *) idle;
} kv_node;

int32_t kv_node_attributes(kv_node *node, const OrtKernelInfo *info, kv_error *error);

/* CreateKernelV2 and KernelDestroy of every operator. */
OrtStatus *ORT_CALL kv_node_create(const kv_ort_op *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel);
void ORT_CALL kv_node_destroy(void *kernel);

/* Room for blocks of `block_bytes`; NULL if the memory is refused. */
kv_workspace *kv_workspace_take(kv_node *node, uint64_t block_bytes);
void kv_workspace_put(kv_node *node, kv_workspace *workspace);

/* "node 'name': message", as a status. */
OrtStatus *kv_node_status(const kv_node *node, int32_t code, const char *message);

#endif
