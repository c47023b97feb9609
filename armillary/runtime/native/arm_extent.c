/* Extents: expressions over named sizes, `2*b*s + floordiv(h + 1, 2)`, as text/extent.py prints them.
 *
 * In: text and the names that it may read; later values of these. Out: postfix code, and what it gives.
 * Invariant: code of an extent was checked when it was read, needs no more than MAX_DEPTH places, and gives a number in
 * [0, ARM_MAX_BYTES] or -1.
 */
#include <stdlib.h>
#include <string.h>

#include "arm_internal.h"

#define MAX_DEPTH 64
#define MAX_CODE 4096

typedef enum { PUSH, NAME, ADD, SUB, MUL, DIV, MIN, MAX } operation;

typedef struct {
  const char *at;
  char *const *names;
  int num_names, depth;
  arm_extent *out;
  int status;
} parser;

static void skip(parser *p) {
  while (*p->at == ' ') p->at++;
}

static int accept(parser *p, char c) {
  skip(p);
  if (*p->at != c) return 0;
  p->at++;
  return 1;
}

static void emit(parser *p, operation op, int64_t value) {
  if (p->status != 0 || p->out->count + 2 > MAX_CODE) {
    p->status = -1;
    return;
  }
  p->out->code[p->out->count++] = op;
  p->out->code[p->out->count++] = value;
}

static void sum(parser *p);

static int is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == ':';
}

static void number(parser *p) {
  int64_t value = 0;
  for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
    if (value > ARM_MAX_BYTES) p->status = -1;
    else value = value * 10 + (*p->at - '0');
  }
  emit(p, PUSH, value);
}

static void call(parser *p, operation op) {
  sum(p);
  if (!accept(p, ',')) p->status = -1;
  if (p->status == 0) sum(p);
  if (!accept(p, ')')) p->status = -1;
  emit(p, op, 0);
}

static void word(parser *p) {
  const char *begin = p->at;
  while (is_word(*p->at)) p->at++;
  size_t size = (size_t)(p->at - begin);
  if (*p->at == '(') {
    p->at++;
    if (size == 8 && memcmp(begin, "floordiv", 8) == 0) call(p, DIV);
    else if (size == 3 && memcmp(begin, "min", 3) == 0) call(p, MIN);
    else if (size == 3 && memcmp(begin, "max", 3) == 0) call(p, MAX);
    else p->status = -1;
    return;
  }
  for (int i = 0; i < p->num_names; i++) {
    if (strlen(p->names[i]) != size || memcmp(p->names[i], begin, size) != 0) continue;
    emit(p, NAME, i);
    return;
  }
  p->status = -1;
}

static void factor(parser *p) {
  skip(p);
  if (*p->at >= '0' && *p->at <= '9') {
    number(p);
  } else if (accept(p, '(')) {
    sum(p);
    if (!accept(p, ')')) p->status = -1;
  } else if (is_word(*p->at)) {
    word(p);
  } else {
    p->status = -1;
  }
}

static void term(parser *p) {
  factor(p);
  while (p->status == 0 && accept(p, '*')) {
    factor(p);
    emit(p, MUL, 0);
  }
}

static void sum(parser *p) {
  if (++p->depth > MAX_DEPTH / 4) p->status = -1; /* a level holds at most three places */
  if (p->status != 0) return;
  if (accept(p, '-')) {
    emit(p, PUSH, 0);
    term(p);
    emit(p, SUB, 0);
  } else {
    term(p);
  }
  while (p->status == 0) {
    operation op = accept(p, '+') ? ADD : accept(p, '-') ? SUB : PUSH;
    if (op == PUSH) break;
    term(p);
    emit(p, op, 0);
  }
  p->depth--;
}

int arm_extent_parse(const char *text, char *const *names, int num_names, arm_extent *out, arm_error *error) {
  out->count = 0;
  out->code = malloc(MAX_CODE * sizeof *out->code);
  if (out->code == NULL) return arm_fail(error, "out of memory");
  parser p = {text, names, num_names, 0, out, 0};
  sum(&p);
  skip(&p);
  if (p.status != 0 || *p.at != 0) {
    arm_extent_free(out);
    return arm_fail(error, "\"%.80s\" is no expression over the sizes that are declared", text);
  }
  int64_t *fitting = realloc(out->code, (size_t)out->count * sizeof *out->code);
  if (fitting != NULL) out->code = fitting;
  return 0;
}

void arm_extent_free(arm_extent *extent) {
  free(extent->code);
  *extent = (arm_extent){0, NULL};
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* Whether an operation leaves the range of numbers that no sum or product of sizes has, or divides by 0. */
static int apply(operation op, int64_t a, int64_t b, int64_t *out) {
  switch (op) {
    case ADD: return __builtin_add_overflow(a, b, out);
    case SUB: return __builtin_sub_overflow(a, b, out);
    case MUL: return __builtin_mul_overflow(a, b, out);
    case DIV:
      if (b == 0) return 1;
      *out = floor_div(a, b);
      return 0;
    case MIN: *out = a < b ? a : b; return 0;
    default: *out = a > b ? a : b; return 0;
  }
}

int64_t arm_extent_value(const arm_extent *extent, const int64_t *values) {
  int64_t stack[MAX_DEPTH];
  int depth = 0;
  for (int32_t i = 0; i < extent->count; i += 2) {
    operation op = (operation)extent->code[i];
    if (op == PUSH || op == NAME) {
      if (depth == MAX_DEPTH) return -1;
      stack[depth++] = op == PUSH ? extent->code[i + 1] : values[extent->code[i + 1]];
      continue;
    }
    if (depth < 2 || apply(op, stack[depth - 2], stack[depth - 1], &stack[depth - 2])) return -1;
    depth--;
  }
  return depth == 1 && stack[0] >= 0 && stack[0] <= ARM_MAX_BYTES ? stack[0] : -1;
}

int arm_extent_reads(const arm_extent *extent, int32_t name) {
  for (int32_t i = 0; i < extent->count; i += 2)
    if (extent->code[i] == NAME && extent->code[i + 1] == name) return 1;
  return 0;
}
