#include "sums.h"

float kv_tree16(float s[16]) {
  for (int h = 8; h > 0; h >>= 1)
    for (int i = 0; i < h; i++) s[i] = s[i] + s[i + h];
  return s[0];
}
