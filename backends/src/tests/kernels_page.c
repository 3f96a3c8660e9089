/* Pages from outside: any flipped bit, any cut, any field of another cache is refused. */
#include "kernels_support.h"

#include "core/base/crc32.h"

static const kv_page_id ID = {11, 22, 33, 3, 5};

typedef struct sample {
  kv_layer_spec spec;
  void *plan;
  uint8_t *page;
  uint64_t bytes;
} sample;

static sample encode(kv_layer_spec spec) {
  sample s = {.spec = spec, .plan = plan_of(&spec)};
  kv_error error;
  uint64_t state = 9, scratch_bytes, row = (uint64_t)spec.kv_heads * spec.head_dim;
  uint16_t *k = draw_rows(&state, spec.page_tokens * row), *v = draw_rows(&state, spec.page_tokens * row);
  uint16_t *mean = draw_rows(&state, row);
  kv_rows keys = {k, row, spec.head_dim}, values = {v, row, spec.head_dim};
  void *scratch = scratch_of(s.plan, 1, &scratch_bytes);
  s.bytes = kv_plan_page_bytes(s.plan);
  s.page = block(s.bytes);
  CHECK(kv_scratch_ran(scratch) == 0);
  CHECK(kv_page_encode(s.plan, &ID, &keys, &values, mean, mean, s.page, s.bytes, scratch, scratch_bytes, &error) ==
        KV_OK);
  CHECK(kv_page_check(s.plan, &ID, s.page, s.bytes, &error) == KV_OK);
  CHECK(is_forced(kv_scratch_ran(scratch)));
  free(k);
  free(v);
  free(mean);
  free(scratch);
  return s;
}

static void release(sample *s) {
  free(s->plan);
  free(s->page);
}

static void flips_and_cuts(kv_layer_spec spec) {
  sample s = encode(spec);
  kv_error error;
  for (uint64_t bit = 0; bit < 8 * s.bytes; bit++) {
    s.page[bit / 8] ^= (uint8_t)(1 << bit % 8);
    int32_t code = kv_page_check(s.plan, &ID, s.page, s.bytes, &error);
    CHECK((code == KV_E_PAGE || code == KV_E_IDENTITY) && error.code == code && error.message[0]);
    s.page[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (uint64_t bytes = 0; bytes < s.bytes; bytes += bytes < 80 ? 1 : 37) {
    uint8_t *cut = malloc(bytes + !bytes); /* of exactly that size, at any alignment of its end */
    memcpy(cut, s.page, bytes);
    CHECK(kv_page_check(s.plan, NULL, cut, bytes, &error) == KV_E_PAGE);
    free(cut);
  }
  CHECK(kv_page_check(s.plan, NULL, s.page, s.bytes, &error) == KV_OK);
  release(&s);
}

/* Writes `size` bytes at `at` and mends the CRC, so that only the reader's own rules can refuse. */
static int32_t forged(const sample *s, uint64_t at, uint64_t value, uint32_t size) {
  uint8_t *page = block(s->bytes);
  kv_error error;
  memcpy(page, s->page, s->bytes);
  memcpy(page + at, &value, size);
  kv_store32(page + 44, kv_crc32_without(page, s->bytes, 44));
  int32_t code = kv_page_check(s->plan, &ID, page, s->bytes, &error);
  free(page);
  return code;
}

static void forged_fields(void) {
  sample s = encode(spec_of(0x26, 0x16));
  static const uint32_t other_cache[] = {8, 16, 24, 32, 50, 52, 54, 58}; /* hashes, seed, sizes, transform */
  for (size_t i = 0; i < sizeof other_cache / sizeof other_cache[0]; i++)
    CHECK(forged(&s, other_cache[i], 9, 2) == KV_E_IDENTITY);
  CHECK(forged(&s, 54, 0xffff, 2) == KV_E_IDENTITY); /* sizes that would wrap 32 bits */
  CHECK(forged(&s, 50, 0, 2) == KV_E_IDENTITY && forged(&s, 52, 0, 2) == KV_E_IDENTITY);
  CHECK(forged(&s, 60, 0x46, 1) == KV_E_IDENTITY && forged(&s, 61, 0x26, 1) == KV_E_IDENTITY);
  CHECK(forged(&s, 40, 9, 2) == KV_E_PAGE);         /* token start */
  CHECK(forged(&s, 48, 9, 2) == KV_E_PAGE);         /* layer */
  CHECK(forged(&s, 4, 3, 2) == KV_E_PAGE);          /* version */
  CHECK(forged(&s, 6, 0x0200, 2) == KV_E_PAGE);     /* codebook version */
  CHECK(forged(&s, 6, 0x0140, 2) == KV_E_PAGE);     /* unknown flag */
  CHECK(forged(&s, 62, 1, 2) == KV_E_PAGE);         /* reserved */
  CHECK(forged(&s, 56, 96, 2) == KV_E_PAGE);        /* stored dim */
  CHECK(forged(&s, s.bytes - 1, 1, 1) == KV_E_PAGE); /* the tail */
  release(&s);
}

static void forged_numbers(void) {
  static const uint32_t bad32[] = {0x80000000u, 0xbf800000u, 0x7f800000u, 0x7fc00000u, 1, 0x007fffffu};
  static const uint16_t bad16[] = {0x8000, 0xbc00, 0x7c00, 0xfc00, 0x7e00};
  kv_layer_spec turbo = spec_of(0x26, 0x16), kivi = spec_of(0x34, 0x38), plain = spec_of(0, 0);
  kivi.key_centre = KV_CENTRE_PAGE;
  sample s = encode(turbo), i = encode(kivi), f = encode(plain);
  kv_layout at;
  kv_layout_of(&turbo, &at);
  for (uint32_t stream = KV_KEY_MAXIMA; stream <= KV_VALUE_MAXIMA; stream++)
    for (int n = 0; n < 6; n++) CHECK(forged(&s, at.offset[stream] + 4, bad32[n], 4) == KV_E_PAGE);
  CHECK(forged(&s, at.offset[KV_KEY_MAXIMA], 0, 4) == KV_OK); /* zero means zero vectors */
  kv_layout_of(&kivi, &at);
  for (int n = 0; n < 5; n++) {
    CHECK(forged(&i, at.offset[KV_KEY_STEPS] + 2, bad16[n], 2) == KV_E_PAGE);
    CHECK(forged(&i, at.offset[KV_VALUE_STEPS] + 2, bad16[n], 2) == KV_E_PAGE);
    const int32_t expected = n < 2 ? KV_OK : KV_E_PAGE; /* these may be negative */
    CHECK(forged(&i, at.offset[KV_KEY_MINIMA] + 2, bad16[n], 2) == expected);
    CHECK(forged(&i, at.offset[KV_KEY_MEAN] + 2, bad16[n], 2) == expected);
    CHECK(forged(&f, 64, bad16[n], 2) == expected);
  }
  turbo.scale_kind = KV_SCALE_FP16;
  sample h = encode(turbo);
  kv_layout_of(&turbo, &at);
  for (int n = 0; n < 5; n++)
    for (uint32_t stream = KV_KEY_SCALES; stream <= KV_VALUE_SCALES; stream++)
      CHECK(forged(&h, at.offset[stream], bad16[n], 2) == KV_E_PAGE);
  release(&s);
  release(&i);
  release(&f);
  release(&h);
}

static void test(void) {
  kv_layer_spec spec = spec_of(0x15, 0x17);
  spec.kv_heads = spec.query_heads = 1;
  spec.head_dim = 48;
  spec.key_centre = KV_CENTRE_PAGE;
  flips_and_cuts(spec);
  spec.key_mode = 0x34, spec.value_mode = 0x38, spec.head_dim = 16;
  flips_and_cuts(spec);
  forged_fields();
  forged_numbers();
}

int main(void) { return for_each_variant("kernels_page", 0, test); }
