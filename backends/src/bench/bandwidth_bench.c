/* Scans and attention against a plain read of the bytes they read, or that an fp16 cache would; and attention by group
 * size. Interleaved in one process, medians of CPU time. Usage: bandwidth_bench [VARIANT [REPEATS]].
 *
 *   cc -O2 -I backends/src -I backends/src/include ... with the objects of the library
 */
#include "bench.h"

#define MOST 201

static uint32_t repeats = 41, variant;
static volatile uint64_t sink; /* so that reads are not dropped */

/* Four streams of 32 bytes: as fast as this CPU reads. */
static void plain_read(const void *from, uint64_t bytes) {
  typedef uint64_t four __attribute__((vector_size(32), aligned(8)));
  const four *p = from;
  four a = {0}, b = a, c = a, d = a;
  for (uint64_t i = 0; i + 4 <= bytes / 32; i += 4) a += p[i], b += p[i + 1], c += p[i + 2], d += p[i + 3];
  a += b + c + d;
  sink = a[0] + a[1] + a[2] + a[3];
}

/* Two things by turns, each `rounds` times between two looks at the clock. */
typedef void run(void *context);
static void pair(run *first, run *second, void *context, uint32_t rounds, double *a, double *b) {
  static double x[MOST], y[MOST];
  for (uint32_t r = 0; r < repeats; r++) {
    double start = now();
    for (uint32_t i = 0; i < rounds; i++) first(context);
    x[r] = (now() - start) / rounds;
    start = now();
    for (uint32_t i = 0; i < rounds; i++) second(context);
    y[r] = (now() - start) / rounds;
  }
  *a = median(x, repeats), *b = median(y, repeats);
}

typedef struct scan {
  kv_codec codec;
  uint8_t *tiles;
  uint32_t tokens, call; /* tokens of one call */
  int8_t q[128];
  int32_t *out;
} scan;

static void run_scan(void *context) {
  const scan *s = context;
  uint32_t ran = 0;
  for (uint32_t j = 0; j < s->tokens; j += s->call) {
    if (s->call == 64) /* as the core does for the page after this one */
      for (uint32_t i = 0; i < 64 * 64; i += 64) __builtin_prefetch(s->tiles + 64ull * (j + 64) + i, 0, 2);
    kv_variants[variant].kernels->keyscan(&s->codec, 128, s->tiles + 64ull * j, s->call, s->q, 1, s->out, s->call,
                                          &ran);
  }
}
static void read_scan(void *context) {
  const scan *s = context;
  plain_read(s->tiles, 64ull * s->tokens);
}

static void scans(void) {
  static const struct { const char *where; uint32_t mib, call, rounds; } cases[] = {
      {"L2", 0, 2048, 64}, {"L3", 8, 2048, 1}, {"L3, pages of 64", 8, 64, 1}, {"DRAM", 256, 2048, 1},
      {"DRAM, pages of 64", 256, 64, 1}};
  for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const uint64_t bytes = cases[i].mib ? (uint64_t)cases[i].mib << 20 : 256u << 10;
    scan s = {.tiles = room(bytes), .tokens = (uint32_t)(bytes / 64), .call = cases[i].call, .out = room(4 * 2048)};
    double scanned, read;
    kv_codec_of(0x18, 128, 1, &s.codec);
    for (uint64_t k = 0; k < bytes; k += 4) kv_store32(s.tiles + k, draw());
    for (uint32_t c = 0; c < 128; c++) s.q[c] = draw_query();
    pair(run_scan, read_scan, &s, cases[i].rounds, &scanned, &read);
    printf("keyscan 4-bit, d128, 1 query, %-18s %6.1f GB/s, plain read %6.1f: %.2f of it\n", cases[i].where,
           (double)bytes / scanned, (double)bytes / read, read / scanned);
    free(s.tiles), free(s.out);
  }
}

typedef struct attention {
  kv_cache *cache;
  float *q, *out;
  uint8_t *fp16; /* as large as keys and values at two bytes each */
  uint64_t bytes;
} attention;

static void run_attend(void *context) {
  const attention *a = context;
  kv_error error;
  if (kv_cache_attend(a->cache, 0, a->q, 1, a->out, &error)) exit(1);
}
static void read_fp16(void *context) {
  const attention *a = context;
  plain_read(a->fp16, a->bytes);
}

static attention filled(uint16_t kv_heads, uint16_t query_heads, uint16_t d, uint32_t length) {
  const kv_layer_spec spec = turbo_spec(kv_heads, query_heads, d);
  const kv_cache_config config = {.layers = 1, .threads = 1, .specs = &spec, .variant = kv_variants[variant].name};
  const uint64_t n = (uint64_t)length * kv_heads * d;
  attention a = {.bytes = 4 * n};
  kv_error error;
  float *x = room(4 * n);
  for (uint64_t i = 0; i < n; i++) x[i] = draw_float() + draw_float() + draw_float();
  if (kv_cache_create(&config, &a.cache, &error) || kv_cache_append(a.cache, 0, x, x, length, &error)) {
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  a.q = room(4ull * query_heads * d), a.out = room(4ull * query_heads * d);
  for (uint32_t i = 0; i < (uint32_t)query_heads * d; i++) a.q[i] = draw_float() + draw_float() + draw_float();
  a.fp16 = (uint8_t *)x; /* its 4 n bytes are as many as the fp16 keys and values */
  return a;
}

static void drop(attention *a) {
  kv_cache_destroy(a->cache);
  free(a->q), free(a->out), free(a->fp16);
}

static void attends(void) {
  static const struct { uint16_t kv, q, d; uint32_t length; } shapes[] = {
      {8, 32, 128, 4096}, {8, 32, 128, 32768}, {3, 9, 64, 2048}, {3, 9, 64, 8192}};
  for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    attention a = filled(shapes[i].kv, shapes[i].q, shapes[i].d, shapes[i].length);
    double attend, read;
    pair(run_attend, read_fp16, &a, 1, &attend, &read);
    printf("attend turbo %u/%u d%u, %5u: %8.0f us, plain read of the fp16 cache %8.0f: %.2f of it\n", shapes[i].kv,
           shapes[i].q, shapes[i].d, shapes[i].length, attend / 1000, read / 1000, attend / read);
    drop(&a);
  }
  static const uint16_t groups[] = {1, 3, 4, 7, 8, 24};
  for (uint32_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    attention a = filled(2, 2 * groups[i], 128, 4096);
    double attend, read;
    pair(run_attend, read_fp16, &a, 1, &attend, &read);
    printf("attend turbo, group of %2u, d128, 4096: %6.2f ns a token and query head\n", groups[i],
           attend / (4096.0 * 2 * groups[i]));
    drop(&a);
  }
}

int main(int count, char **arguments) {
  kv_error error;
  if (kv_variant_find(count > 1 ? arguments[1] : NULL, &variant, &error)) {
    fprintf(stderr, "%s\n", error.message);
    return 2;
  }
  if (count > 2) repeats = (uint32_t)atoi(arguments[2]);
  if (repeats < 1 || repeats > MOST) return 2;
  printf("variant %s\n", kv_variants[variant].name);
  scans();
  attends();
  return 0;
}
