#include "fail.h"

#include <stdarg.h>

typedef struct writer {
  char *text;
  uint32_t used, size;
} writer;

static void put(writer *w, char c) {
  if (w->used + 1 < w->size) w->text[w->used++] = c;
}

static void put_number(writer *w, uint64_t value, uint32_t base) {
  char digits[24];
  uint32_t n = 0;
  do {
    digits[n++] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value);
  while (n) put(w, digits[--n]);
}

static void put_text(writer *w, const char *text) {
  while (*text) put(w, *text++);
}

static void reset(kv_error *error, int32_t code) {
  error->code = code;
  error->layer = error->head = error->channel = -1;
  error->token = -1;
  error->message[0] = 0;
}

int32_t kv_success(kv_error *error) {
  if (error) reset(error, KV_OK);
  return KV_OK;
}

int32_t kv_fail(kv_error *error, int32_t code, const char *format, ...) {
  if (!error) return code;
  reset(error, code);
  writer w = {error->message, 0, sizeof error->message};
  va_list args;
  va_start(args, format);
  for (const char *f = format; *f; f++) {
    if (*f != '%') {
      put(&w, *f);
      continue;
    }
    switch (*++f) {
      case 's': put_text(&w, va_arg(args, const char *)); break;
      case 'u': put_number(&w, va_arg(args, uint32_t), 10); break;
      case 'l': put_number(&w, va_arg(args, uint64_t), 10); break;
      case 'x': put_number(&w, va_arg(args, uint64_t), 16); break;
      default: put(&w, *f); break;
    }
  }
  va_end(args);
  w.text[w.used] = 0;
  return code;
}
