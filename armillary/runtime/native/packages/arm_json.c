/* A strict JSON reader for descriptors and graphs that may be hostile.
 *
 * In: bytes. Out: a flat table of values, children chained by index; texts are unescaped into one block.
 * Invariant: depth, number of values and integers are bounded; reals keep only their kind (nothing here needs one).
 */
#include "arm_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

typedef struct {
  const char *text, *end, *start;
  char *strings;
  arm_json *json;
  arm_error *error;
} parser;

static int fail_at(parser *p, const char *what) {
  return arm_fail(p->error, "JSON: %s at byte %zu", what, (size_t)(p->text - p->start));
}

static void skip_space(parser *p) {
  while (p->text < p->end && (*p->text == ' ' || *p->text == '\n' || *p->text == '\t' || *p->text == '\r')) p->text++;
}

static int32_t new_value(parser *p, arm_json_kind kind) {
  arm_json *json = p->json;
  if (json->count == json->capacity) {
    if (json->capacity > (1 << 27)) return fail_at(p, "too many values");
    int32_t capacity = json->capacity ? json->capacity * 2 : 256;
    arm_json_value *values = realloc(json->values, (size_t)capacity * sizeof *values);
    if (values == NULL) return fail_at(p, "out of memory");
    json->values = values;
    json->capacity = capacity;
  }
  json->values[json->count] = (arm_json_value){kind, -1, -1, 0, NULL, NULL, 0};
  return json->count++;
}

static int hex4(const char *text, unsigned *out) {
  *out = 0;
  for (int i = 0; i < 4; i++) {
    char c = text[i];
    unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10 : 16;
    if (digit > 15) return -1;
    *out = *out * 16 + digit;
  }
  return 0;
}

static void put_utf8(parser *p, unsigned c) {
  char *s = p->strings;
  if (c < 0x80) {
    *s++ = (char)c;
  } else if (c < 0x800) {
    *s++ = (char)(0xC0 | c >> 6);
    *s++ = (char)(0x80 | (c & 63));
  } else if (c < 0x10000) {
    *s++ = (char)(0xE0 | c >> 12);
    *s++ = (char)(0x80 | (c >> 6 & 63));
    *s++ = (char)(0x80 | (c & 63));
  } else {
    *s++ = (char)(0xF0 | c >> 18);
    *s++ = (char)(0x80 | (c >> 12 & 63));
    *s++ = (char)(0x80 | (c >> 6 & 63));
    *s++ = (char)(0x80 | (c & 63));
  }
  p->strings = s;
}

static int unicode_escape(parser *p) {
  unsigned high, low;
  if (p->end - p->text < 4 || hex4(p->text, &high) != 0) return fail_at(p, "bad \\u escape");
  p->text += 4;
  if (high == 0) return fail_at(p, "NUL in a text");
  if (high >= 0xD800 && high < 0xDC00) {
    if (p->end - p->text < 6 || p->text[0] != '\\' || p->text[1] != 'u' || hex4(p->text + 2, &low) != 0 ||
        low < 0xDC00 || low > 0xDFFF)
      return fail_at(p, "half a surrogate pair");
    p->text += 6;
    high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  } else if (high >= 0xDC00 && high < 0xE000) {
    return fail_at(p, "half a surrogate pair");
  }
  put_utf8(p, high);
  return 0;
}

/* The block for texts is as long as the source, and no text grows by unescaping. */
static int parse_text(parser *p, const char **out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (p->text >= p->end || *p->text != '"') return fail_at(p, "a text is expected");
  p->text++;
  *out = p->strings;
  while (p->text < p->end && *p->text != '"') {
    char c = *p->text++;
    if ((unsigned char)c < 0x20) return fail_at(p, "a control character in a text");
    if (c != '\\') {
      *p->strings++ = c;
      continue;
    }
    if (p->text >= p->end) break;
    c = *p->text++;
    if (c == 'u') {
      if (unicode_escape(p) != 0) return -1;
      continue;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (found == NULL) return fail_at(p, "bad escape");
    *p->strings++ = to[found - from];
  }
  if (p->text >= p->end) return fail_at(p, "an unterminated text");
  p->text++;
  *p->strings++ = 0;
  return 0;
}

static int digits(parser *p) {
  const char *begin = p->text;
  while (p->text < p->end && *p->text >= '0' && *p->text <= '9') p->text++;
  return p->text > begin ? 0 : fail_at(p, "a digit is expected");
}

static int32_t parse_number(parser *p) {
  int negative = *p->text == '-', is_int = 1;
  if (negative) p->text++;
  const char *begin = p->text;
  if (digits(p) != 0) return -1;
  if (*begin == '0' && p->text - begin > 1) return fail_at(p, "a leading zero");
  const char *last = p->text;
  if (p->text < p->end && *p->text == '.') {
    is_int = 0;
    p->text++;
    if (digits(p) != 0) return -1;
  }
  if (p->text < p->end && (*p->text == 'e' || *p->text == 'E')) {
    is_int = 0;
    p->text++;
    if (p->text < p->end && (*p->text == '+' || *p->text == '-')) p->text++;
    if (digits(p) != 0) return -1;
  }
  int32_t value = new_value(p, is_int ? ARM_INT : ARM_REAL);
  if (value < 0 || !is_int) return value;
  int64_t number = 0;
  for (; begin < last; begin++)
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *begin - '0', &number))
      return fail_at(p, "an integer beyond 64 bits");
  p->json->values[value].number = negative ? -number : number;
  return value;
}

static int32_t parse_value(parser *p, int depth);

static int32_t parse_word(parser *p) {
  static const struct { const char *word; arm_json_kind kind; int64_t number; } words[] = {
      {"true", ARM_BOOL, 1}, {"false", ARM_BOOL, 0}, {"null", ARM_NULL, 0}};
  for (int i = 0; i < 3; i++) {
    size_t length = strlen(words[i].word);
    if ((size_t)(p->end - p->text) < length || memcmp(p->text, words[i].word, length) != 0) continue;
    p->text += length;
    int32_t value = new_value(p, words[i].kind);
    if (value >= 0) p->json->values[value].number = words[i].number;
    return value;
  }
  return fail_at(p, "a value is expected");
}

static int32_t parse_child(parser *p, int is_map, int depth) {
  const char *key = NULL;
  skip_space(p);
  if (is_map) {
    if (parse_text(p, &key) != 0) return -1;
    skip_space(p);
    if (p->text >= p->end || *p->text != ':') return fail_at(p, "':' is expected");
    p->text++;
  }
  int32_t child = parse_value(p, depth + 1);
  if (child >= 0) p->json->values[child].key = key;
  return child;
}

static int32_t parse_container(parser *p, int depth) {
  int is_map = *p->text == '{';
  char close = is_map ? '}' : ']';
  int32_t self = new_value(p, is_map ? ARM_MAP : ARM_LIST), last = -1;
  if (self < 0) return -1;
  if (depth >= MAX_DEPTH) return fail_at(p, "nested too deeply");
  p->text++;
  skip_space(p);
  if (p->text < p->end && *p->text == close) {
    p->text++;
    return self;
  }
  for (;;) {
    int32_t child = parse_child(p, is_map, depth);
    if (child < 0) return -1;
    if (last < 0) p->json->values[self].first = child;
    else p->json->values[last].next = child;
    last = child;
    p->json->values[self].count++;
    skip_space(p);
    if (p->text >= p->end) return fail_at(p, "the text ends inside a list or object");
    char c = *p->text++;
    if (c == close) return self;
    if (c != ',') return fail_at(p, "',' is expected");
  }
}

static int32_t parse_value(parser *p, int depth) {
  skip_space(p);
  if (p->text >= p->end) return fail_at(p, "the text ends early");
  char c = *p->text;
  if (c == '{' || c == '[') return parse_container(p, depth);
  if (c == '-' || (c >= '0' && c <= '9')) return parse_number(p);
  if (c != '"') return parse_word(p);
  const char *text;
  if (parse_text(p, &text) != 0) return -1;
  int32_t value = new_value(p, ARM_TEXT);
  if (value >= 0) p->json->values[value].text = text;
  return value;
}

/* Whether the bytes are UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const char *text, size_t size) {
  const unsigned char *p = (const unsigned char *)text, *end = p + size;
  while (p < end) {
    unsigned c = *p++;
    if (c < 0x80) continue;
    int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    if (c < 0xC2 || c > 0xF4 || end - p < more) return 0;
    unsigned low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (*p < low || *p > high) return 0;
    for (int i = 1; i < more; i++)
      if ((p[i] & 0xC0) != 0x80) return 0;
    p += more;
  }
  return 1;
}

int arm_json_parse(const char *text, size_t size, arm_json *out, arm_error *error) {
  memset(out, 0, sizeof *out);
  if (size > (size_t)1 << 30) return arm_fail(error, "JSON: %zu bytes are too many", size);
  if (!is_utf8(text, size)) return arm_fail(error, "JSON: not valid UTF-8");
  out->strings = malloc(size + 1);
  if (out->strings == NULL) return arm_fail(error, "JSON: out of memory");
  parser p = {text, text + size, text, out->strings, out, error};
  int32_t root = parse_value(&p, 0);
  if (root >= 0) {
    skip_space(&p);
    if (p.text == p.end) return 0;
    fail_at(&p, "something follows the value");
  }
  arm_json_free(out);
  return -1;
}

void arm_json_free(arm_json *json) {
  free(json->values);
  free(json->strings);
  memset(json, 0, sizeof *json);
}

int32_t arm_json_get(const arm_json *json, int32_t map, const char *key) {
  if (map < 0 || json->values[map].kind != ARM_MAP) return -1;
  for (int32_t v = json->values[map].first; v >= 0; v = json->values[v].next)
    if (strcmp(json->values[v].key, key) == 0) return v;
  return -1;
}

int32_t arm_json_need(const arm_json *json, int32_t map, const char *key, arm_json_kind kind, const char *where,
                      arm_error *error) {
  static const char *const kinds[] = {"null", "a boolean", "an integer", "a real", "a text", "a list", "an object"};
  int32_t value = arm_json_get(json, map, key);
  if (value < 0) return arm_fail(error, "%s: key \"%s\" is missing", where, key);
  if (json->values[value].kind != kind) return arm_fail(error, "%s.%s: %s is expected", where, key, kinds[kind]);
  return value;
}

int arm_json_int(const arm_json *json, int32_t value, int64_t low, int64_t high, int64_t *out) {
  if (value < 0 || json->values[value].kind != ARM_INT) return -1;
  int64_t number = json->values[value].number;
  if (number < low || number > high) return -1;
  *out = number;
  return 0;
}
