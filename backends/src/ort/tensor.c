/* Inputs and outputs of a run. */
#include "tensor.h"

OrtStatus *kv_refuse(const kv_node *node, const char *input, const char *what) {
  kv_error error;
  kv_fail(&error, KV_E_ARGUMENT, "input %s %s", input, what);
  return kv_node_status(node, KV_E_ARGUMENT, error.message);
}

static OrtStatus *read_shape(const kv_node *node, const OrtTensorTypeAndShapeInfo *info, const char *name, int type,
                             kv_tensor *out) {
  int found = 0;
  OrtStatus *status = KV_ORT(node->api, GetTensorElementType)(info, &found);
  if (!status) status = KV_ORT(node->api, GetDimensionsCount)(info, &out->rank);
  if (status) return status;
  if (found != type) return kv_refuse(node, name, type == KV_ORT_FLOAT ? "must be float" : "must be uint8");
  if (out->rank > KV_MOST_DIMS) return kv_refuse(node, name, "has more than 4 dimensions");
  return KV_ORT(node->api, GetDimensions)(info, out->dims, out->rank);
}

OrtStatus *kv_input(const kv_node *node, OrtKernelContext *context, size_t index, const char *name, int type,
                    kv_tensor *out) {
  const OrtApi *api = node->api;
  const OrtValue *value = 0;
  OrtTensorTypeAndShapeInfo *info = 0;
  OrtStatus *status = KV_ORT(api, KernelContext_GetInput)(context, index, &value);
  if (!status && !value) return kv_refuse(node, name, "is missing");
  if (!status) status = KV_ORT(api, GetTensorTypeAndShape)(value, &info);
  if (status) return status;
  status = read_shape(node, info, name, type, out);
  kv_ort_release_shape(api, info);
  return status ? status : KV_ORT(api, GetTensorMutableData)((OrtValue *)value, &out->data);
}

OrtStatus *kv_output(const kv_node *node, OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                     void **data) {
  OrtValue *value = 0;
  OrtStatus *status = KV_ORT(node->api, KernelContext_GetOutput)(context, index, dims, rank, &value);
  return status ? status : KV_ORT(node->api, GetTensorMutableData)(value, data);
}
