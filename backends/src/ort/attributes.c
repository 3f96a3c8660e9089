/* A node's attributes: the spec, the identity, the variant and the threads, checked when the session is made. */
#include "node.h"

#include "core/base/bits.h"
#include "core/plan/fields.h"

/* 1 if the attribute was read, 0 if it is absent; any other type than the one asked for is refused. */
typedef enum found { ABSENT, FOUND, OTHER_TYPE } found;

static int works(const kv_node *node, OrtStatus *status) {
  kv_ort_release_status(node->api, status);
  return status == 0;
}

static int is_int(const kv_node *node, const OrtKernelInfo *info, const char *name, int64_t *out) {
  return works(node, KV_ORT(node->api, KernelInfoGetAttribute_int64)(info, name, out));
}

static int is_float(const kv_node *node, const OrtKernelInfo *info, const char *name, float *out) {
  return works(node, KV_ORT(node->api, KernelInfoGetAttribute_float)(info, name, out));
}

static int is_text(const kv_node *node, const OrtKernelInfo *info, const char *name, char *out, size_t room) {
  size_t size = 0;
  if (!works(node, KV_ORT(node->api, KernelInfoGetAttribute_string)(info, name, 0, &size))) return 0;
  if (size > room) { /* longer than any value there is: what was read stays unequal to all of them */
    kv_copy(out, "(too long)", 11);
    return 1;
  }
  return works(node, KV_ORT(node->api, KernelInfoGetAttribute_string)(info, name, out, &size));
}

static int any_type(const kv_node *node, const OrtKernelInfo *info, const char *name) {
  int64_t i;
  float f;
  char text[32];
  return is_int(node, info, name, &i) || is_float(node, info, name, &f) || is_text(node, info, name, text, sizeof text);
}

static int32_t integer(const kv_node *node, const OrtKernelInfo *info, const char *name, int64_t least, int64_t most,
                       int64_t *value, kv_error *error) {
  if (!is_int(node, info, name, value)) {
    if (any_type(node, info, name)) return kv_fail(error, KV_E_SPEC, "attribute %s must be an integer", name);
    if (*value < least) return kv_fail(error, KV_E_SPEC, "attribute %s is missing", name);
  }
  if (*value < least || *value > most)
    return kv_fail(error, KV_E_SPEC, "attribute %s is outside %l .. %l", name, (uint64_t)least, (uint64_t)most);
  return KV_OK;
}

/* One of `names`, separated by single spaces; its number. */
static int32_t choice(const kv_node *node, const OrtKernelInfo *info, const char *name, const char *const *names,
                      uint32_t count, uint32_t *chosen, kv_error *error) {
  char text[32] = "";
  if (!is_text(node, info, name, text, sizeof text)) {
    if (any_type(node, info, name)) return kv_fail(error, KV_E_SPEC, "attribute %s must be a string", name);
    *chosen = 0;
    return KV_OK;
  }
  for (*chosen = 0; *chosen < count; ++*chosen)
    if (kv_equal(text, names[*chosen])) return KV_OK;
  return kv_fail(error, KV_E_SPEC, "attribute %s: %s is not among its values: %s, %s%s", name, text, names[0], names[1],
                 count > 2 ? " ..." : "");
}

static const char *const modes[] = {"fp16",        "turbo:2",       "turbo:2.5",     "turbo:3",     "turbo:3.5",
                                    "turbo:4",     "turbo:2+qjl",   "turbo:2.5+qjl", "turbo:3+qjl", "turbo:3.5+qjl",
                                    "turbo:4+qjl", "kivi:2",        "kivi:3",        "kivi:4"};
static const uint8_t mode_numbers[] = {0x00, 0x14, 0x15, 0x16, 0x17, 0x18, 0x24, 0x25, 0x26, 0x27, 0x28, 0x34, 0x36, 0x38};
static const char *const centres[] = {"none", "frozen", "page"};
static const char *const scales[] = {"u8", "u8log", "fp16"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct field {
  const char *name;
  int64_t least, most, fallback; /* a fallback below `least`: the attribute must be given */
  uint32_t offset, bytes;
} field;

#define NUMBER(field, name, least, most, fallback) \
  {#name, least, most, fallback, offsetof(kv_layer_spec, field), KV_FIELD_BYTES(field)},
#define NAMED(field, name) /* read_names and read_scale */

static const field fields[] = {KV_EACH_SPEC_FIELD(NUMBER, NAMED)};

static int32_t read_numbers(const kv_node *node, const OrtKernelInfo *info, kv_layer_spec *spec, kv_error *error) {
  for (uint32_t i = 0; i < COUNT(fields); i++) {
    int64_t value = fields[i].fallback;
    int32_t code = integer(node, info, fields[i].name, fields[i].least, fields[i].most, &value, error);
    if (code) return code;
    kv_copy((uint8_t *)spec + fields[i].offset, &value, fields[i].bytes); /* little endian: the low bytes */
  }
  return KV_OK;
}

static int32_t read_names(const kv_node *node, const OrtKernelInfo *info, kv_layer_spec *spec, kv_error *error) {
  uint32_t key = 0, value = 0, key_centre = 0, value_centre = 0, scale = 0;
  int32_t code = choice(node, info, "keys", modes, COUNT(modes), &key, error);
  if (code == KV_OK) code = choice(node, info, "values", modes, COUNT(modes), &value, error);
  if (code == KV_OK) code = choice(node, info, "key_centre", centres, 3, &key_centre, error);
  if (code == KV_OK) code = choice(node, info, "value_centre", centres, 2, &value_centre, error);
  if (code == KV_OK) code = choice(node, info, "scale", scales, 3, &scale, error);
  if (code) return code;
  spec->key_mode = mode_numbers[key];
  spec->value_mode = mode_numbers[value];
  spec->key_centre = (uint8_t)key_centre;
  spec->value_centre = (uint8_t)value_centre;
  spec->scale_kind = (uint8_t)scale;
  return KV_OK;
}

static int32_t read_scale(const kv_node *node, const OrtKernelInfo *info, kv_layer_spec *spec, kv_error *error) {
  if (is_float(node, info, "softmax_scale", &spec->softmax_scale)) return KV_OK;
  if (any_type(node, info, "softmax_scale"))
    return kv_fail(error, KV_E_SPEC, "attribute softmax_scale must be a float");
  spec->softmax_scale = (float)(1.0 / __builtin_sqrt((double)spec->head_dim));
  return KV_OK;
}

static int32_t read_identity(kv_node *node, const OrtKernelInfo *info, kv_error *error) {
  static const char *const names[] = {"model", "tokenizer", "runtime"};
  uint64_t *const to[] = {&node->id.model, &node->id.tokenizer, &node->id.runtime};
  int64_t value = 0;
  int32_t code = integer(node, info, "layer", 0, 65534, &value, error);
  node->id.layer = (uint32_t)value;
  for (uint32_t i = 0; code == KV_OK && i < 3; i++) {
    value = 0;
    code = integer(node, info, names[i], INT64_MIN, INT64_MAX, &value, error);
    *to[i] = (uint64_t)value;
  }
  return code;
}

/* What all operators have. */
static int32_t read_running(kv_node *node, const OrtKernelInfo *info, kv_error *error) {
  int64_t threads = 1;
  const int32_t code = integer(node, info, "threads", 1, KV_MAX_THREADS, &threads, error);
  if (code) return code;
  if (!is_text(node, info, "variant", node->variant, sizeof node->variant)) {
    if (any_type(node, info, "variant")) return kv_fail(error, KV_E_SPEC, "attribute variant must be a string");
    node->variant[0] = 0;
  }
  node->threads = (uint32_t)threads;
  return KV_OK;
}

int32_t kv_linear_attributes(kv_node *node, const OrtKernelInfo *info, kv_error *error) {
  static const char *const names[] = {"q4_1", "q8_0"};
  uint32_t chosen = 0;
  if (!any_type(node, info, "type")) return kv_fail(error, KV_E_SPEC, "attribute type is missing: q4_1 or q8_0");
  const int32_t code = choice(node, info, "type", names, COUNT(names), &chosen, error);
  node->weights = (kv_weights)chosen;
  return code ? code : read_running(node, info, error);
}

int32_t kv_node_attributes(kv_node *node, const OrtKernelInfo *info, kv_error *error) {
  int64_t in_place = 1;
  int32_t code = read_numbers(node, info, &node->spec, error);
  if (code == KV_OK) code = read_names(node, info, &node->spec, error);
  if (code == KV_OK) code = read_scale(node, info, &node->spec, error);
  if (code == KV_OK) code = read_identity(node, info, error);
  if (code == KV_OK) code = read_running(node, info, error);
  if (code == KV_OK) code = integer(node, info, "in_place", 0, 1, &in_place, error);
  if (code) return code;
  node->in_place = (int)in_place;
  return kv_supports(&node->spec, error);
}
