/* What a session does: the operations of the protocol over the runtime of this process.
 *
 * In: requests from the process of the connection. Out: answers. Invariant: a handle names what this session made, and each
 * size, shape and path from outside is checked before it is used. A compiled kernel is not confined by this: the process
 * is, and whoever started it ends it at the deadline (armrpc_serve.c).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "armrpc.h"

#define MAX_HANDLES 65536
#define MAX_TENSOR ((int64_t)1 << 36)
#define MAX_TEXT (1 << 24)
#define MAX_ARGS 256

typedef enum { FREE, MODULE, TENSOR, GRAPH } kind_of_thing;
typedef struct {
  kind_of_thing kind;
  int64_t graph; /* of a tensor that is a view: the handle of the graph whose memory it is */
  int64_t bytes; /* of a tensor's own memory */
  void *memory;
  arm_tensor tensor;
  int64_t shape[ARM_MAX_NDIM];
  arm_graph *executor;
  arm_module *module;
  arm_blob package, json_file;
  const char *json;
  size_t json_size;
  int package_file;
  arm_member params;
} thing;

typedef struct {
  armrpc_files *files;
  const char *folder;
  arm_pool *pool;
  thing **things;
  int64_t count, tensor_bytes;
  int threads, loaded;
  const armrpc_frame *request;
  armrpc_text value, data; /* of the answer: JSON, and a payload of text */
  const void *bytes;       /* a payload of bytes */
  size_t size;
  void *owned; /* to be freed after the answer */
  struct { int64_t handle; int is_read; unsigned char *memory; } staged; /* a tensor on its way from or to a device */
} session;

#define ARGS session *s, arm_error *error

static const char *failed_kind; /* the class of the error that is being reported */

static int fail_as(const char *kind, int status) {
  if (status != 0) failed_kind = kind;
  return status;
}

/* ---- handles ---- */

static int64_t keep(ARGS, const thing *made) {
  thing *copy = s->count < MAX_HANDLES ? malloc(sizeof *copy) : NULL;
  thing **grown = copy ? realloc(s->things, (size_t)(s->count + 1) * sizeof *grown) : NULL;
  if (grown == NULL) {
    free(copy);
    return arm_fail(error, "a session may hold %d things", MAX_HANDLES);
  }
  s->things = grown;
  *copy = *made;
  if (copy->kind == TENSOR) copy->tensor.shape = copy->shape;
  grown[s->count] = copy;
  return ++s->count;
}

static thing *get(ARGS, const char *key, kind_of_thing kind) {
  static const char *const names[] = {"", "module", "NDArray", "graph"};
  int64_t number;
  if (armrpc_number(s->request, key, 1, INT64_MAX, &number, error) != 0) return NULL;
  if (number <= s->count && s->things[number - 1]->kind == kind) return s->things[number - 1];
  arm_fail(error, "%s: the session has no %s under the handle %lld", key, names[kind], (long long)number);
  return NULL;
}

static void let_go(session *s, int64_t number) {
  thing *t = s->things[number - 1];
  if (t->kind == TENSOR && t->memory) {
    s->tensor_bytes -= t->bytes;
    if (t->tensor.device.type == 1) arm_free(t->memory);
    else arm_device_release(t->tensor.device, t->memory);
  }
  if (t->kind == MODULE) {
    arm_module_release(t->module);
    if (t->package.data) arm_file_unmap(&t->package, t->package_file);
  }
  if (t->kind == GRAPH) {
    for (int64_t i = 0; i < s->count; i++)
      if (s->things[i]->kind == TENSOR && s->things[i]->graph == number) s->things[i]->kind = FREE;
    arm_graph_destroy(t->executor);
  }
  t->kind = FREE;
}

static int do_release(ARGS) {
  static const char *const keys[] = {"module", "tensor", "graph"};
  (void)error;
  for (int k = 0; k < 3; k++) {
    int64_t number;
    if (arm_json_int(&s->request->json, arm_json_get(&s->request->json, 0, keys[k]), 1, s->count, &number) == 0)
      let_go(s, number);
  }
  return 0;
}

/* ---- files ---- */

static int path_of(ARGS, char *out, size_t size) { return armrpc_field(s->request, "path", out, size, 1, error); }

static int do_write(ARGS) {
  char path[513];
  int64_t offset;
  if (path_of(s, error, path, sizeof path) != 0) return -1;
  if (armrpc_number(s->request, "offset", 0, INT64_MAX, &offset, error) != 0) return -1;
  return armrpc_files_write(s->files, path, offset, s->request->payload, s->request->payload_size, error);
}

static int do_read(ARGS) {
  char path[513];
  int64_t offset, size;
  struct stat info;
  if (path_of(s, error, path, sizeof path) != 0) return -1;
  if (armrpc_number(s->request, "offset", 0, INT64_MAX, &offset, error) != 0 ||
      armrpc_number(s->request, "size", 0, ARMRPC_CHUNK, &size, error) != 0)
    return -1;
  int handle = armrpc_files_handle(s->files, path, error);
  if (handle < 0) return fail_as("ArtifactError", -1);
  s->owned = malloc((size_t)size + 1);
  ssize_t got = s->owned ? pread(handle, s->owned, (size_t)size, (off_t)offset) : -1;
  if (fstat(handle, &info) != 0) info.st_size = 0;
  close(handle);
  if (got < 0) return arm_fail(error, "%s cannot be read", path);
  s->bytes = s->owned;
  s->size = (size_t)got;
  armrpc_put(&s->value, "{\"size\":%lld}", (long long)info.st_size);
  return 0;
}

static int do_list(ARGS) {
  (void)error;
  armrpc_files_list(s->files, &s->data);
  return 0;
}

static int do_remove(ARGS) {
  char path[513];
  if (path_of(s, error, path, sizeof path) != 0) return -1;
  return fail_as("ArtifactError", armrpc_files_remove(s->files, path, error));
}

/* ---- modules ---- */

static int ends_with(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return a >= b && strcmp(text + a - b, end) == 0;
}

static int open_package(session *s, thing *t, const char *path, arm_error *error) {
  arm_member members[ARM_MEMBERS];
  char library[1200];
  if (arm_file_map(path, &t->package, &t->package_file, error) != 0) return -1;
  if (arm_tar_read(t->package.data, t->package.size, members, error) != 0) return -1;
  t->json = (const char *)members[ARM_MOD_JSON].data;
  t->json_size = members[ARM_MOD_JSON].size;
  t->params = members[ARM_MOD_PARAMS];
  snprintf(library, sizeof library, "%s/.loaded-%d.so", s->folder, ++s->loaded);
  int status = arm_file_write(library, members[ARM_MOD_CODE].data, members[ARM_MOD_CODE].size, 0600, error);
  if (status == 0) status = arm_module_open(library, &t->module, error->text, error->size);
  unlink(library);
  if (status == 0) status = arm_module_set_folder(t->module, s->folder, error->text, error->size);
  return status;
}

static int do_load(ARGS) {
  char path[513], whole[1800];
  thing made = {.kind = MODULE};
  if (path_of(s, error, path, sizeof path) != 0) return -1;
  int handle = armrpc_files_handle(s->files, path, error);
  if (handle < 0) return fail_as("ArtifactError", -1);
  close(handle);
  snprintf(whole, sizeof whole, "%s/%s", s->folder, path);
  int is_tar = ends_with(path, ".tar"), status = 0;
  if (is_tar) status = open_package(s, &made, whole, error);
  else if (ends_with(path, ".so") || ends_with(path, ".o")) status = arm_module_open(whole, &made.module, error->text, error->size);
  else status = arm_fail(error, "%s: unknown kind of module; load a .so, .o or .tar", path);
  if (status == 0 && !is_tar) made.json = arm_module_graph_json(made.module, &made.json_size);
  int64_t number = status == 0 ? keep(s, error, &made) : -1;
  if (number < 0) {
    if (made.module) arm_module_release(made.module);
    if (made.package.data) arm_file_unmap(&made.package, made.package_file);
    return fail_as("ArtifactError", -1);
  }
  s->bytes = arm_module_descriptor(made.module, &s->size);
  armrpc_put(&s->value, "{\"module\":%lld,\"graph\":%s}", (long long)number, made.json ? "true" : "false");
  return 0;
}

/* ---- timing ---- */

typedef struct { int64_t number, repeat, min_repeat_us, zero_limit, cooldown_us, cooldown_every, flush_bytes; } timing;
typedef int (*measure)(void *what, int64_t number, double *seconds, arm_error *error);

static int64_t optional(const armrpc_frame *frame, const char *key, int64_t low, int64_t high, int64_t value) {
  arm_json_int(&frame->json, arm_json_get(&frame->json, 0, key), low, high, &value);
  return value;
}

static void flush(int64_t bytes) {
  static volatile unsigned char *junk;
  static int64_t size;
  if (bytes > size) {
    free((void *)junk);
    junk = malloc((size_t)bytes);
    size = junk ? bytes : 0;
  }
  for (int64_t i = 0; i < bytes && i < size; i += 16) junk[i]++;
}

static int evaluate(ARGS, measure run, void *what) {
  const armrpc_frame *r = s->request;
  timing t = {optional(r, "number", 1, 1 << 30, 1), optional(r, "repeat", 1, 1 << 16, 1),
              optional(r, "min_repeat_us", 0, (int64_t)1 << 40, 0), optional(r, "zero_limit", 1, 1 << 30, 100),
              optional(r, "cooldown_us", 0, (int64_t)1 << 40, 0), optional(r, "cooldown_every", 1, 1 << 30, 1),
              optional(r, "flush_bytes", 0, (int64_t)1 << 32, 0)};
  double *results = s->owned = malloc((size_t)t.repeat * sizeof *results), seconds;
  if (results == NULL) return arm_fail(error, "out of memory");
  if (run(what, 1, &seconds, error) != 0) return fail_as("ExecutionError", -1); /* untimed */
  for (int64_t i = 0, number = t.number; i < t.repeat; i++) {
    if (t.flush_bytes) flush(t.flush_bytes);
    for (int64_t zeros = 0;;) {
      if (run(what, number, &seconds, error) != 0) return fail_as("ExecutionError", -1);
      zeros += seconds <= 0;
      if (seconds * 1e6 >= (double)t.min_repeat_us || zeros > t.zero_limit) break;
      double each = seconds * 1e6 / (double)number, wanted = (double)t.min_repeat_us / (each > 1e-3 ? each : 1e-3) + 1;
      number = (int64_t)(wanted > 1.618 * (double)number ? wanted : 1.618 * (double)number);
    }
    results[i] = seconds / (double)number;
    struct timespec pause = {t.cooldown_us / 1000000, t.cooldown_us % 1000000 * 1000};
    if (t.cooldown_us && (i + 1) % t.cooldown_every == 0) nanosleep(&pause, NULL);
  }
  s->bytes = results; /* little-endian on every machine that this runs on */
  s->size = (size_t)t.repeat * sizeof *results;
  return 0;
}

/* ---- calls ---- */

static int integers(ARGS, const char *key, int64_t *out, int limit, int *count) {
  const arm_json *json = &s->request->json;
  int32_t list = arm_json_get(json, 0, key);
  *count = 0;
  if (list < 0) return 0;
  if (json->values[list].kind != ARM_LIST || json->values[list].count > limit)
    return arm_fail(error, "%s: a list of at most %d integers is expected", key, limit);
  for (int32_t at = json->values[list].first; at >= 0; at = json->values[at].next)
    if (arm_json_int(json, at, INT64_MIN, INT64_MAX, &out[(*count)++]) != 0)
      return arm_fail(error, "%s: a list of integers is expected", key);
  return 0;
}

static arm_call *prepared(ARGS) {
  char name[1025];
  int64_t handles[MAX_ARGS], scalars[MAX_ARGS];
  int num_tensors, num_scalars;
  arm_tensor tensors[MAX_ARGS];
  arm_call *call = NULL;
  thing *module = get(s, error, "module", MODULE);
  if (module == NULL || armrpc_field(s->request, "name", name, sizeof name, 1, error) != 0 ||
      integers(s, error, "tensors", handles, MAX_ARGS, &num_tensors) != 0 ||
      integers(s, error, "scalars", scalars, MAX_ARGS, &num_scalars) != 0)
    return NULL;
  for (int i = 0; i < num_tensors; i++) {
    if (handles[i] < 1 || handles[i] > s->count || s->things[handles[i] - 1]->kind != TENSOR) {
      arm_fail(error, "tensors: the session has no NDArray under the handle %lld", (long long)handles[i]);
      return NULL;
    }
    tensors[i] = s->things[handles[i] - 1]->tensor;
  }
  int index = arm_module_find(module->module, name);
  if (index < 0) {
    fail_as("ExecutionError", arm_fail(error, "the module has no function '%s'", name));
    return NULL;
  }
  if (arm_call_create(module->module, index, tensors, num_tensors, scalars, num_scalars, s->pool, &call, error->text,
                      error->size) == 0)
    return call;
  fail_as("TypeMismatch", -1);
  return NULL;
}

static int time_call(void *call, int64_t number, double *seconds, arm_error *error) {
  return arm_call_time(call, number, seconds, error->text, error->size);
}

static int do_call(ARGS) {
  arm_call *call = prepared(s, error);
  if (call == NULL) return -1;
  int status = fail_as("ExecutionError", arm_call_run(call, error->text, error->size));
  arm_call_destroy(call);
  return status;
}

static int do_time(ARGS) {
  arm_call *call = prepared(s, error);
  if (call == NULL) return -1;
  int status = evaluate(s, error, time_call, call);
  arm_call_destroy(call);
  return status;
}

/* ---- tensors ---- */

static int device_of(ARGS, arm_device *out) {
  int64_t device[2] = {1, 0};
  int count;
  if (integers(s, error, "device", device, 2, &count) != 0) return -1;
  if (device[0] < 0 || device[0] > 255 || device[1] < 0 || device[1] > 255)
    return arm_fail(error, "device: a type and a number are expected");
  *out = (arm_device){(int32_t)device[0], (int32_t)device[1]};
  if (out->type == 1 && out->id == 0) return 0;
  return fail_as("TargetError", arm_device_open(*out, error->text, error->size));
}

static int do_device(ARGS) {
  arm_device device;
  char facts[2048] = "";
  int status = device_of(s, error, &device);
  armrpc_put(&s->value, "{\"objection\":");
  armrpc_put_string(&s->value, status ? error->text : "");
  armrpc_put(&s->value, "}");
  if (status == 0 && device.type != 1) arm_device_describe(device, facts, sizeof facts, error->text, error->size);
  armrpc_put(&s->data, "{");
  char *rest = facts;
  for (int rows = 0; *rest; rows++) {
    char *line = strsep(&rest, "\n"), *tab = strchr(line, '\t');
    if (tab) *tab = 0;
    if (rows) armrpc_put(&s->data, ",");
    armrpc_put_string(&s->data, line);
    armrpc_put(&s->data, ":");
    armrpc_put_string(&s->data, tab ? tab + 1 : line);
    if (rest == NULL) break;
  }
  armrpc_put(&s->data, "}");
  return 0;
}

static int do_alloc(ARGS) {
  char dtype[33];
  thing made = {.kind = TENSOR};
  int64_t bytes;
  int ndim;
  arm_device device;
  if (armrpc_field(s->request, "dtype", dtype, sizeof dtype, 1, error) != 0 || device_of(s, error, &device) != 0 ||
      integers(s, error, "shape", made.shape, ARM_MAX_NDIM, &ndim) != 0)
    return -1;
  made.tensor = (arm_tensor){.device = device, .ndim = ndim, .shape = made.shape};
  if (arm_dtype_parse(dtype, &made.tensor.dtype) != 0) return arm_fail(error, "unknown dtype '%s'", dtype);
  if (arm_tensor_bytes(made.shape, ndim, made.tensor.dtype, &bytes) != 0)
    return fail_as("TypeMismatch", arm_fail(error, "a tensor cannot have this shape"));
  if (bytes > MAX_TENSOR - s->tensor_bytes)
    return fail_as("ExecutionError", arm_fail(error, "a tensor of %lld bytes is too large: the tensors of a session may "
                                              "have %lld bytes in all", (long long)bytes, (long long)MAX_TENSOR));
  made.bytes = bytes;
  made.memory = device.type == 1 ? arm_alloc((size_t)bytes)
                                 : arm_device_allocate(device, (size_t)bytes, error->text, error->size);
  made.tensor.data = made.memory;
  if (made.memory == NULL)
    return fail_as("ExecutionError", device.type == 1 ? arm_fail(error, "the device has no memory for it") : -1);
  int64_t number = keep(s, error, &made);
  if (number < 0) {
    if (device.type == 1) arm_free(made.memory);
    else arm_device_release(device, made.memory);
    return -1;
  }
  s->tensor_bytes += bytes;
  armrpc_put(&s->value, "{\"tensor\":%lld}", (long long)number);
  return 0;
}

/* The bytes of a device's tensor on their way: the first piece that is read fetches them all. */
static unsigned char *between(ARGS, thing *t, int64_t handle, int64_t whole, int64_t offset, int is_read) {
  int is_same = s->staged.memory && s->staged.handle == handle && s->staged.is_read == is_read;
  if (!is_same || offset == 0) {
    arm_free(s->staged.memory);
    s->staged.memory = arm_alloc((size_t)whole);
    s->staged.handle = handle;
    s->staged.is_read = is_read;
    arm_tensor here = {s->staged.memory, {1, 0}, t->tensor.ndim, t->tensor.dtype, t->shape, NULL, 0};
    if (s->staged.memory == NULL) return arm_fail(error, "out of memory") ? NULL : NULL;
    if (is_read && arm_tensor_copy(&t->tensor, &here, error->text, error->size) != 0) return NULL;
  }
  return s->staged.memory;
}

static unsigned char *bytes_of(ARGS, int64_t size, int is_read) {
  int64_t whole, offset, handle;
  thing *t = get(s, error, "tensor", TENSOR);
  if (t == NULL || arm_tensor_bytes(t->shape, t->tensor.ndim, t->tensor.dtype, &whole) != 0) return NULL;
  if (armrpc_number(s->request, "offset", 0, whole, &offset, error) != 0) return NULL;
  if (size <= whole - offset) {
    if (t->tensor.device.type == 1) return (unsigned char *)arm_tensor_data(&t->tensor) + offset;
    if (armrpc_number(s->request, "tensor", 1, s->count, &handle, error) != 0) return NULL;
    unsigned char *memory = between(s, error, t, handle, whole, offset, is_read);
    return memory ? memory + offset : NULL;
  }
  fail_as("TypeMismatch", arm_fail(error, "%lld bytes from %lld do not lie in a tensor of %lld bytes", (long long)size,
                                   (long long)offset, (long long)whole));
  return NULL;
}

static int do_put(ARGS) {
  size_t size = s->request->payload_size;
  unsigned char *place = bytes_of(s, error, (int64_t)size, 0);
  if (place == NULL) return -1;
  memcpy(place, s->request->payload, size);
  thing *t = get(s, error, "tensor", TENSOR);
  int64_t whole;
  if (t->tensor.device.type == 1 || arm_tensor_bytes(t->shape, t->tensor.ndim, t->tensor.dtype, &whole) != 0) return 0;
  if (place + size != s->staged.memory + whole) return 0; /* more is to come */
  arm_tensor here = {s->staged.memory, {1, 0}, t->tensor.ndim, t->tensor.dtype, t->shape, NULL, 0};
  return fail_as("ExecutionError", arm_tensor_copy(&here, &t->tensor, error->text, error->size));
}

static int do_get(ARGS) {
  int64_t size;
  if (armrpc_number(s->request, "size", 0, ARMRPC_CHUNK, &size, error) != 0) return -1;
  s->bytes = bytes_of(s, error, size, 1);
  s->size = (size_t)size;
  return s->bytes ? 0 : -1;
}

static int do_copy(ARGS) {
  thing *source = get(s, error, "source", TENSOR), *target = source ? get(s, error, "target", TENSOR) : NULL;
  if (target == NULL) return -1;
  return fail_as("TypeMismatch", arm_tensor_copy(&source->tensor, &target->tensor, error->text, error->size));
}

/* ---- graphs ---- */

static void put_type(armrpc_text *out, const arm_tensor *type) {
  armrpc_put(out, "\"shape\":[");
  for (int i = 0; i < type->ndim; i++) armrpc_put(out, "%s%lld", i ? "," : "", (long long)type->shape[i]);
  armrpc_put(out, "],\"dtype\":\"%s\"", arm_dtype_name(type->dtype));
}

static int describe(ARGS, arm_graph *graph) {
  arm_tensor type;
  armrpc_put(&s->data, "{\"inputs\":[");
  for (int i = 0; i < arm_graph_num_inputs(graph); i++) {
    if (arm_graph_input_info(graph, i, &type, error->text, error->size) != 0) return -1;
    armrpc_put(&s->data, "%s{\"name\":", i ? "," : "");
    armrpc_put_string(&s->data, arm_graph_input_name(graph, i));
    armrpc_put(&s->data, ",");
    put_type(&s->data, &type);
    armrpc_put(&s->data, ",\"set\":%s}", arm_graph_input_is_set(graph, i) == 1 ? "true" : "false");
  }
  armrpc_put(&s->data, "],\"outputs\":[");
  for (int i = 0; i < arm_graph_num_outputs(graph); i++) {
    if (arm_graph_output(graph, i, &type, error->text, error->size) != 0) return -1;
    armrpc_put(&s->data, "%s{", i ? "," : "");
    put_type(&s->data, &type);
    armrpc_put(&s->data, "}");
  }
  armrpc_put(&s->data, "]}");
  return s->data.failed ? arm_fail(error, "the graph has too many inputs to tell") : 0;
}

static int set_own_params(thing *module, arm_graph *graph, arm_error *error) {
  int count;
  uint32_t crc = 0;
  if (module->package.data == NULL) return arm_graph_load_embedded(graph, &count, error->text, error->size);
  if (module->params.data == NULL) return arm_fail(error, "the package holds no parameters");
  int64_t offset = module->params.data - module->package.data;
  if (arm_graph_read_params(graph, module->package_file, offset, (int64_t)module->params.size, &count, &crc, error->text,
                            error->size) != 0)
    return -1;
  return arm_member_check(&module->params, "mod.params", crc, error);
}

static int do_graph(ARGS) {
  char path[513], whole[1800];
  thing made = {.kind = GRAPH}, *module = get(s, error, "module", MODULE);
  arm_blob file = {0};
  arm_device device;
  if (module == NULL || armrpc_field(s->request, "json", path, sizeof path, 0, error) != 0 ||
      device_of(s, error, &device) != 0)
    return -1;
  if (*path) {
    int handle = armrpc_files_handle(s->files, path, error);
    if (handle < 0) return -1;
    close(handle);
    snprintf(whole, sizeof whole, "%s/%s", s->folder, path);
    if (arm_file_read(whole, &file, error) != 0) return -1;
  } else if (module->json == NULL) {
    return fail_as("ExecutionError", arm_fail(error, "the module holds no graph"));
  }
  const char *json = *path ? (const char *)file.data : module->json;
  int status = arm_graph_create_on(json, *path ? file.size : module->json_size, module->module, device, s->pool,
                                   &made.executor, error->text, error->size);
  arm_blob_free(&file);
  if (status != 0) return fail_as("ArtifactError", -1);
  if (!*path) status = set_own_params(module, made.executor, error);
  if (status == 0) status = describe(s, error, made.executor);
  int64_t number = status == 0 ? keep(s, error, &made) : -1;
  if (number < 0) {
    arm_graph_destroy(made.executor);
    return fail_as("ArtifactError", -1);
  }
  armrpc_put(&s->value, "{\"graph\":%lld}", (long long)number);
  return 0;
}

static int do_graph_set(ARGS) {
  char name[4097];
  thing *graph = get(s, error, "graph", GRAPH), *tensor = graph ? get(s, error, "tensor", TENSOR) : NULL;
  if (tensor == NULL || armrpc_field(s->request, "name", name, sizeof name, 1, error) != 0) return -1;
  arm_graph *executor = graph->executor;
  int index = arm_graph_num_variants(executor) > 1
                  ? arm_graph_pick(executor, name, &tensor->tensor, error->text, error->size)
                  : arm_graph_input_index(executor, name);
  if (index < 0) return fail_as("ExecutionError", arm_fail(error, "Could not find '%s' in graph's inputs", name));
  return fail_as("TypeMismatch", arm_graph_set_input(executor, index, &tensor->tensor, error->text, error->size));
}

/* Hand out a tensor that shows a graph's memory. */
static int keep_view(ARGS, thing *made, int64_t graph) {
  made->graph = graph;
  memcpy(made->shape, made->tensor.shape, (size_t)made->tensor.ndim * sizeof *made->shape);
  int64_t number = keep(s, error, made);
  if (number < 0) return -1;
  armrpc_put(&s->value, "{\"tensor\":%lld,", (long long)number);
  put_type(&s->value, &s->things[number - 1]->tensor);
  armrpc_put(&s->value, "}");
  return 0;
}

static int do_graph_output(ARGS) {
  int64_t index, handle;
  thing made = {.kind = TENSOR}, *graph = get(s, error, "graph", GRAPH);
  if (graph == NULL ||
      armrpc_number(s->request, "index", 0, arm_graph_num_outputs(graph->executor) - 1, &index, error) != 0 ||
      armrpc_number(s->request, "graph", 1, s->count, &handle, error) != 0)
    return -1;
  if (arm_graph_output(graph->executor, (int)index, &made.tensor, error->text, error->size) != 0) return -1;
  return keep_view(s, error, &made, handle);
}

static int do_graph_input(ARGS) {
  char name[4097];
  int64_t handle;
  thing made = {.kind = TENSOR}, *graph = get(s, error, "graph", GRAPH);
  if (graph == NULL || armrpc_field(s->request, "name", name, sizeof name, 1, error) != 0 ||
      armrpc_number(s->request, "graph", 1, s->count, &handle, error) != 0)
    return -1;
  int index = arm_graph_input_index(graph->executor, name);
  if (arm_graph_input_is_state(graph->executor, index) != 1)
    return fail_as("ExecutionError", arm_fail(error, "'%s' is no state of the graph", name));
  if (arm_graph_input(graph->executor, index, &made.tensor, error->text, error->size) != 0) return -1;
  return keep_view(s, error, &made, handle);
}

static int do_graph_reset(ARGS) {
  thing *graph = get(s, error, "graph", GRAPH);
  return graph ? fail_as("ExecutionError", arm_graph_reset_states(graph->executor, error->text, error->size)) : -1;
}

static int do_graph_run(ARGS) {
  thing *graph = get(s, error, "graph", GRAPH);
  return graph ? fail_as("ExecutionError", arm_graph_run(graph->executor, error->text, error->size)) : -1;
}

static int do_graph_params(ARGS) {
  char path[513], whole[1800];
  int count;
  arm_blob file;
  thing *graph = get(s, error, "graph", GRAPH);
  if (graph == NULL || path_of(s, error, path, sizeof path) != 0) return -1;
  int handle = armrpc_files_handle(s->files, path, error);
  if (handle < 0) return -1;
  close(handle);
  snprintf(whole, sizeof whole, "%s/%s", s->folder, path);
  if (arm_file_read(whole, &file, error) != 0) return -1;
  int status = arm_graph_load_params(graph->executor, file.data, file.size, &count, error->text, error->size);
  arm_blob_free(&file);
  armrpc_put(&s->value, "{\"count\":%d}", count);
  return fail_as("ArtifactError", status);
}

static int time_graph(void *graph, int64_t number, double *seconds, arm_error *error) {
  return arm_graph_time(graph, number, seconds, error->text, error->size);
}

static int copy_all(arm_graph *graph, int count, int is_input, arm_error *error) {
  for (int i = 0; i < count; i++) {
    arm_tensor t;
    int64_t bytes;
    if (is_input && arm_graph_input_is_plain(graph, i) != 1) continue;
    int status = is_input ? arm_graph_input(graph, i, &t, error->text, error->size)
                          : arm_graph_output(graph, i, &t, error->text, error->size);
    if (status != 0 || arm_tensor_bytes(t.shape, t.ndim, t.dtype, &bytes) != 0) return -1;
    void *there = malloc((size_t)bytes + 1);
    if (there == NULL) return arm_fail(error, "out of memory");
    arm_tensor here = {there, {1, 0}, t.ndim, t.dtype, t.shape, NULL, 0};
    status = arm_tensor_copy(&t, &here, error->text, error->size);
    if (status == 0 && is_input) status = arm_tensor_copy(&here, &t, error->text, error->size);
    free(there);
    if (status != 0) return -1;
  }
  return 0;
}

static int time_end_to_end(void *what, int64_t number, double *seconds, arm_error *error) {
  arm_graph *graph = what;
  double begin = arm_now();
  for (int64_t i = 0; i < number; i++)
    if (copy_all(graph, arm_graph_num_inputs(graph), 1, error) != 0 ||
        arm_graph_run(graph, error->text, error->size) != 0 ||
        copy_all(graph, arm_graph_num_outputs(graph), 0, error) != 0)
      return -1;
  *seconds = arm_now() - begin;
  return 0;
}

static int do_graph_time(ARGS) {
  thing *graph = get(s, error, "graph", GRAPH);
  if (graph == NULL) return -1;
  if (arm_graph_load(graph->executor, error->text, error->size) != 0) return fail_as("ExecutionError", -1);
  int32_t whole = arm_json_get(&s->request->json, 0, "end_to_end");
  int is_whole = whole >= 0 && s->request->json.values[whole].kind == ARM_BOOL && s->request->json.values[whole].number;
  return evaluate(s, error, is_whole ? time_end_to_end : time_graph, graph->executor);
}

static int do_profile(ARGS) {
  thing *t = get(s, error, "graph", GRAPH);
  if (t == NULL) return -1;
  int nodes = arm_graph_num_nodes(t->executor);
  double *seconds = malloc(((size_t)nodes + 1) * sizeof *seconds);
  if (seconds == NULL || arm_graph_load(t->executor, error->text, error->size) != 0 ||
      arm_graph_run_range(t->executor, 0, nodes, seconds, error->text, error->size) != 0) {
    free(seconds);
    return fail_as("ExecutionError", -1);
  }
  armrpc_put(&s->data, "[");
  for (int i = 0, rows = 0; i < nodes; i++) {
    const char *function = arm_graph_node_function(t->executor, i);
    if (*function == 0 || strncmp(function, "__", 2) == 0 || arm_graph_node_is_load(t->executor, i) == 1) continue;
    armrpc_put(&s->data, "%s[", rows++ ? "," : "");
    armrpc_put_string(&s->data, arm_graph_node_name(t->executor, i));
    armrpc_put(&s->data, ",");
    armrpc_put_string(&s->data, function);
    armrpc_put(&s->data, ",%lld]", (long long)(seconds[i] * 1e9));
  }
  armrpc_put(&s->data, "]");
  free(seconds);
  return s->data.failed ? arm_fail(error, "the profile is too long to tell") : 0;
}

/* ---- the session ---- */

void armrpc_info(armrpc_text *out, int threads) {
  struct utsname name;
  if (uname(&name) != 0) memset(&name, 0, sizeof name);
  armrpc_put(out, "{\"os\":\"linux\",\"arch\":");
  armrpc_put_string(out, name.machine);
  armrpc_put(out, ",\"threads\":\"%d\",\"server\":\"native\",\"process\":\"%d\"}", threads, (int)getpid());
}

static int do_info(ARGS) {
  (void)error;
  armrpc_info(&s->value, s->threads);
  return 0;
}

static const struct { const char *name; int (*run)(ARGS); } operations[] = {
    {"write", do_write}, {"read", do_read}, {"list", do_list}, {"remove", do_remove}, {"load", do_load},
    {"release", do_release}, {"call", do_call}, {"time", do_time}, {"alloc", do_alloc}, {"put", do_put},
    {"get", do_get}, {"copy", do_copy}, {"device", do_device}, {"graph", do_graph}, {"graph_set", do_graph_set},
    {"graph_output", do_graph_output}, {"graph_input", do_graph_input}, {"graph_reset", do_graph_reset}, {"graph_run", do_graph_run}, {"graph_params", do_graph_params},
    {"graph_time", do_graph_time}, {"profile", do_profile}, {"info", do_info}};

static int perform(ARGS) {
  char op[32];
  if (armrpc_field(s->request, "op", op, sizeof op, 1, error) != 0) return -1;
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (strcmp(op, operations[i].name) == 0) return operations[i].run(s, error);
  return arm_fail(error, "a session does not know '%s'", op);
}

static int answer(session *s, armrpc_peer *peer, arm_error *error) {
  char text[1024] = "";
  arm_error told = {text, sizeof text};
  failed_kind = "RPCError";
  s->data.limit = MAX_TEXT;
  int status = perform(s, &told);
  if (status != 0) {
    status = armrpc_refuse(peer, failed_kind, text, "");
  } else {
    armrpc_text header = {0};
    armrpc_put(&header, "{\"ok\":%s}", s->value.size ? s->value.text : "null");
    const void *bytes = s->data.size ? s->data.text : s->bytes;
    status = header.failed ? arm_fail(error, "out of memory")
                           : armrpc_write(peer, header.text, bytes, s->data.size ? s->data.size : s->size, error);
    armrpc_text_free(&header);
  }
  armrpc_text_free(&s->value);
  armrpc_text_free(&s->data);
  free(s->owned);
  s->owned = NULL;
  s->bytes = NULL;
  s->size = 0;
  return status;
}

void armrpc_session_run(int fd, const char *folder, int threads) {
  char text[1024];
  arm_error error = {text, sizeof text};
  armrpc_peer peer = {.fd = fd};
  armrpc_frame request;
  session s = {.folder = folder, .threads = threads, .files = armrpc_files_open(folder)};
  s.pool = arm_pool_create(threads, 0, text, sizeof text);
  if (s.files == NULL || s.pool == NULL) return;
  for (int status = 0; status == 0;) {
    if (armrpc_read(&peer, &request, ARMRPC_MAX_HEADER, ARMRPC_MAX_PAYLOAD, -1, &error) != 0) break;
    s.request = &request;
    status = answer(&s, &peer, &error);
    armrpc_frame_free(&request);
  }
  for (int64_t i = s.count; i >= 1; i--) let_go(&s, i);
  for (int64_t i = 0; i < s.count; i++) free(s.things[i]);
  arm_free(s.staged.memory);
  free(s.things);
  arm_pool_destroy(s.pool);
  armrpc_files_close(s.files);
}
