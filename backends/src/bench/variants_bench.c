/* Variants side by side: every kernel and the fused steps, interleaved in one process, medians of CPU time and their
 * ratios to scalar. Usage: variants_bench [REPEATS [NAME]]; NAME picks the lines that contain it.
 *
 *   cc -O2 -I backends/src -I backends/src/include ... with the objects of the library
 */
#include "bench.h"

#define MOST 401

static uint32_t repeats = 41;
static const char *only = "";

typedef struct work {
  kv_codec codec;
  uint32_t d, tokens, rows, queries;
  uint8_t *codes, *tiles, *halves, *bytes;
  int8_t *q;
  int16_t *w;
  float *x, *y, *t, *keep;
  int32_t *sum;
  void *tables;
  kv_cache *cache[KV_VARIANTS];
} work;

static work make(uint32_t mode, uint32_t d, uint32_t tokens, uint32_t rows) {
  work k = {.d = d, .tokens = tokens, .rows = rows};
  const uint64_t n = (uint64_t)tokens * d, most = n > (uint64_t)rows * d ? n : (uint64_t)rows * d;
  if (mode == 1) k.codec = kv_codec_signs(d);
  else kv_codec_of(mode, d, 0, &k.codec);
  k.codes = room(n), k.tiles = room(n), k.halves = room(2 * n), k.bytes = room(4 * n);
  k.q = room(rows * d), k.w = room(2ull * rows * (tokens + d));
  k.x = room(4 * most), k.y = room(4 * most), k.t = room(4ull * rows * tokens), k.keep = room(4 * most);
  k.sum = room(4ull * rows * (tokens + d));
  k.tables = room(kv_transform_bytes(d));
  kv_transform_make(1, 0, d, 2, k.tables);
  for (uint64_t i = 0; i < most; i++) k.keep[i] = k.x[i] = k.y[i] = draw_float();
  for (uint64_t i = 0; i < n; i++) {
    const kv_span *s = &k.codec.span[k.codec.spans == 2 && i % d >= d / 2];
    k.codes[i] = (uint8_t)(draw() % (1u << s->bits));
    kv_store16(k.halves + 2 * i, kv_f16(draw_float()));
  }
  for (uint32_t i = 0; i < rows * d; i++) k.q[i] = draw_query();
  for (uint32_t i = 0; i < rows * (tokens + d); i++) k.w[i] = (int16_t)(draw() % 16384);
  return k;
}

typedef void run_kernel(work *k, uint32_t variant, uint32_t *ran);
#define KERNELS (kv_variants[variant].kernels)

static void line(const char *name, work *k, run_kernel *run, double units, const char *unit) {
  static double times[KV_VARIANTS][MOST];
  double base = 0;
  uint32_t ran = 0, count = 1;
  if (!strstr(name, only)) return;
  for (double t = 0; t < 2e5 && count < 1u << 20; count *= 2) { /* long enough for the clock */
    const double start = now();
    for (uint32_t i = 0; i < count; i++) run(k, 0, &ran);
    t = now() - start;
    if (t >= 2e5) break;
  }
  for (uint32_t r = 0; r < repeats; r++)
    for (uint32_t v = 0; v < KV_VARIANTS; v++) {
      if (kv_variants[v].missing()) continue;
      const double start = now();
      for (uint32_t i = 0; i < count; i++) run(k, v, &ran);
      times[v][r] = (now() - start) / count;
    }
  printf("%-34s", name);
  for (uint32_t v = 0; v < KV_VARIANTS; v++) {
    if (kv_variants[v].missing()) continue;
    qsort(times[v], repeats, sizeof times[v][0], ascending);
    const double median = times[v][repeats / 2];
    if (v == 0) base = median;
    printf("  %s %9.3f (%5.2fx)", kv_variants[v].name, median / units, base / median);
  }
  printf("  ns / %s\n", unit);
  fflush(stdout);
}

static void keyscan(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->keyscan(&k->codec, k->d, k->tiles, k->tokens, k->q, k->rows, k->sum, k->tokens, ran);
}
static void keyscan15(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->keyscan15(&k->codec, k->d, k->tiles, k->tokens, k->w, k->rows, k->sum, k->tokens, ran);
}
static void valuesum(work *k, uint32_t variant, uint32_t *ran) {
  const uint8_t *tiles = k->tiles;
  for (uint32_t i = 0; i < k->codec.spans; i++) {
    const kv_span *s = &k->codec.span[i];
    KERNELS->valuesum(s, tiles, k->tokens, k->w, k->rows, k->sum, s->channels, ran);
    tiles += (uint64_t)k->tokens * s->channels * s->bits / 8;
  }
}
static void transform(work *k, uint32_t variant, uint32_t *ran) {
  kv_transform t = kv_transform_view(k->tables, k->d, 2);
  memcpy(k->x, k->keep, 4ull * k->rows * k->d);
  KERNELS->forward(&t, k->x, k->rows, ran);
}
static void quantize(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->quantize(&k->codec, k->d, 1, k->y, k->tokens, k->codes, k->t, ran);
}
static void pack_keys(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->pack_keys(&k->codec, k->d, k->codes, k->tokens, k->tiles, ran);
}
static void pack_values(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->pack_values(&k->codec, k->d, k->codes, k->tokens, k->tiles, ran);
}
static void affine_keys(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->affine_keys(2, k->y, k->tokens, k->d, k->codes, k->bytes, k->bytes + 4096, ran);
}
static void affine_values(work *k, uint32_t variant, uint32_t *ran) {
  for (uint32_t j = 0; j < k->tokens; j++)
    KERNELS->affine_values(2, k->y + j * k->d, k->d, k->codes, k->bytes, k->bytes + 4096, 1, ran);
}
static void query8(work *k, uint32_t variant, uint32_t *ran) {
  for (uint32_t r = 0; r < k->rows; r++) KERNELS->query8(k->keep + r * k->d, k->d, k->q + r * k->d, ran);
}
static void softmax(work *k, uint32_t variant, uint32_t *ran) {
  float stripes[16] = {0};
  memcpy(k->t, k->keep, 4ull * k->tokens);
  KERNELS->exponentials(k->t, k->tokens, KERNELS->maximum(k->t, k->tokens, ran), stripes, 0, ran);
}
static void weigh(work *k, uint32_t variant, uint32_t *ran) { KERNELS->weigh(k->t, k->t, k->tokens, k->w, ran); }
static void logits(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->logits(k->sum, k->keep, k->tokens, 0.3f, k->t, ran);
}
static void dots(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->dots(k->keep, k->d, k->rows, k->d, k->halves, 2 * k->d, k->tokens, k->t, k->tokens, ran);
}
static void weighted(work *k, uint32_t variant, uint32_t *ran) {
  KERNELS->weighted(k->t, k->tokens, k->rows, k->d, k->halves, 2 * k->d, k->tokens, k->x, ran);
}

static void kernels(void) {
  static const struct { uint32_t mode; const char *name; } modes[] = {
      {0x14, "2"}, {0x16, "3"}, {0x18, "4"}, {0x17, "3.5"}, {1, "sign"}};
  static const uint32_t rows[] = {1, 3, 4, 7, 8, 24};
  char name[80];
  for (uint32_t m = 0; m < 5; m++)
    for (uint32_t r = 0; r < 6; r++) {
      if (m != 2 && m != 1 && rows[r] != 4) continue;
      work k = make(modes[m].mode, 128, 1024, rows[r]);
      const double units = (double)k.tokens * k.rows;
      snprintf(name, sizeof name, "keyscan %s-bit, %u rows", modes[m].name, rows[r]);
      line(name, &k, keyscan, units, "token row");
      snprintf(name, sizeof name, "keyscan15 %s-bit, %u rows", modes[m].name, rows[r]);
      line(name, &k, keyscan15, units, "token row");
      snprintf(name, sizeof name, "valuesum %s-bit, %u rows", modes[m].name, rows[r]);
      line(name, &k, valuesum, units, "token row");
    }
  work k = make(0x18, 128, 1024, 32);
  line("query transform, 32 x 128", &k, transform, 1, "call");
  line("query8, 32 x 128", &k, query8, 1, "call");
  line("quantize 4-bit", &k, quantize, k.tokens, "token");
  line("pack_keys 4-bit", &k, pack_keys, k.tokens, "token");
  line("pack_values 4-bit", &k, pack_values, k.tokens, "token");
  work kivi = make(0x34, 128, 32, 4);
  line("affine_keys 2-bit", &kivi, affine_keys, kivi.tokens, "token");
  line("affine_values 2-bit", &kivi, affine_values, kivi.tokens, "token");
  work page = make(0x18, 128, 64, 4);
  line("maximum + exponentials, 64", &page, softmax, 64, "token");
  line("weigh, 64", &page, weigh, 64, "token");
  line("logits, 64", &page, logits, 64, "token");
  line("dots fp16, 4 rows", &page, dots, 256, "token row");
  line("weighted fp16, 4 rows", &page, weighted, 256, "token row");
  work one = make(0x18, 128, 64, 1);
  line("dots fp16, 1 row", &one, dots, 64, "token row");
}

static const kv_allocator *allocator; /* NULL: the library's own */

static void fill(work *k, kv_layer_spec *spec, uint32_t length) {
  const uint64_t n = (uint64_t)length * spec->kv_heads * spec->head_dim;
  float *x = room(4 * n);
  for (uint64_t i = 0; i < n; i++) x[i] = draw_float();
  for (uint32_t v = 0; v < KV_VARIANTS; v++) {
    if (kv_variants[v].missing()) continue;
    kv_cache_config config = {.layers = 1, .threads = 1, .specs = spec, .variant = kv_variants[v].name,
                              .allocator = allocator};
    kv_error error;
    if (kv_cache_create(&config, &k->cache[v], &error) || kv_cache_append(k->cache[v], 0, x, x, length, &error)) {
      fprintf(stderr, "%s\n", error.message);
      exit(1);
    }
  }
  free(x);
}

static void attend(work *k, uint32_t variant, uint32_t *ran) {
  kv_error error;
  (void)ran;
  if (kv_cache_attend(k->cache[variant], 0, k->keep, k->queries, k->x, &error)) exit(1);
}

/* Sixty-four tokens one by one: each 64th seals a page. */
static void append(work *k, uint32_t variant, uint32_t *ran) {
  const uint32_t width = 8 * k->d;
  kv_error error;
  (void)ran;
  for (uint32_t j = 0; j < 64; j++)
    if (kv_cache_append(k->cache[variant], 0, k->keep + j % 8 * width, k->y + j % 8 * width, 1, &error)) exit(1);
}

static void append_all(work *k, uint32_t variant, uint32_t *ran) {
  kv_error error;
  (void)ran;
  if (kv_cache_reset(k->cache[variant], &error)) exit(1);
  if (kv_cache_append(k->cache[variant], 0, k->keep, k->y, k->tokens, &error)) exit(1);
}

static void drop(work *k) {
  for (uint32_t v = 0; v < KV_VARIANTS; v++)
    if (k->cache[v]) kv_cache_destroy(k->cache[v]);
}

static void fused(void) {
  static const struct { uint16_t kv, q, d; uint32_t length, queries; } shapes[] = {
      {8, 32, 128, 4096, 1},  {8, 32, 128, 32768, 1},  {3, 9, 64, 2048, 1},
      {3, 9, 64, 8192, 1},    {8, 32, 128, 4096, 64},  {8, 32, 128, 4096, 512}};
  char name[80];
  for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    kv_layer_spec spec = turbo_spec(shapes[i].kv, shapes[i].q, shapes[i].d);
    snprintf(name, sizeof name, "attend turbo %u/%u d%u, %u x %u", spec.kv_heads, spec.query_heads, spec.head_dim,
             shapes[i].queries, shapes[i].length);
    if (!strstr(name, only)) continue;
    work k = make(0x17, spec.head_dim, 64, spec.query_heads * shapes[i].queries);
    k.queries = shapes[i].queries;
    fill(&k, &spec, shapes[i].length);
    line(name, &k, attend, 1000.0 * shapes[i].queries, "1000 queries: us");
    drop(&k);
  }
}

/* Memory that was touched before, as a cache that was reserved has it: else the first touch of each page of memory is
 * measured too. Nothing is given back. */
#define ARENA (640u << 20)
static uint8_t *arena;
static uint64_t arena_used;
static void *arena_take(void *context, uint64_t bytes) {
  void *p = arena + arena_used;
  (void)context;
  arena_used += (bytes + 63) / 64 * 64;
  return arena_used <= ARENA ? p : NULL;
}
static void arena_give_back(void *context, void *p, uint64_t bytes) { (void)context, (void)p, (void)bytes; }

static void appends(void) {
  kv_layer_spec spec = turbo_spec(8, 32, 128);
  const kv_allocator touched = {NULL, arena_take, arena_give_back};
  if (strstr("append turbo 8 x 128, touched memory", only)) {
    work k = make(0x17, 128, 64, 32);
    arena = room(ARENA);
    allocator = &touched;
    fill(&k, &spec, 200);
    allocator = NULL;
    line("append turbo 8 x 128, touched memory", &k, append, 64, "token");
    drop(&k);
    free(arena);
  }
  if (strstr("append turbo 8 x 128, fresh memory", only)) {
    work k = make(0x17, 128, 64, 32);
    fill(&k, &spec, 200);
    line("append turbo 8 x 128, fresh memory", &k, append, 64, "token");
    drop(&k);
  }
  if (strstr("append turbo 8 x 128, 4096 at once", only)) {
    work k = make(0x17, 128, 4096, 32);
    k.keep = room(4ull * 4096 * 1024), k.y = room(4ull * 4096 * 1024);
    for (uint64_t i = 0; i < 4096 * 1024; i++) k.keep[i] = k.y[i] = draw_float();
    fill(&k, &spec, 1);
    line("append turbo 8 x 128, 4096 at once", &k, append_all, 4096, "token");
    drop(&k);
  }
}

int main(int count, char **arguments) {
  if (count > 1) repeats = (uint32_t)atoi(arguments[1]);
  if (count > 2) only = arguments[2];
  if (repeats < 1 || repeats > MOST) return 2;
  kernels();
  fused();
  appends();
  return 0;
}
