/* A kernel for each number of bits and of rows, as constants. */
#ifndef KV_KERNELS_INSTANCES_H
#define KV_KERNELS_INSTANCES_H

#ifdef KV_EMULATE /* emulated intrinsics are long: once is enough */
#define KV_INLINE static __attribute__((unused))
#else
#define KV_INLINE static inline __attribute__((always_inline))
#endif

/* f_of[bits - 1][rows - 1]: f with both constant, each a function of its own. In one body compilers keep the constants
 * of all cases in registers and spill the sums. */
#define KV_INSTANCE(f, bits, rows, parameters, ...)                          \
  static __attribute__((noinline)) void f##_##bits##_##rows parameters {     \
    f(__VA_ARGS__, bits, rows);                                              \
  }
#define KV_INSTANCES_OF(f, bits, parameters, ...)       \
  KV_INSTANCE(f, bits, 1, parameters, __VA_ARGS__)      \
  KV_INSTANCE(f, bits, 2, parameters, __VA_ARGS__)      \
  KV_INSTANCE(f, bits, 3, parameters, __VA_ARGS__)      \
  KV_INSTANCE(f, bits, 4, parameters, __VA_ARGS__)
#define KV_INSTANCES(f, parameters, ...)                   \
  KV_INSTANCES_OF(f, 1, parameters, __VA_ARGS__)           \
  KV_INSTANCES_OF(f, 2, parameters, __VA_ARGS__)           \
  KV_INSTANCES_OF(f, 3, parameters, __VA_ARGS__)           \
  KV_INSTANCES_OF(f, 4, parameters, __VA_ARGS__)           \
  static void(*const f##_of[4][4]) parameters = {          \
      {f##_1_1, f##_1_2, f##_1_3, f##_1_4}, {f##_2_1, f##_2_2, f##_2_3, f##_2_4}, \
      {f##_3_1, f##_3_2, f##_3_3, f##_3_4}, {f##_4_1, f##_4_2, f##_4_3, f##_4_4}};

/* f_of[rows - 1]: f with the number of rows constant. */
#define KV_ROW_INSTANCE(f, rows, parameters, ...)               \
  static __attribute__((noinline)) void f##_##rows parameters { \
    f(__VA_ARGS__, rows);                                       \
  }
#define KV_ROW_INSTANCES(f, parameters, ...)     \
  KV_ROW_INSTANCE(f, 1, parameters, __VA_ARGS__) \
  KV_ROW_INSTANCE(f, 2, parameters, __VA_ARGS__) \
  KV_ROW_INSTANCE(f, 3, parameters, __VA_ARGS__) \
  KV_ROW_INSTANCE(f, 4, parameters, __VA_ARGS__) \
  static void(*const f##_of[4]) parameters = {f##_1, f##_2, f##_3, f##_4};

#endif
