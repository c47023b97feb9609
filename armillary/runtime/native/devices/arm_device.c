/* The table of device kinds, memory on any of them, and the kernels that a descriptor brings.
 *
 * In: DLPack devices; "device_code" and "launches" of a descriptor. Out: memory, copies, launchers. Invariant: every index
 * of a launch was checked against its function, so that running it reads no argument that is not there. A program is built
 * at the first use on a device, once, by whichever thread comes first.
 */
#include "arm_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const arm_device_kind *const KINDS[] = {&arm_opencl_kind};
#define NUM_KINDS (sizeof KINDS / sizeof *KINDS)
#define MAX_DEVICES 16

const arm_device_kind *arm_device_kind_of(int32_t type) {
  for (size_t i = 0; i < NUM_KINDS; i++)
    if (KINDS[i]->type == type) return KINDS[i];
  return NULL;
}

const arm_device_kind *arm_device_kind_named(const char *name) {
  for (size_t i = 0; i < NUM_KINDS; i++)
    if (strcmp(KINDS[i]->name, name) == 0) return KINDS[i];
  return NULL;
}

/* ---- memory ---- */

static const arm_device_kind *kind_of(arm_device device, arm_error *error) {
  const arm_device_kind *kind = arm_device_kind_of(device.type);
  if (kind == NULL) arm_fail(error, "this runtime has no devices of type %d", device.type);
  return kind;
}

void *arm_memory_allocate(arm_device device, size_t bytes, arm_error *error) {
  if (device.type == ARM_CPU) {
    void *memory = arm_alloc(bytes);
    if (memory == NULL) arm_fail(error, "out of memory: %zu bytes", bytes);
    return memory;
  }
  const arm_device_kind *kind = kind_of(device, error);
  return kind == NULL ? NULL : kind->allocate(device.id, bytes, error);
}

void *arm_memory_allocate_image(arm_device device, int64_t width, size_t bytes, int32_t bits, arm_error *error) {
  const arm_device_kind *kind = device.type == ARM_CPU ? NULL : kind_of(device, error);
  if (device.type == ARM_CPU) arm_fail(error, "the CPU has no images");
  if (kind == NULL) return NULL;
  size_t row = (size_t)width * 4 * (size_t)bits / 8;
  if (row == 0 || bytes % row != 0) {
    arm_fail(error, "an image with rows of %zu bytes does not hold %zu bytes", row, bytes);
    return NULL;
  }
  return kind->allocate_image(device.id, width, (int64_t)(bytes / row), bits, error);
}

void arm_memory_release(arm_device device, void *memory) {
  const arm_device_kind *kind = arm_device_kind_of(device.type);
  if (memory == NULL) return;
  if (device.type == ARM_CPU) arm_free(memory);
  else if (kind != NULL) kind->release(device.id, memory);
}

/* From one device to another: through the host. */
static int carry(arm_device to_device, void *to, arm_device from_device, const void *from, size_t bytes,
                 arm_error *error) {
  void *between = arm_alloc(bytes);
  if (between == NULL) return arm_fail(error, "out of memory: %zu bytes", bytes);
  arm_device host = {ARM_CPU, 0};
  int status = arm_memory_copy(host, between, from_device, from, bytes, error);
  if (status == 0) status = arm_memory_copy(to_device, to, host, between, bytes, error);
  arm_free(between);
  return status;
}

int arm_memory_copy(arm_device to_device, void *to, arm_device from_device, const void *from, size_t bytes,
                    arm_error *error) {
  if (bytes == 0) return 0;
  if (to_device.type == ARM_CPU && from_device.type == ARM_CPU) {
    memmove(to, from, bytes);
    return 0;
  }
  const arm_device_kind *kind = kind_of(to_device.type == ARM_CPU ? from_device : to_device, error);
  if (kind == NULL) return -1;
  if (to_device.type == ARM_CPU) return kind->read(from_device.id, to, from, bytes, error);
  if (from_device.type == ARM_CPU) return kind->write(to_device.id, to, from, bytes, error);
  if (to_device.type == from_device.type && to_device.id == from_device.id)
    return kind->copy(to_device.id, to, from, bytes, error);
  return carry(to_device, to, from_device, from, bytes, error);
}

int arm_memory_clear(arm_device device, void *memory, size_t bytes, arm_error *error) {
  if (bytes == 0) return 0;
  if (device.type == ARM_CPU) {
    memset(memory, 0, bytes);
    return 0;
  }
  const arm_device_kind *kind = kind_of(device, error);
  return kind == NULL ? -1 : kind->clear(device.id, memory, bytes, error);
}

int arm_memory_synchronize(arm_device device, arm_error *error) {
  if (device.type == ARM_CPU) return 0;
  const arm_device_kind *kind = kind_of(device, error);
  return kind == NULL ? -1 : kind->synchronize(device.id, error);
}

int arm_memory_divide_anew(arm_device device, const void *memory, arm_error *error) {
  if (device.type == ARM_CPU || memory == NULL) return 0;
  const arm_device_kind *kind = kind_of(device, error);
  return kind == NULL ? -1 : kind->divide_anew(device.id, memory, error);
}

int arm_memory_map(arm_device device, void *memory, size_t bytes, int writes, void **out, arm_error *error) {
  const arm_device_kind *kind = device.type == ARM_CPU ? NULL : kind_of(device, error);
  *out = device.type == ARM_CPU ? memory : NULL;
  if (device.type == ARM_CPU) return 0;
  return kind == NULL ? -1 : kind->map(device.id, memory, bytes, writes, out, error);
}

int arm_memory_unmap(arm_device device, void *memory, void *mapped, arm_error *error) {
  const arm_device_kind *kind = device.type == ARM_CPU ? NULL : kind_of(device, error);
  if (device.type == ARM_CPU) return 0;
  return kind == NULL ? -1 : kind->unmap(device.id, memory, mapped, error);
}

int arm_device_watch(arm_device device, int on, arm_error *error) {
  const arm_device_kind *kind = arm_device_kind_of(device.type);
  return kind == NULL || kind->watch == NULL ? -1 : kind->watch(device.id, on, error);
}

int arm_device_elapsed(arm_device device, double *seconds, arm_error *error) {
  const arm_device_kind *kind = arm_device_kind_of(device.type);
  return kind == NULL || kind->elapsed == NULL ? -1 : kind->elapsed(device.id, seconds, error);
}

/* ---- the public faces ---- */

int arm_device_open(arm_device device, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (device.type == ARM_CPU) return device.id == 0 ? 0 : arm_fail(&error, "there is one CPU device, number 0");
  const arm_device_kind *kind = kind_of(device, &error);
  return kind == NULL ? -1 : kind->open(device.id, &error);
}

int arm_device_describe(arm_device device, char *out, size_t size, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  const arm_device_kind *kind = kind_of(device, &error);
  return kind == NULL ? -1 : kind->describe(device.id, out, size, &error);
}

void *arm_device_allocate(arm_device device, size_t bytes, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  return arm_memory_allocate(device, bytes, &error);
}

void arm_device_release(arm_device device, void *memory) { arm_memory_release(device, memory); }

int arm_device_synchronize(arm_device device, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  return arm_memory_synchronize(device, &error);
}

int arm_device_time(arm_device device, int on, double *seconds, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (on) return arm_device_watch(device, 1, &error);
  int status = arm_device_elapsed(device, seconds, &error);
  return arm_device_watch(device, 0, &error) != 0 ? -1 : status;
}

static _Thread_local char told[1024];

arm_error arm_device_told(void) { return (arm_error){told, sizeof told}; }

/* ---- code ---- */

struct arm_device_code {
  const arm_device_kind *kind;
  char *source;
  void *programs[MAX_DEVICES]; /* by the number of the device */
  pthread_mutex_t lock;
};

int arm_device_code_read(const arm_json *json, arm_device_code **out, arm_error *error) {
  *out = NULL;
  int32_t map = arm_json_get(json, 0, "device_code");
  if (map < 0) return 0;
  if (json->values[map].kind != ARM_MAP || json->values[map].count != 1)
    return arm_fail(error, "descriptor: device_code is not one source by its kind of device");
  const arm_json_value *row = &json->values[json->values[map].first];
  const arm_device_kind *kind = arm_device_kind_named(row->key);
  if (kind == NULL) return arm_fail(error, "descriptor: this runtime has no devices of kind \"%.40s\"", row->key);
  if (row->kind != ARM_TEXT) return arm_fail(error, "descriptor: device_code of %s is no text", kind->name);
  arm_device_code *code = arm_zalloc(1, sizeof *code);
  if (code == NULL) return arm_fail(error, "out of memory");
  code->kind = kind;
  pthread_mutex_init(&code->lock, NULL);
  *out = code;
  code->source = arm_strdup(row->text, strlen(row->text));
  return code->source == NULL ? arm_fail(error, "out of memory") : 0;
}

void arm_device_code_free(arm_device_code *code) {
  if (code == NULL) return;
  for (int id = 0; id < MAX_DEVICES; id++)
    if (code->programs[id] != NULL) code->kind->drop(code->programs[id]);
  pthread_mutex_destroy(&code->lock);
  free(code->source);
  free(code);
}

int32_t arm_device_code_type(const arm_device_code *code) { return code == NULL ? ARM_CPU : code->kind->type; }

static void *program_of(arm_device_code *code, int32_t id, arm_error *error) {
  if (id < 0 || id >= MAX_DEVICES) {
    arm_fail(error, "devices have numbers from 0 to %d, not %d", MAX_DEVICES - 1, id);
    return NULL;
  }
  pthread_mutex_lock(&code->lock);
  int status = code->kind->open(id, error);
  if (status == 0 && code->programs[id] == NULL) status = code->kind->build(id, code->source, &code->programs[id], error);
  pthread_mutex_unlock(&code->lock);
  return status == 0 ? code->programs[id] : NULL;
}

/* ---- launches ---- */

static int read_sizes(const arm_json *json, int32_t list, const char *where, int64_t out[3], arm_error *error) {
  int k = 0;
  if (list < 0 || json->values[list].kind != ARM_LIST || json->values[list].count != 3)
    return arm_fail(error, "%s: a launch has three sizes of groups and of items", where);
  for (int32_t v = json->values[list].first; v >= 0; v = json->values[v].next)
    if (arm_json_int(json, v, 0, ARM_MAX_BYTES, &out[k++]) != 0)
      return arm_fail(error, "%s: a size of a launch is out of range", where);
  return 0;
}

int64_t arm_count_value(const arm_count *count, const int64_t *vars) {
  return count->of.count > 0 ? arm_extent_value(&count->of, vars) : count->number;
}

/* A number of at least `low`, or the text of an expression over the function's vars. */
static int read_count(const arm_json *json, int32_t value, int64_t low, int64_t high, const arm_function *f, arm_count *out,
                      arm_error *error) {
  if (value >= 0 && json->values[value].kind == ARM_TEXT)
    return arm_extent_parse(json->values[value].text, f->vars, f->num_vars, &out->of, error);
  return arm_json_int(json, value, low, high, &out->number);
}

static int read_groups(const arm_json *json, int32_t list, const char *where, const arm_function *f, arm_count out[3],
                       arm_error *error) {
  int k = 0;
  if (list < 0 || json->values[list].kind != ARM_LIST || json->values[list].count != 3)
    return arm_fail(error, "%s: a launch has three sizes of groups and of items", where);
  for (int32_t v = json->values[list].first; v >= 0; v = json->values[v].next)
    if (read_count(json, v, 0, ARM_MAX_BYTES, f, &out[k++], error) != 0)
      return arm_fail(error, "%s: a size of a launch is out of range", where);
  return 0;
}

/* ["tensor", k], ["image", k], ["workspace", offset, bytes], ["var", k], ["number", n]; ["status"] and ["call"], where the data and vars of a
 * call have them: arm_status.c */
static int read_kernel_arg(const arm_json *json, int32_t list, const char *where, const arm_function *f,
                           arm_kernel_arg *out, arm_error *error) {
  const arm_json_value *values = json->values;
  int32_t word = values[list].kind == ARM_LIST ? values[list].first : -1;
  if (word < 0 || values[word].kind != ARM_TEXT) return arm_fail(error, "%s: an argument of a launch has no kind", where);
  const char *name = values[word].text;
  int is_status = strcmp(name, "status") == 0;
  if (values[list].count == 1 && (is_status || strcmp(name, "call") == 0)) {
    out->takes = is_status ? ARM_TAKES_TENSOR : ARM_TAKES_VAR;
    out->at.number = is_status ? f->num_args + 1 : f->num_vars;
    return 0;
  }
  int is_image = strcmp(name, "image") == 0, is_workspace = strcmp(name, "workspace") == 0;
  int is_tensor = is_image || strcmp(name, "tensor") == 0, is_number = strcmp(name, "number") == 0;
  if (!is_tensor && !is_workspace && !is_number && strcmp(name, "var") != 0)
    return arm_fail(error, "%s: an argument of a launch is of kind \"%.40s\"", where, name);
  out->takes = is_image       ? ARM_TAKES_IMAGE
               : is_tensor    ? ARM_TAKES_TENSOR
               : is_workspace ? ARM_TAKES_WORKSPACE
               : is_number    ? ARM_TAKES_NUMBER
                              : ARM_TAKES_VAR;
  int64_t limit = is_tensor ? f->num_args - 1 : is_workspace || is_number ? ARM_MAX_BYTES : f->num_vars - 1;
  int32_t first = values[word].next;
  int is_out = values[list].count != (is_workspace ? 3 : 2);
  if (!is_out && is_workspace) is_out = read_count(json, first, 0, limit, f, &out->at, error) != 0;
  else if (!is_out) is_out = arm_json_int(json, first, 0, limit, &out->at.number) != 0;
  if (is_out) return arm_fail(error, "%s: an argument of a launch is out of range", where);
  if (is_workspace && read_count(json, values[first].next, 1, ARM_MAX_BYTES, f, &out->bytes, error) != 0)
    return arm_fail(error, "%s: a part of a workspace has no size", where);
  return 0;
}

static int read_launch(const arm_json *json, int32_t row, const char *where, const arm_function *f, arm_launch *out,
                       arm_error *error) {
  int32_t kernel = arm_json_need(json, row, "kernel", ARM_TEXT, where, error);
  int32_t args = arm_json_need(json, row, "args", ARM_LIST, where, error);
  if (kernel < 0 || args < 0) return -1;
  out->workspace = f->num_args;
  out->kernel = arm_strdup(json->values[kernel].text, strlen(json->values[kernel].text));
  out->args = arm_zalloc((size_t)json->values[args].count, sizeof *out->args);
  if (out->kernel == NULL || out->args == NULL) return arm_fail(error, "out of memory");
  for (int32_t v = json->values[args].first; v >= 0; v = json->values[v].next)
    if (read_kernel_arg(json, v, where, f, &out->args[out->num_args++], error) != 0) return -1;
  if (read_groups(json, arm_json_get(json, row, "groups"), where, f, out->groups, error) != 0) return -1;
  return read_sizes(json, arm_json_get(json, row, "items"), where, out->items, error);
}

int arm_launches_read(const arm_json *json, int32_t list, const char *where, const arm_function *f, arm_launch **out,
                      int32_t *count, arm_error *error) {
  *count = 0;
  *out = arm_zalloc((size_t)json->values[list].count, sizeof **out);
  if (*out == NULL) return arm_fail(error, "out of memory");
  for (int32_t v = json->values[list].first; v >= 0; v = json->values[v].next)
    if (read_launch(json, v, where, f, &(*out)[(*count)++], error) != 0) return -1;
  return 0;
}

void arm_launches_free(arm_launch *launches, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    for (int32_t k = 0; k < launches[i].num_args; k++) {
      arm_extent_free(&launches[i].args[k].at.of);
      arm_extent_free(&launches[i].args[k].bytes.of);
    }
    for (int d = 0; d < 3; d++) arm_extent_free(&launches[i].groups[d].of);
    free(launches[i].kernel);
    free(launches[i].args);
  }
  free(launches);
}

struct arm_launcher {
  const arm_device_kind *kind;
  int32_t count;
  void *prepared[];
};

int arm_launcher_make(arm_device_code *code, int32_t id, const arm_launch *launches, int32_t count, arm_launcher **out,
                      arm_error *error) {
  *out = NULL;
  void *program = program_of(code, id, error);
  if (program == NULL) return -1;
  arm_launcher *made = arm_zalloc(1, sizeof *made + (size_t)count * sizeof *made->prepared);
  if (made == NULL) return arm_fail(error, "out of memory");
  made->kind = code->kind;
  *out = made;
  for (int32_t i = 0; i < count; i++, made->count++)
    if (code->kind->prepare(id, program, &launches[i], &made->prepared[i], error) != 0) return -1;
  return 0;
}

int32_t arm_launcher_run(arm_launcher *launcher, void *const *data, const int64_t *bytes, const int64_t *vars) {
  arm_error error = arm_device_told();
  for (int32_t i = 0; i < launcher->count; i++)
    if (launcher->kind->launch(launcher->prepared[i], data, bytes, vars, &error) != 0) return ARM_DEVICE_FAILED;
  return 0;
}

void arm_launcher_free(arm_launcher *launcher) {
  if (launcher == NULL) return;
  for (int32_t i = 0; i < launcher->count; i++) launcher->kind->forget(launcher->prepared[i]);
  free(launcher);
}

/* ---- tensors ---- */

static void gather(const arm_tensor *src, char *dst, int64_t item, int64_t count) {
  int64_t index[ARM_MAX_NDIM] = {0};
  const char *base = arm_tensor_data(src);
  int64_t offset = 0;
  for (int64_t done = 0; done < count; done++) {
    memcpy(dst + done * item, base + offset * item, (size_t)item);
    for (int axis = src->ndim - 1; axis >= 0; axis--) {
      offset += src->strides[axis];
      if (++index[axis] < src->shape[axis]) break;
      offset -= src->strides[axis] * src->shape[axis];
      index[axis] = 0;
    }
  }
}

int arm_tensor_copy(const arm_tensor *src, const arm_tensor *dst, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int64_t from, to;
  if (arm_tensor_bytes(src->shape, src->ndim, src->dtype, &from) != 0 ||
      arm_tensor_bytes(dst->shape, dst->ndim, dst->dtype, &to) != 0)
    return arm_fail(&error, "copy: a tensor has an impossible shape");
  if (!arm_dtype_equal(src->dtype, dst->dtype) || from != to)
    return arm_fail(&error, "copy: source is %lld bytes of %s, destination %lld bytes of %s", (long long)from,
                    arm_dtype_name(src->dtype), (long long)to, arm_dtype_name(dst->dtype));
  if (!arm_tensor_dense(dst)) return arm_fail(&error, "copy: the destination is not contiguous");
  if (from == 0) return 0;
  if (src->data == NULL || dst->data == NULL) return arm_fail(&error, "copy: a tensor has no memory");
  if (arm_tensor_dense(src))
    return arm_memory_copy(dst->device, arm_tensor_data(dst), src->device, arm_tensor_data(src), (size_t)from, &error);
  if (src->device.type != ARM_CPU || dst->device.type != ARM_CPU)
    return arm_fail(&error, "copy: only contiguous tensors go to a device or come from one");
  int64_t item = arm_dtype_bytes(src->dtype);
  gather(src, arm_tensor_data(dst), item, from / item);
  return 0;
}
