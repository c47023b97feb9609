/* Offloaded functions: finding the library that computes them, and calling it.
 *
 * In: a function of the descriptor that names a kind and holds a source; the arguments of one call. Out: an arm_offload,
 * which a bound call owns. Invariant: a kind is looked for once and stays loaded; the library makes its object at the first
 * run after constants were set, so the runs that follow only pass tensors. Where the library is not there or refuses, and
 * the package has a graph of our own kernels for the function, that is run instead. The interface: arm_external.h.
 */
#define _GNU_SOURCE
#include "arm_external.h"
#include "arm_opencl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PATH_TEXT 4096

typedef struct external { struct external *next; const arm_external_api *api; char kind[ARM_MAX_KIND + 1]; } external;

struct arm_offload {
  const arm_function *function;
  const arm_external_api *api;
  arm_external_host host;
  arm_cl_state *device; /* of a function that runs on one */
  void *handle;
  arm_graph *own;      /* our own kernels, once they are what runs */
  int uses_own;
  arm_tensor *tensors; /* inputs, then constants, then parameters of our own graph, then outputs */
  int32_t *arguments;  /* the argument that each of them is */
  int64_t *shapes;
  int32_t num_inputs, num_outputs, is_stale;
  char text[512];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static external *loaded;
static char search_path[MAX_PATH_TEXT];

int arm_external_path(const char *folders, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (strlen(folders) >= sizeof search_path) return arm_fail(&error, "ARMILLARY_EXTERNAL_PATH is too long");
  pthread_mutex_lock(&lock);
  strcpy(search_path, folders);
  pthread_mutex_unlock(&lock);
  return 0;
}

/* ---- finding a library ---- */

/* The file in one of the folders (colons between them); 0 where there is none. */
static int find_in(const char *folders, const char *name, char *path, size_t size) {
  for (const char *at = folders; at != NULL && *at;) {
    const char *end = strchr(at, ':');
    size_t length = end ? (size_t)(end - at) : strlen(at);
    if (length > 0 && (size_t)snprintf(path, size, "%.*s/%s", (int)length, at, name) < size && access(path, F_OK) == 0)
      return 1;
    at = end ? end + 1 : NULL;
  }
  return 0;
}

static void *open_external(const arm_function *f, const char *name, arm_error *error) {
  char path[MAX_PATH_TEXT];
  const char *given = *search_path ? search_path : getenv("ARMILLARY_EXTERNAL_PATH");
  const char *folder = f->folder ? f->folder : "";
  if (!find_in(given, name, path, sizeof path) && !find_in(folder, name, path, sizeof path))
    snprintf(path, sizeof path, "%s", name);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle != NULL) return handle;
  if (strchr(path, '/') != NULL) 
    arm_fail(error,
             "%s: %s cannot be loaded: %s; a library that it needs is not on this machine or of another version than it "
             "was built with: build it for this one (armc build-external %s), or build the model without it, or with "
             "offload.fallback",
             f->name, path, dlerror(), f->kind);
  else
    arm_fail(error,
             "%s is computed by %s, whose runtime %s is not there: looked in ARMILLARY_EXTERNAL_PATH (%s), beside the "
             "package (%s) and where the system looks; build it for this machine (armc build-external %s), or build the "
             "model without it, or with offload.fallback, which keeps our own kernels in the package",
             f->name, f->kind, name, given && *given ? given : "not set", *folder ? folder : "not a file", f->kind);
  return NULL;
}

/* A library that is linked into the program itself; absent in most. */
#if defined(__APPLE__) /* where a weak name has to be somewhere */
static const arm_external_api *linked(void) { return NULL; }
#else
__attribute__((weak)) const arm_external_api *armillary_external(void);
static const arm_external_api *linked(void) { return armillary_external != NULL ? armillary_external() : NULL; }
#endif

static const arm_external_api *load_external(const arm_function *f, arm_error *error) {
  char name[ARM_MAX_KIND + 64];
  snprintf(name, sizeof name, "libarmillary_external_%s.so", f->kind);
  const arm_external_api *api = linked();
  void *handle = NULL;
  external *row = NULL;
  if (api == NULL || strcmp(api->kind, f->kind) != 0) {
    handle = open_external(f, name, error);
    if (handle == NULL) return NULL;
    arm_external_entry entry = NULL;
    void *symbol = dlsym(handle, ARM_EXTERNAL_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    api = entry ? entry() : NULL;
  }
  if (api == NULL) arm_fail(error, "%s: %s does not export " ARM_EXTERNAL_ENTRY, f->name, name);
  else if (api->abi < 1 || api->abi > ARM_EXTERNAL_ABI)
    arm_fail(error, "%s: %s has interface %d, this runtime has %d; build it again", f->name, name, api->abi,
             ARM_EXTERNAL_ABI);
  else if (strcmp(api->kind, f->kind) != 0)
    arm_fail(error, "%s: %s is of kind %.60s", f->name, name, api->kind);
  else if ((row = arm_zalloc(1, sizeof *row)) == NULL)
    arm_fail(error, "out of memory");
  if (row == NULL) {
    if (handle != NULL) dlclose(handle);
    return NULL;
  }
  *row = (external){.next = loaded, .api = api};
  snprintf(row->kind, sizeof row->kind, "%s", f->kind);
  loaded = row;
  return api;
}

static const arm_external_api *external_of(const arm_function *f, arm_error *error) {
  pthread_mutex_lock(&lock);
  external *row = loaded;
  while (row != NULL && strcmp(row->kind, f->kind) != 0) row = row->next;
  const arm_external_api *api = row ? row->api : load_external(f, error);
  pthread_mutex_unlock(&lock);
  return api;
}

/* ---- one call ---- */

typedef struct { arm_external_work work; void *context; } lent;

static int32_t window(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const lent *loop = (const void *)data;
  (void)vars;
  return loop->work(loop->context, begin, end, thread);
}

static int32_t parallel(const arm_external_host *host, arm_external_work work, void *context, int64_t extent) {
  lent loop = {work, context};
  if (host->pool == NULL) return work(context, 0, extent, 0);
  return arm_pool_run(host->pool, window, (void *const *)(const void *)&loop, NULL, extent, host->threads);
}

static int device_memory(const arm_external_host *host, const void *address, size_t bytes, void **mem, char *err,
                         size_t err_size) {
  arm_error error = {err, err_size};
  cl_mem found = NULL;
  int status = arm_cl_memory(host->device_state, address, bytes, 0, &found, &error);
  *mem = found;
  return status;
}

static void take(arm_offload *call, int32_t *place, int32_t argument, const arm_tensor *tensor) {
  int64_t *shape = call->shapes + (int64_t)*place * ARM_MAX_NDIM;
  memcpy(shape, tensor->shape, sizeof *shape * (size_t)tensor->ndim);
  call->tensors[*place] = (arm_tensor){NULL, tensor->device, tensor->ndim, tensor->dtype, shape, NULL, 0};
  call->arguments[(*place)++] = argument;
}

/* ---- our own kernels ---- */

/* Said once for each function, where it is seen: whoever asked for this wants to know that it came to it. */
static void use_own(arm_offload *call, const char *why) {
  call->uses_own = 1;
  const char *name = call->function->name;
  int is_named = strncmp(why, name, strlen(name)) == 0;
  fprintf(stderr, "armillary: %s%s%s (the package's own kernels run instead)\n", is_named ? "" : name,
          is_named ? "" : ": ", why);
}

static arm_tensor *own_input(arm_offload *call, int32_t k) {
  return &call->tensors[k < call->num_inputs ? k : k + call->function->num_constants];
}

static int make_own(arm_offload *call, arm_pool *pool) {
  const arm_function *f = call->function;
  arm_graph_destroy(call->own);
  call->own = NULL;
  if (arm_graph_create(f->own_graph, f->own_graph_size, f->module, pool, &call->own, call->text, sizeof call->text) != 0)
    return -1;
  arm_error error = {call->text, sizeof call->text};
  if (arm_graph_num_inputs(call->own) != call->num_inputs + f->num_own || arm_graph_num_outputs(call->own) != call->num_outputs)
    return arm_fail(&error, "%s: its own graph has other inputs or outputs", f->name);
  for (int32_t k = call->num_inputs; k < call->num_inputs + f->num_own; k++)
    if (arm_graph_set_input_zero_copy(call->own, k, own_input(call, k), call->text, sizeof call->text) != 0) return -1;
  call->is_stale = 0;
  return 0;
}

static int run_own(arm_offload *call, int is_new, arm_pool *pool) {
  if ((call->own == NULL || is_new) && make_own(call, pool) != 0) return -1;
  const arm_tensor *outputs = own_input(call, call->num_inputs + call->function->num_own);
  for (int32_t k = 0; k < call->num_inputs; k++)
    if (arm_graph_set_input_zero_copy(call->own, k, own_input(call, k), call->text, sizeof call->text) != 0) return -1;
  for (int32_t k = 0; k < call->num_outputs; k++)
    if (arm_graph_set_output_zero_copy(call->own, k, &outputs[k], call->text, sizeof call->text) != 0) return -1;
  return arm_graph_run(call->own, call->text, sizeof call->text);
}

arm_offload *arm_offload_bind(const arm_function *f, const arm_tensor *args, arm_error *error) {
  const arm_external_api *api = external_of(f, error);
  if (api == NULL && f->own_graph == NULL) return NULL;
  arm_offload *call = arm_zalloc(1, sizeof *call);
  int32_t place = 0;
  if (call != NULL) {
    call->tensors = arm_zalloc((size_t)f->num_args, sizeof *call->tensors);
    call->arguments = arm_zalloc((size_t)f->num_args, sizeof *call->arguments);
    call->shapes = arm_zalloc((size_t)f->num_args * ARM_MAX_NDIM, sizeof *call->shapes);
  }
  if (call == NULL || call->tensors == NULL || call->arguments == NULL || call->shapes == NULL) {
    arm_offload_free(call);
    arm_fail(error, "out of memory");
    return NULL;
  }
  call->function = f;
  call->api = api;
  if (api == NULL) use_own(call, error->text == NULL ? "" : error->text);
  if (f->external_device == ARM_OPENCL && f->num_args > 0) {
    call->device = arm_cl_open(args[0].device.id, error);
    if (call->device == NULL) {
      arm_offload_free(call);
      return NULL;
    }
  }
  for (int32_t k = 0; k < f->num_args; k++)
    if (!f->args[k].is_out) take(call, &place, k, &args[k]);
  call->num_inputs = place - f->num_constants - f->num_own;
  for (int32_t k = 0; k < f->num_args; k++)
    if (f->args[k].is_out) take(call, &place, k, &args[k]);
  call->num_outputs = place - call->num_inputs - f->num_constants - f->num_own;
  return call;
}

static int make_handle(arm_offload *call, arm_pool *pool, int threads) {
  const arm_function *f = call->function;
  if (call->handle != NULL) call->api->destroy(call->handle);
  call->handle = NULL;
  call->host = (arm_external_host){.abi = ARM_EXTERNAL_ABI, .threads = pool ? threads : 1, .pool = pool,
                                   .parallel = parallel, .allocate = arm_alloc, .release = arm_free};
  if (call->device != NULL) {
    call->host.cl_context = call->device->context;
    call->host.cl_device = call->device->device;
    call->host.cl_queue = call->device->queue;
    call->host.cl_memory = device_memory;
    call->host.device_state = call->device;
  }
  arm_external_function function = {f->name, f->source, f->source_size, call->tensors + call->num_inputs,
                                    f->num_constants};
  if (call->api->create(&function, &call->host, &call->handle, call->text, sizeof call->text) != 0) {
    call->handle = NULL;
    return -1;
  }
  call->is_stale = 0;
  return 0;
}

int32_t arm_offload_run(arm_offload *call, void *const *data, arm_pool *pool, int threads) {
  const arm_function *f = call->function;
  int32_t constants = call->num_inputs, outputs = constants + f->num_constants + f->num_own;
  int is_new = (call->handle == NULL && !call->uses_own) || call->is_stale;
  for (int32_t i = 0; i < outputs + call->num_outputs; i++) {
    void *place = data[call->arguments[i]];
    is_new = is_new || (i >= constants && i < outputs && call->tensors[i].data != place);
    call->tensors[i].data = place;
  }
  call->text[0] = 0;
  if (is_new && !call->uses_own && make_handle(call, pool, threads) != 0) {
    if (f->own_graph == NULL) return 1;
    use_own(call, call->text);
  }
  if (call->uses_own) return run_own(call, is_new, pool) == 0 ? 0 : 1;
  int status = call->api->run(call->handle, call->tensors, call->num_inputs, call->tensors + outputs, call->num_outputs,
                              call->text, sizeof call->text);
  return status == 0 ? 0 : 1;
}

int arm_offload_keeps(const arm_offload *call, int32_t argument) {
  for (int32_t k = 0; k < call->function->num_constants + call->function->num_own; k++)
    if (call->arguments[call->num_inputs + k] == argument) return 1;
  return 0;
}

void arm_offload_stale(arm_offload *call) { call->is_stale = 1; }

int arm_offload_failed(const arm_offload *call, arm_error *error) {
  const char *told = *call->text ? call->text : "failed without a message";
  if (call->uses_own) return arm_fail(error, "%s, by its own kernels: %s", call->function->name, told);
  const char *hint = call->handle == NULL ? "; build the model without it, or with offload.fallback" : "";
  return arm_fail(error, "%s: %s %s: %s%s", call->function->name, call->function->kind,
                  call->api->version ? call->api->version : "", told, hint);
}

void arm_offload_free(arm_offload *call) {
  if (call == NULL) return;
  if (call->handle != NULL) call->api->destroy(call->handle);
  arm_graph_destroy(call->own);
  free(call->tensors);
  free(call->arguments);
  free(call->shapes);
  free(call);
}

/* ---- reading the descriptor ---- */

/* The graph of our own kernels, where the package has one, and how many of the last inputs are its parameters. */
static int read_own(const arm_json *json, int32_t external, int64_t ins, const char *where, arm_function *f, arm_error *error) {
  int32_t own = arm_json_get(json, external, "own");
  int64_t count = 0;
  if (own < 0) return 0;
  int32_t graph = json->values[own].kind == ARM_MAP ? arm_json_need(json, own, "graph", ARM_TEXT, where, error) : -1;
  if (graph < 0 || arm_json_int(json, arm_json_get(json, own, "constants"), 0, ins - f->num_constants, &count) != 0)
    return arm_fail(error, "%s: external own is no graph with the number of its constants", where);
  f->num_own = (int32_t)count;
  f->own_graph_size = strlen(json->values[graph].text);
  f->own_graph = arm_strdup(json->values[graph].text, f->own_graph_size);
  return f->own_graph ? 0 : arm_fail(error, "out of memory");
}

static int is_kind(const char *text) {
  size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
  return length > 0 && length <= ARM_MAX_KIND && text[length] == 0;
}

int arm_offload_read(const arm_json *json, int32_t row, const char *where, arm_function *f, arm_error *error) {
  int32_t value = arm_json_get(json, row, "external"), ins = 0;
  int64_t constants = 0;
  if (value < 0) return 0;
  if (json->values[value].kind != ARM_MAP) return arm_fail(error, "%s: external is no map", where);
  int32_t kind = arm_json_need(json, value, "kind", ARM_TEXT, where, error);
  int32_t source = arm_json_need(json, value, "source", ARM_TEXT, where, error);
  if (kind < 0 || source < 0) return -1;
  if (!is_kind(json->values[kind].text))
    return arm_fail(error, "%s: external kind \"%.40s\" is not of a-z, 0-9 and _", where, json->values[kind].text);
  for (int32_t k = 0; k < f->num_args; k++) ins += !f->args[k].is_out;
  if (arm_json_int(json, arm_json_get(json, value, "constants"), 0, ins, &constants) != 0)
    return arm_fail(error, "%s: external constants is not a number of its inputs", where);
  if (f->num_phases != 0) return arm_fail(error, "%s: an external function has no phases", where);
  int32_t device = arm_json_get(json, value, "device");
  f->external_device = ARM_CPU;
  if (device >= 0) {
    const char *name = json->values[device].kind == ARM_TEXT ? json->values[device].text : "";
    const arm_device_kind *found = arm_device_kind_named(name);
    if (found == NULL) return arm_fail(error, "%s: this runtime has no devices of kind \"%.40s\"", where, name);
    f->external_device = found->type;
  }
  f->num_constants = (int32_t)constants;
  f->source_size = strlen(json->values[source].text);
  f->kind = arm_strdup(json->values[kind].text, strlen(json->values[kind].text));
  f->source = arm_strdup(json->values[source].text, f->source_size);
  if (f->kind == NULL || f->source == NULL) return arm_fail(error, "out of memory");
  return read_own(json, value, ins, where, f, error);
}
