/* What is used of ONNX Runtime's C interface, declared here so that no header of it is needed to build.
 *
 * OrtApi is a table of function pointers that only ever grows at its end, so a slot keeps its number for good; the
 * `ort_abi` session compiles these declarations against the official header. OrtCustomOp grows at its end likewise:
 * `version` tells the runtime which fields there are.
 */
#ifndef KVASSAY_ORT_ABI_H
#define KVASSAY_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ORT_CALL __stdcall
#else
#define ORT_CALL
#endif

/* The oldest interface with everything below: kernels that can refuse to be created came with ONNX Runtime 1.16. */
#define KV_ORT_API 16

#ifndef KV_ORT_OFFICIAL /* the official header has these */
typedef struct OrtApi OrtApi;
typedef struct OrtStatus OrtStatus;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtValue OrtValue;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;

typedef struct OrtApiBase {
  const OrtApi *(ORT_CALL *GetApi)(uint32_t version);
  const char *(ORT_CALL *GetVersionString)(void);
} OrtApiBase;
#endif

enum { KV_ORT_FAIL = 1, KV_ORT_INVALID_ARGUMENT = 2 };
enum { KV_ORT_FLOAT = 1, KV_ORT_UINT8 = 2, KV_ORT_INT64 = 7 };
enum { KV_ORT_REQUIRED = 0, KV_ORT_OPTIONAL = 1 };

struct kv_ort_op;

/* OrtCustomOp as of version 16. */
typedef struct kv_ort_op {
  uint32_t version;
  void *(ORT_CALL *CreateKernel)(const struct kv_ort_op *op, const OrtApi *api, const OrtKernelInfo *info);
  const char *(ORT_CALL *GetName)(const struct kv_ort_op *op);
  const char *(ORT_CALL *GetExecutionProviderType)(const struct kv_ort_op *op);
  int (ORT_CALL *GetInputType)(const struct kv_ort_op *op, size_t index);
  size_t (ORT_CALL *GetInputTypeCount)(const struct kv_ort_op *op);
  int (ORT_CALL *GetOutputType)(const struct kv_ort_op *op, size_t index);
  size_t (ORT_CALL *GetOutputTypeCount)(const struct kv_ort_op *op);
  void (ORT_CALL *KernelCompute)(void *kernel, OrtKernelContext *context);
  void (ORT_CALL *KernelDestroy)(void *kernel);
  int (ORT_CALL *GetInputCharacteristic)(const struct kv_ort_op *op, size_t index);
  int (ORT_CALL *GetOutputCharacteristic)(const struct kv_ort_op *op, size_t index);
  int (ORT_CALL *GetInputMemoryType)(const struct kv_ort_op *op, size_t index);
  int (ORT_CALL *GetVariadicInputMinArity)(const struct kv_ort_op *op);
  int (ORT_CALL *GetVariadicInputHomogeneity)(const struct kv_ort_op *op);
  int (ORT_CALL *GetVariadicOutputMinArity)(const struct kv_ort_op *op);
  int (ORT_CALL *GetVariadicOutputHomogeneity)(const struct kv_ort_op *op);
  OrtStatus *(ORT_CALL *CreateKernelV2)(const struct kv_ort_op *op, const OrtApi *api, const OrtKernelInfo *info,
                                        void **kernel);
  OrtStatus *(ORT_CALL *KernelComputeV2)(void *kernel, OrtKernelContext *context);
} kv_ort_op;

/* X(slot, name, parameters): functions that return a status. */
#define KV_ORT_SLOTS(X)                                                                                            \
  X(26, CreateCustomOpDomain, (const char *domain, OrtCustomOpDomain **out))                                       \
  X(27, CustomOpDomain_Add, (OrtCustomOpDomain *domain, const kv_ort_op *op))                                      \
  X(28, AddCustomOpDomain, (OrtSessionOptions *options, OrtCustomOpDomain *domain))                                \
  X(51, GetTensorMutableData, (OrtValue *value, void **out))                                                       \
  X(60, GetTensorElementType, (const OrtTensorTypeAndShapeInfo *info, int *out))                                   \
  X(61, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo *info, size_t *out))                                  \
  X(62, GetDimensions, (const OrtTensorTypeAndShapeInfo *info, int64_t *out, size_t count))                        \
  X(65, GetTensorTypeAndShape, (const OrtValue *value, OrtTensorTypeAndShapeInfo **out))                           \
  X(85, KernelInfoGetAttribute_float, (const OrtKernelInfo *info, const char *name, float *out))                   \
  X(86, KernelInfoGetAttribute_int64, (const OrtKernelInfo *info, const char *name, int64_t *out))                 \
  X(87, KernelInfoGetAttribute_string, (const OrtKernelInfo *info, const char *name, char *out, size_t *size))     \
  X(89, KernelContext_GetOutputCount, (const OrtKernelContext *context, size_t *out))                               \
  X(90, KernelContext_GetInput, (const OrtKernelContext *context, size_t index, const OrtValue **out))             \
  X(91, KernelContext_GetOutput,                                                                                   \
    (OrtKernelContext *context, size_t index, const int64_t *dims, size_t count, OrtValue **out))                  \
  X(244, KernelInfo_GetNodeName, (const OrtKernelInfo *info, char *out, size_t *size))

/* The others. */
#define KV_ORT_CREATE_STATUS 0    /* OrtStatus *(int code, const char *message) */
#define KV_ORT_RELEASE_STATUS 93  /* void (OrtStatus *) */
#define KV_ORT_RELEASE_SHAPE 99   /* void (OrtTensorTypeAndShapeInfo *) */

typedef void (*kv_ort_slot)(void);

static inline kv_ort_slot kv_ort_at(const OrtApi *api, uint32_t slot) { return ((const kv_ort_slot *)(const void *)api)[slot]; }

/* ort_GetDimensions(api, ...) and so on. */
#define KV_ORT_TYPE(slot, name, parameters) typedef OrtStatus *(ORT_CALL *ort_type_##name) parameters;
KV_ORT_SLOTS(KV_ORT_TYPE)
#undef KV_ORT_TYPE
#define KV_ORT_NUMBER(slot, name, parameters) KV_ORT_SLOT_##name = slot,
enum { KV_ORT_SLOTS(KV_ORT_NUMBER) KV_ORT_SLOTS_END };
#undef KV_ORT_NUMBER
#define KV_ORT(api, name) ((ort_type_##name)kv_ort_at(api, KV_ORT_SLOT_##name))

static inline OrtStatus *kv_ort_status(const OrtApi *api, int code, const char *message) {
  return ((OrtStatus *(ORT_CALL *)(int, const char *))kv_ort_at(api, KV_ORT_CREATE_STATUS))(code, message);
}
static inline void kv_ort_release_status(const OrtApi *api, OrtStatus *status) {
  if (status) ((void(ORT_CALL *)(OrtStatus *))kv_ort_at(api, KV_ORT_RELEASE_STATUS))(status);
}
static inline void kv_ort_release_shape(const OrtApi *api, OrtTensorTypeAndShapeInfo *info) {
  ((void(ORT_CALL *)(OrtTensorTypeAndShapeInfo *))kv_ort_at(api, KV_ORT_RELEASE_SHAPE))(info);
}

#endif
