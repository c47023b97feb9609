/* The system library: functions and networks that are linked into this process (target "llvm -system-lib").
 *
 * In: parts, one of each linked object, which its constructor registers and its destructor takes back. Out: a module of
 * all their functions, with the parameters and graph of one network. Invariant: a name means one function; networks may
 * share kernels, as their names say what they compute. Who writes the parts: armillary/codegen/object/registration.py.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_internal.h"

static arm_system_part *parts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void arm_system_add(arm_system_part *part) {
  pthread_mutex_lock(&lock);
  arm_system_part **end = &parts;
  while (*end != NULL && *end != part) end = &(*end)->next;
  if (*end == NULL) part->next = NULL;
  *end = part;
  pthread_mutex_unlock(&lock);
}

void arm_system_remove(arm_system_part *part) {
  pthread_mutex_lock(&lock);
  arm_system_part **at = &parts;
  while (*at != NULL && *at != part) at = &(*at)->next;
  if (*at != NULL) *at = part->next;
  pthread_mutex_unlock(&lock);
}

const char *arm_system_network(int index) {
  const char *name = NULL;
  pthread_mutex_lock(&lock);
  for (const arm_system_part *p = parts; p != NULL && name == NULL; p = p->next)
    if (p->graph_json != NULL && index-- == 0) name = p->network;
  pthread_mutex_unlock(&lock);
  return name;
}

/* ---- one descriptor of all ---- */

typedef struct { char *text; size_t size, capacity; int failed; } writer;

static void put(writer *w, const char *text) {
  size_t size = strlen(text);
  if (w->size + size + 1 > w->capacity) {
    size_t capacity = 2 * (w->size + size + 1);
    char *grown = w->failed ? NULL : realloc(w->text, capacity);
    if (grown == NULL) { w->failed = 1; return; }
    w->text = grown;
    w->capacity = capacity;
  }
  memcpy(w->text + w->size, text, size + 1);
  w->size += size;
}

/* A member of a list that has some already, where there is one. */
static void put_member(writer *w, const char *text, int *count) {
  if (*text == 0) return;
  if ((*count)++ > 0) put(w, ",");
  put(w, text);
}

/* The part before `end` that has a function of that name. */
static const arm_system_part *owner_of(const char *name, const arm_system_part *end) {
  for (const arm_system_part *p = parts; p != end; p = p->next)
    for (uint64_t i = 0; i < p->num_functions; i++)
      if (strcmp(p->functions[i].name, name) == 0) return p;
  return NULL;
}

static int put_functions(writer *w, const arm_system_part *p, int *count, arm_error *error) {
  for (uint64_t i = 0; i < p->num_functions; i++) {
    const arm_system_function *f = &p->functions[i];
    const arm_system_part *other = owner_of(f->name, p);
    if (other != NULL && p->is_network && other->is_network) continue;
    if (other != NULL)
      return arm_fail(error, "two objects of the system library have a function %s: build them with names of their own", f->name);
    put_member(w, f->name, count);
    put(w, ":");
    put(w, f->row);
  }
  return 0;
}

static int write_descriptor(writer *w, arm_error *error) {
  char head[64];
  int needs = 0, devices = 0, functions = 0;
  snprintf(head, sizeof head, "{\"abi\":%d,\"target\":", ARM_ABI_VERSION);
  put(w, head);
  put(w, parts != NULL ? parts->target : "\"\"");
  put(w, ",\"needs\":[");
  for (const arm_system_part *p = parts; p != NULL; p = p->next) put_member(w, p->needs, &needs);
  put(w, "]");
  for (const arm_system_part *p = parts; p != NULL; p = p->next) {
    if (*p->device_code == 0) continue;
    put(w, ",\"device_code\":");
    put(w, p->device_code);
    devices++;
  }
  if (devices > 1) return arm_fail(error, "two objects of the system library have kernels of a device; link one of them");
  put(w, ",\"functions\":{");
  for (const arm_system_part *p = parts; p != NULL; p = p->next)
    if (put_functions(w, p, &functions, error) != 0) return -1;
  put(w, "}}");
  return w->failed ? arm_fail(error, "out of memory") : 0;
}

static void *resolve(void *context, const char *symbol) {
  (void)context;
  for (const arm_system_part *p = parts; p != NULL; p = p->next)
    for (uint64_t i = 0; i < p->num_symbols; i++)
      if (strcmp(p->symbols[i].name, symbol) == 0) return (void *)(uintptr_t)p->symbols[i].address;
  return NULL;
}

/* ---- the module ---- */

/* The network of a name; without a name the only one, or none. */
static int find_network(const char *name, const arm_system_part **out, arm_error *error) {
  char names[256] = "";
  int count = 0;
  *out = NULL;
  for (const arm_system_part *p = parts; p != NULL; p = p->next) {
    if (p->graph_json == NULL) continue;
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", count++ ? ", " : "", p->network);
    if (name == NULL || strcmp(p->network, name) == 0) *out = p;
  }
  if (name == NULL && count > 1) *out = NULL;
  if (name == NULL || *out != NULL) return 0;
  return arm_fail(error, "the system library has no network %s; it has %s", name, count ? names : "none");
}

static int make_module(const char *network, arm_module **out, arm_error *error) {
  const arm_system_part *part;
  writer w = {NULL, 0, 0, 0};
  if (find_network(network, &part, error) != 0) return -1;
  int status = write_descriptor(&w, error);
  if (status == 0) status = arm_module_create(w.text, w.size, resolve, NULL, out, error->text, error->size);
  free(w.text);
  if (status == 0 && part != NULL)
    arm_module_set_network(*out, part->graph_json, part->params, (size_t)part->params_size);
  return status;
}

int arm_module_system(const char *network, arm_module **out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  *out = NULL;
  pthread_mutex_lock(&lock);
  int status = make_module(network, out, &error);
  pthread_mutex_unlock(&lock);
  return status;
}
