/* Runs the inputs of the named files through a fuzz target, without a fuzzer: replay FILE... */
#include "support.h"

static void run(const char *path) {
  FILE *stream = fopen(path, "rb");
  long size = 0;
  uint8_t *data;
  CHECK(stream != NULL && fseek(stream, 0, SEEK_END) == 0);
  size = ftell(stream);
  rewind(stream);
  data = malloc((size_t)size + 1);
  CHECK(size >= 0 && data != NULL && fread(data, 1, (size_t)size, stream) == (size_t)size);
  fclose(stream);
  LLVMFuzzerTestOneInput(data, (size_t)size);
  free(data);
}

int main(int count, char **names) {
  for (int i = 1; i < count; i++) run(names[i]);
  printf("%d inputs\n", count - 1);
  return count > 1 ? 0 : 1;
}
