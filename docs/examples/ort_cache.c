/* A KV cache in ONNX Runtime, from C: one layer, 40 tokens appended one by one, each attended.
 *
 *   ort_cache MODEL.onnx libkvassay.so CACHE_BYTES
 *
 * The model has Append and Attend with 2 KV heads, 4 query heads and a head dim of 64 (docs/onnxruntime.md). Prints the
 * last output, a number a line. */
#include <stdio.h>
#include <stdlib.h>

#include "onnxruntime_c_api.h"

enum { TOKENS = 40, KV = 2 * 64, QUERY = 4 * 64 };

static const OrtApi *ort;

static void ok(OrtStatus *status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ort->GetErrorMessage(status)); /* names the node, a code of kvassay.h and the fix */
  exit(1);
}

static OrtValue *tensor(OrtMemoryInfo *memory, void *data, size_t bytes, const int64_t *shape, size_t rank,
                        ONNXTensorElementDataType type) {
  OrtValue *value = NULL;
  ok(ort->CreateTensorWithDataAsOrtValue(memory, data, bytes, shape, rank, type, &value));
  return value;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  ort = OrtGetApiBase()->GetApi(16);
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtMemoryInfo *memory;
  OrtIoBinding *binding;
  ok(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "example", &env));
  ok(ort->CreateSessionOptions(&options));
  ok(ort->RegisterCustomOpsLibrary_V2(options, argv[2]));
  ok(ort->CreateSession(env, argv[1], options, &session));
  ok(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
  ok(ort->CreateIoBinding(session, &binding));

  /* The cache is ours: zeros to begin with, the same bytes as input and output. */
  const int64_t bytes = atoll(argv[3]), rows[] = {1, 2, 64}, queries[] = {1, 4, 64};
  void *block = calloc(1, (size_t)bytes);
  float keys[KV], values[KV], query[QUERY], output[QUERY] = {0};
  OrtValue *cache = tensor(memory, block, (size_t)bytes, &bytes, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
  ok(ort->BindInput(binding, "cache", cache));
  ok(ort->BindOutput(binding, "cache_out", cache));
  ok(ort->BindInput(binding, "keys", tensor(memory, keys, sizeof keys, rows, 3, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)));
  ok(ort->BindInput(binding, "values", tensor(memory, values, sizeof values, rows, 3, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)));
  ok(ort->BindInput(binding, "query", tensor(memory, query, sizeof query, queries, 3, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)));
  ok(ort->BindOutput(binding, "output", tensor(memory, output, sizeof output, queries, 3, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)));

  for (int t = 0; t < TOKENS; t++) {
    for (int i = 0; i < KV; i++) {
      keys[i] = (float)((i * 37 + t * 11) % 101 - 50) / 32;
      values[i] = (float)((i * 53 + t * 7) % 97 - 48) / 32;
    }
    for (int i = 0; i < QUERY; i++) query[i] = (float)((i * 29 + t * 13) % 89 - 44) / 32;
    ok(ort->RunWithBinding(session, NULL, binding));
  }
  for (int i = 0; i < QUERY; i++) printf("%a\n", output[i]);
  return 0;
}
