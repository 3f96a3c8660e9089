/* Inputs and outputs of a run, and the parts of an operator's description that all have alike. */
#ifndef KVASSAY_ORT_TENSOR_H
#define KVASSAY_ORT_TENSOR_H

#include "node.h"

#define KV_MOST_DIMS 4

typedef struct kv_tensor {
  void *data;
  int64_t dims[KV_MOST_DIMS];
  size_t rank;
} kv_tensor;

/* KV_E_ARGUMENT: "input <name> <what>". */
OrtStatus *kv_refuse(const kv_node *node, const char *input, const char *what);
/* Input `index`, of that type and at most KV_MOST_DIMS dimensions. */
OrtStatus *kv_input(const kv_node *node, OrtKernelContext *context, size_t index, const char *name, int type, kv_tensor *out);
OrtStatus *kv_output(const kv_node *node, OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                     void **data);

static inline const char *ORT_CALL kv_op_cpu(const kv_ort_op *op) { (void)op; return 0; }
static inline size_t ORT_CALL kv_op_one(const kv_ort_op *op) { (void)op; return 1; }
static inline size_t ORT_CALL kv_op_two(const kv_ort_op *op) { (void)op; return 2; }
static inline size_t ORT_CALL kv_op_three(const kv_ort_op *op) { (void)op; return 3; }
static inline int ORT_CALL kv_op_zero(const kv_ort_op *op) { (void)op; return 0; }
static inline int ORT_CALL kv_op_zero_at(const kv_ort_op *op, size_t index) { (void)op, (void)index; return 0; }

/* Every input is required; outputs are as `output_kind` says. Nothing is variadic, memory is the CPU's. */
#define KV_OPERATOR(own_name, inputs, input_type, outputs, output_type, output_kind, create, compute)              \
  {.version = KV_ORT_API,                                                                                          \
   .GetName = own_name,                                                                                            \
   .GetExecutionProviderType = kv_op_cpu,                                                                          \
   .GetInputType = input_type,                                                                                     \
   .GetInputTypeCount = inputs,                                                                                    \
   .GetOutputType = output_type,                                                                                   \
   .GetOutputTypeCount = outputs,                                                                                  \
   .KernelDestroy = kv_node_destroy,                                                                               \
   .GetInputCharacteristic = kv_op_zero_at,                                                                        \
   .GetOutputCharacteristic = output_kind,                                                                         \
   .GetInputMemoryType = kv_op_zero_at,                                                                            \
   .GetVariadicInputMinArity = kv_op_zero,                                                                         \
   .GetVariadicInputHomogeneity = kv_op_zero,                                                                      \
   .GetVariadicOutputMinArity = kv_op_zero,                                                                        \
   .GetVariadicOutputHomogeneity = kv_op_zero,                                                                     \
   .CreateKernelV2 = create,                                                                                       \
   .KernelComputeV2 = compute}

#endif
