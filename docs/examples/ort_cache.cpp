// A KV cache in ONNX Runtime, from C++: what ort_cache.c does.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "onnxruntime_cxx_api.h"

namespace {

constexpr int tokens = 40, kv = 2 * 64, width = 4 * 64;

void run(const char *model, const char *library, std::int64_t bytes) {
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "example");
  Ort::SessionOptions options;
  options.RegisterCustomOpsLibrary(library);
  Ort::Session session(env, model, options);
  Ort::IoBinding binding(session);
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);

  // The cache is ours: zeros to begin with, the same bytes as input and output.
  std::vector<std::uint8_t> block(static_cast<std::size_t>(bytes));
  std::vector<float> keys(kv), values(kv), query(width), output(width);
  const std::int64_t rows[] = {1, 2, 64}, queries[] = {1, 4, 64};
  const auto cache = Ort::Value::CreateTensor<std::uint8_t>(memory, block.data(), block.size(), &bytes, 1);
  const auto floats = [&](std::vector<float> &data, const std::int64_t *shape) {
    return Ort::Value::CreateTensor<float>(memory, data.data(), data.size(), shape, 3);
  };
  binding.BindInput("cache", cache);
  binding.BindOutput("cache_out", cache);
  binding.BindInput("keys", floats(keys, rows));
  binding.BindInput("values", floats(values, rows));
  binding.BindInput("query", floats(query, queries));
  binding.BindOutput("output", floats(output, queries));

  for (int t = 0; t < tokens; t++) {
    for (int i = 0; i < kv; i++) {
      keys[i] = static_cast<float>((i * 37 + t * 11) % 101 - 50) / 32;
      values[i] = static_cast<float>((i * 53 + t * 7) % 97 - 48) / 32;
    }
    for (int i = 0; i < width; i++) query[i] = static_cast<float>((i * 29 + t * 13) % 89 - 44) / 32;
    session.Run(Ort::RunOptions{nullptr}, binding);
  }
  for (const float x : output) std::printf("%a\n", x);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  try {
    run(argv[1], argv[2], std::atoll(argv[3]));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());  // names the node, a code of kvassay.h and the fix
    return 1;
  }
  return 0;
}
