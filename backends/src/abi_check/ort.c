/* Compiled, never linked: what ort/abi.h declares against ONNX Runtime's own header. */
#include <onnxruntime_c_api.h>

#define KV_ORT_OFFICIAL
#include "ort/abi.h"

_Static_assert(ORT_API_VERSION >= KV_ORT_API, "a header older than the interface that is asked for");

#define AT(slot, name) _Static_assert(offsetof(OrtApi, name) == slot * sizeof(void *), "slot of " #name)
#define SLOT(slot, name, parameters) AT(slot, name);
KV_ORT_SLOTS(SLOT)
AT(KV_ORT_CREATE_STATUS, CreateStatus);
#ifdef KV_PLANTED /* a wrong slot, to see it refused */
AT(KV_ORT_CREATE_STATUS + 1, CreateStatus);
#endif
AT(KV_ORT_RELEASE_STATUS, ReleaseStatus);
AT(KV_ORT_RELEASE_SHAPE, ReleaseTensorTypeAndShapeInfo);

#define FIELD(name) _Static_assert(offsetof(kv_ort_op, name) == offsetof(OrtCustomOp, name), "field " #name)
FIELD(version);
FIELD(CreateKernel);
FIELD(GetName);
FIELD(GetExecutionProviderType);
FIELD(GetInputType);
FIELD(GetInputTypeCount);
FIELD(GetOutputType);
FIELD(GetOutputTypeCount);
FIELD(KernelCompute);
FIELD(KernelDestroy);
FIELD(GetInputCharacteristic);
FIELD(GetOutputCharacteristic);
FIELD(GetInputMemoryType);
FIELD(GetVariadicInputMinArity);
FIELD(GetVariadicInputHomogeneity);
FIELD(GetVariadicOutputMinArity);
FIELD(GetVariadicOutputHomogeneity);
FIELD(CreateKernelV2);
FIELD(KernelComputeV2);

_Static_assert(offsetof(OrtApiBase, GetApi) == 0, "GetApi");
_Static_assert(offsetof(OrtApiBase, GetVersionString) == sizeof(void *), "GetVersionString");
_Static_assert((int)KV_ORT_FAIL == (int)ORT_FAIL, "status codes");
_Static_assert((int)KV_ORT_INVALID_ARGUMENT == (int)ORT_INVALID_ARGUMENT, "status codes");
_Static_assert((int)KV_ORT_FLOAT == (int)ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, "element types");
_Static_assert((int)KV_ORT_UINT8 == (int)ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, "element types");
_Static_assert((int)KV_ORT_INT64 == (int)ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, "element types");
_Static_assert((int)KV_ORT_REQUIRED == (int)INPUT_OUTPUT_REQUIRED, "characteristics");
_Static_assert((int)KV_ORT_OPTIONAL == (int)INPUT_OUTPUT_OPTIONAL, "characteristics");
_Static_assert(sizeof(enum ONNXTensorElementDataType) == sizeof(int), "enums are passed as int");

/* Parameters: an assignment of other pointers does not compile. Those that name an operator or an enum are ours. */
#define SAME(name) ort_type_##name name = api->name
void kv_ort_parameters(const OrtApi *api);
void kv_ort_parameters(const OrtApi *api) {
  SAME(CreateCustomOpDomain);
  SAME(AddCustomOpDomain);
  SAME(GetTensorMutableData);
  SAME(GetDimensionsCount);
  SAME(GetDimensions);
  SAME(GetTensorTypeAndShape);
  SAME(KernelInfoGetAttribute_float);
  SAME(KernelInfoGetAttribute_int64);
  SAME(KernelInfoGetAttribute_string);
  SAME(KernelContext_GetOutputCount);
  SAME(KernelContext_GetInput);
  SAME(KernelContext_GetOutput);
  SAME(KernelInfo_GetNodeName);
  (void)CreateCustomOpDomain, (void)AddCustomOpDomain, (void)GetTensorMutableData, (void)GetDimensionsCount;
  (void)GetDimensions, (void)GetTensorTypeAndShape, (void)KernelInfoGetAttribute_float;
  (void)KernelInfoGetAttribute_int64, (void)KernelInfoGetAttribute_string, (void)KernelContext_GetOutputCount;
  (void)KernelContext_GetInput, (void)KernelContext_GetOutput, (void)KernelInfo_GetNodeName;
}
