/* c_runtime_api's functions over the runtime: modules, graph modules, arrays, calls by name.
 *
 * In and out: as tvm/runtime/c_runtime_api.h says. Invariant: a handle that was freed is not looked at again, graph modules
 * and functions keep what they need alive, and a wrong argument is a message that names the function.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_internal.h"
#include "tvm/runtime/c_runtime_api.h"

typedef struct module {
  atomic_int references;
  arm_package *package; /* or NULL: of a graph module */
  arm_graph *graph;
  struct module *of; /* of a graph module: where its functions come from */
} module;

typedef struct {
  arm_tensor tensor; /* first: a handle is a DLTensor */
  int64_t shape[ARM_MAX_NDIM];
  void *owned;
  module *of; /* whose memory it is, else NULL */
} array;

typedef struct call call;
typedef int (*operation)(const call *c, arm_error *error);
typedef struct { const char *name; operation run; int of_graph; } row;
typedef struct { const row *row; module *of; int kernel; } function;
struct call {
  const function *function;
  const TVMValue *args;
  const int *codes;
  int count;
  TVMValue *result;
  int *result_code;
};

static _Thread_local char last_error[1024];

const char *TVMGetLastError(void) { return last_error; }
void TVMAPISetLastError(const char *message) { snprintf(last_error, sizeof last_error, "%s", message); }
static arm_error *error_of_thread(arm_error *error) {
  *error = (arm_error){last_error, sizeof last_error};
  return error;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static arm_pool *pool; /* of the process */

static void make_pool(void) {
  const char *text = getenv("ARMILLARY_NUM_THREADS");
  char err[256];
  if (text == NULL) text = getenv("TVM_NUM_THREADS");
  int threads = text != NULL ? atoi(text) : 0;
  pool = arm_pool_create(threads > 0 ? threads : arm_cpu_count(), 0, err, sizeof err);
}

/* ---- modules ---- */

static module *new_module(arm_package *package, arm_graph *graph, module *of) {
  module *m = arm_zalloc(1, sizeof *m);
  if (m == NULL) return NULL;
  *m = (module){.package = package, .graph = graph, .of = of};
  atomic_init(&m->references, 1);
  if (of != NULL) atomic_fetch_add(&of->references, 1);
  return m;
}

int TVMModFree(TVMModuleHandle handle) {
  module *m = handle;
  if (m == NULL || atomic_fetch_sub(&m->references, 1) != 1) return 0;
  arm_graph_destroy(m->graph);
  arm_package_close(m->package);
  (void)TVMModFree(m->of);
  free(m);
  return 0;
}

int TVMModLoadFromFile(const char *file_name, const char *format, TVMModuleHandle *out) {
  arm_package *package;
  (void)format; /* the file says what it is */
  *out = NULL;
  if (arm_package_open(file_name, &package, last_error, sizeof last_error) != 0) return -1;
  *out = new_module(package, NULL, NULL);
  if (*out != NULL) return 0;
  arm_package_close(package);
  TVMAPISetLastError("out of memory");
  return -1;
}

/* ---- arguments ---- */

static int wrong(const call *c, int index, const char *wanted, arm_error *error) {
  const char *name = c->function->row != NULL ? c->function->row->name : "a kernel";
  if (index >= c->count) return arm_fail(error, "%s: argument %d is missing; wanted %s", name, index, wanted);
  return arm_fail(error, "%s: argument %d has the type code %d; wanted %s", name, index, c->codes[index], wanted);
}

static int is_code(const call *c, int index, int a, int b) {
  return index < c->count && (c->codes[index] == a || c->codes[index] == b);
}

static int get_tensor(const call *c, int index, arm_tensor **out, arm_error *error) {
  if (!is_code(c, index, kTVMDLTensorHandle, kTVMNDArrayHandle)) return wrong(c, index, "a tensor", error);
  *out = c->args[index].v_handle;
  return 0;
}

static int get_int(const call *c, int index, int64_t *out, arm_error *error) {
  if (!is_code(c, index, kTVMArgInt, kTVMArgInt)) return wrong(c, index, "an integer", error);
  *out = c->args[index].v_int64;
  return 0;
}

/* An input by its number, or its name; with a value the one of its shape. */
static int get_input(const call *c, const arm_tensor *value, int *out, arm_error *error) {
  arm_graph *graph = c->function->of->graph;
  if (is_code(c, 0, kTVMArgInt, kTVMArgInt)) {
    *out = (int)c->args[0].v_int64;
    return 0;
  }
  if (!is_code(c, 0, kTVMStr, kTVMStr)) return wrong(c, 0, "the name or number of an input", error);
  if (value != NULL) {
    *out = arm_graph_pick(graph, c->args[0].v_str, value, error->text, error->size);
    return *out < 0 ? -1 : 0;
  }
  *out = arm_graph_input_index(graph, c->args[0].v_str);
  return *out < 0 ? arm_fail(error, "the graph has no input %s", c->args[0].v_str) : 0;
}

static int give_int(const call *c, int64_t value) {
  c->result->v_int64 = value;
  *c->result_code = kTVMArgInt;
  return 0;
}

static int give_array(const call *c, const arm_tensor *view, arm_error *error) {
  array *a = arm_zalloc(1, sizeof *a);
  if (a == NULL) return arm_fail(error, "out of memory");
  a->tensor = *view;
  memcpy(a->shape, view->shape, sizeof *a->shape * (size_t)view->ndim);
  a->tensor.shape = a->shape;
  a->of = c->function->of;
  atomic_fetch_add(&a->of->references, 1);
  c->result->v_handle = a;
  *c->result_code = kTVMNDArrayHandle;
  return 0;
}

/* ---- graph modules ---- */

static int give_graph(const call *c, arm_graph *graph, module *of, arm_error *error) {
  module *m = new_module(NULL, graph, of);
  if (m == NULL) return arm_graph_destroy(graph), arm_fail(error, "out of memory");
  c->result->v_handle = m;
  *c->result_code = kTVMModuleHandle;
  return 0;
}

static int run_default(const call *c, arm_error *error) {
  arm_graph *graph;
  if (!is_code(c, 0, kDLDevice, kDLDevice)) return wrong(c, 0, "a DLDevice", error);
  arm_device device = {(int32_t)c->args[0].v_device.device_type, c->args[0].v_device.device_id};
  if (arm_package_create_graph(c->function->of->package, &device, 1, pool, &graph, error->text, error->size) != 0) return -1;
  return give_graph(c, graph, c->function->of, error);
}

static int run_create(const call *c, arm_error *error) {
  int64_t type = 0, id = 0;
  arm_graph *graph;
  if (!is_code(c, 0, kTVMStr, kTVMStr)) return wrong(c, 0, "the text of a graph", error);
  if (!is_code(c, 1, kTVMModuleHandle, kTVMModuleHandle)) return wrong(c, 1, "a module", error);
  if (get_int(c, 2, &type, error) != 0 || get_int(c, 3, &id, error) != 0) return -1;
  module *of = c->args[1].v_handle;
  if (of->package == NULL) return arm_fail(error, "a graph module holds no functions; give the loaded module");
  arm_device device = {(int32_t)type, (int32_t)id};
  const char *json = c->args[0].v_str;
  if (arm_device_open(device, error->text, error->size) != 0 ||
      arm_graph_create_on(json, strlen(json), arm_package_module(of->package), device, pool, &graph, error->text, error->size) != 0)
    return -1;
  return give_graph(c, graph, of, error);
}

static int run_system_lib(const call *c, arm_error *error) {
  arm_package *package;
  if (arm_package_system(NULL, &package, error->text, error->size) != 0) return -1;
  module *m = new_module(package, NULL, NULL);
  if (m == NULL) return arm_package_close(package), arm_fail(error, "out of memory");
  c->result->v_handle = m;
  *c->result_code = kTVMModuleHandle;
  return 0;
}

static int run_set(const call *c, int is_zero_copy, arm_error *error) {
  arm_tensor *value = NULL;
  int index = -1;
  arm_graph *graph = c->function->of->graph;
  if (get_tensor(c, 1, &value, error) != 0 || get_input(c, value, &index, error) != 0) return -1;
  return (is_zero_copy ? arm_graph_set_input_zero_copy : arm_graph_set_input)(graph, index, value, error->text, error->size);
}

static int run_set_input(const call *c, arm_error *error) { return run_set(c, 0, error); }
static int run_set_input_zero_copy(const call *c, arm_error *error) { return run_set(c, 1, error); }

static int run_get_input(const call *c, arm_error *error) {
  arm_tensor view;
  int index = -1;
  if (get_input(c, NULL, &index, error) != 0) return -1;
  if (arm_graph_input(c->function->of->graph, index, &view, error->text, error->size) != 0) return -1;
  return give_array(c, &view, error);
}

static int run_get_output(const call *c, arm_error *error) {
  arm_tensor view, *out = NULL;
  int64_t index = 0;
  if (get_int(c, 0, &index, error) != 0) return -1;
  if (index < 0 || index > INT32_MAX) return arm_fail(error, "there is no output %lld", (long long)index);
  if (arm_graph_output(c->function->of->graph, (int)index, &view, error->text, error->size) != 0) return -1;
  if (c->count == 1) return give_array(c, &view, error);
  return get_tensor(c, 1, &out, error) != 0 ? -1 : arm_tensor_copy(&view, out, error->text, error->size);
}

static int run_run(const call *c, arm_error *error) {
  return arm_graph_run(c->function->of->graph, error->text, error->size);
}

static int run_load_params(const call *c, arm_error *error) {
  int count;
  if (!is_code(c, 0, kTVMBytes, kTVMBytes)) return wrong(c, 0, "bytes (TVMByteArray)", error);
  const TVMByteArray *bytes = c->args[0].v_handle;
  return arm_graph_load_params(c->function->of->graph, bytes->data, bytes->size, &count, error->text, error->size);
}

static int run_num_inputs(const call *c, arm_error *error) {
  (void)error;
  return give_int(c, arm_graph_num_inputs(c->function->of->graph));
}

static int run_num_outputs(const call *c, arm_error *error) {
  (void)error;
  return give_int(c, arm_graph_num_outputs(c->function->of->graph));
}

static int run_input_index(const call *c, arm_error *error) {
  if (!is_code(c, 0, kTVMStr, kTVMStr)) return wrong(c, 0, "the name of an input", error);
  return give_int(c, arm_graph_input_index(c->function->of->graph, c->args[0].v_str));
}

/* A kernel of the module: its tensors in order, then its numbers. */
static int run_kernel(const call *c, arm_error *error) {
  arm_tensor tensors[64];
  int64_t numbers[64];
  int num_tensors = 0, num_numbers = 0;
  arm_call *prepared;
  if (c->count > 64) return arm_fail(error, "a kernel takes at most 64 arguments, got %d", c->count);
  for (int i = 0; i < c->count; i++) {
    if (is_code(c, i, kTVMDLTensorHandle, kTVMNDArrayHandle)) tensors[num_tensors++] = *(arm_tensor *)c->args[i].v_handle;
    else if (is_code(c, i, kTVMArgInt, kTVMArgFloat)) numbers[num_numbers++] = c->args[i].v_int64; /* floats: their bits */
    else return wrong(c, i, "a tensor or a number", error);
  }
  arm_module *code = arm_package_module(c->function->of->package);
  if (arm_call_create(code, c->function->kernel, tensors, num_tensors, numbers, num_numbers, pool, &prepared, error->text,
                      error->size) != 0)
    return -1;
  int status = arm_call_run(prepared, error->text, error->size);
  arm_call_destroy(prepared);
  return status;
}

/* ---- functions ---- */

static const row rows[] = {{"default", run_default, 0},
                           {"set_input", run_set_input, 1},
                           {"set_input_zero_copy", run_set_input_zero_copy, 1},
                           {"get_input", run_get_input, 1},
                           {"get_output", run_get_output, 1},
                           {"get_num_inputs", run_num_inputs, 1},
                           {"get_num_outputs", run_num_outputs, 1},
                           {"get_input_index", run_input_index, 1},
                           {"load_params", run_load_params, 1},
                           {"run", run_run, 1}};
static const row globals[] = {{"tvm.graph_executor.create", run_create, 0},
                              {"tvm.graph_runtime.create", run_create, 0},
                              {"runtime.SystemLib", run_system_lib, 0},
                              {"module._GetSystemLib", run_system_lib, 0}};
#define COUNT(table) (sizeof table / sizeof *table)

static const row *find_row(const row *table, size_t count, const char *name, int of_graph) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(table[i].name, name) == 0 && table[i].of_graph == of_graph) return &table[i];
  return NULL;
}

static int give_function(const row *found, module *of, int kernel, TVMFunctionHandle *out) {
  function *f = arm_zalloc(1, sizeof *f);
  if (f == NULL) return TVMAPISetLastError("out of memory"), -1;
  *f = (function){found, of, kernel};
  if (of != NULL) atomic_fetch_add(&of->references, 1);
  *out = f;
  return 0;
}

int TVMModGetFunction(TVMModuleHandle mod, const char *func_name, int query_imports, TVMFunctionHandle *out) {
  module *m = mod;
  size_t size;
  (void)query_imports;
  *out = NULL;
  const row *found = find_row(rows, COUNT(rows), func_name, m->graph != NULL);
  if (found != NULL && m->package != NULL && arm_package_graph_json(m->package, &size) == NULL) found = NULL;
  int kernel = found == NULL && m->package != NULL ? arm_module_find(arm_package_module(m->package), func_name) : -1;
  if (found == NULL && kernel < 0) return 0; /* none of that name, which is no error */
  return give_function(found, m, kernel, out);
}

int TVMFuncGetGlobal(const char *name, TVMFunctionHandle *out) {
  const row *found = find_row(globals, COUNT(globals), name, 0);
  *out = NULL;
  return found == NULL ? 0 : give_function(found, NULL, -1, out);
}

int TVMFuncListGlobalNames(int *out_size, const char ***out_array) {
  static const char *names[COUNT(globals)];
  for (size_t i = 0; i < COUNT(globals); i++) names[i] = globals[i].name;
  *out_size = (int)COUNT(globals);
  *out_array = names;
  return 0;
}

int TVMFuncFree(TVMFunctionHandle func) {
  function *f = func;
  if (f == NULL) return 0;
  (void)TVMModFree(f->of);
  free(f);
  return 0;
}

int TVMFuncCall(TVMFunctionHandle func, TVMValue *arg_values, int *type_codes, int num_args, TVMValue *ret_val,
                int *ret_type_code) {
  arm_error error;
  const function *f = func;
  TVMValue unused;
  int unused_code;
  pthread_once(&once, make_pool);
  call c = {f, arg_values, type_codes, num_args, ret_val ? ret_val : &unused, ret_type_code ? ret_type_code : &unused_code};
  *c.result_code = kTVMNullptr;
  c.result->v_handle = NULL;
  return (f->row != NULL ? f->row->run : run_kernel)(&c, error_of_thread(&error));
}

/* ---- arrays ---- */

int TVMArrayAlloc(const tvm_index_t *shape, int ndim, int dtype_code, int dtype_bits, int dtype_lanes, int device_type,
                  int device_id, TVMArrayHandle *out) {
  arm_error error;
  int64_t bytes;
  arm_dtype dtype = {(uint8_t)dtype_code, (uint8_t)dtype_bits, (uint16_t)dtype_lanes};
  arm_device device = {device_type, device_id};
  *out = NULL;
  if (ndim < 0 || ndim > ARM_MAX_NDIM || arm_tensor_bytes(shape, ndim, dtype, &bytes) != 0)
    return arm_fail(error_of_thread(&error), "TVMArrayAlloc: no such shape or type");
  array *a = arm_zalloc(1, sizeof *a);
  if (a == NULL) return arm_fail(error_of_thread(&error), "out of memory");
  a->owned = arm_device_allocate(device, (size_t)bytes, last_error, sizeof last_error);
  if (a->owned == NULL) return free(a), -1;
  memcpy(a->shape, shape, sizeof *shape * (size_t)ndim);
  a->tensor = (arm_tensor){a->owned, device, ndim, dtype, a->shape, NULL, 0};
  *out = (TVMArrayHandle)a;
  return 0;
}

int TVMArrayFree(TVMArrayHandle handle) {
  array *a = (array *)handle;
  if (a == NULL) return 0;
  if (a->owned != NULL) arm_device_release(a->tensor.device, a->owned);
  (void)TVMModFree(a->of);
  free(a);
  return 0;
}

/* The bytes of a tensor as one of the host; -1: they are not so many. */
static int as_bytes(const arm_tensor *t, void *data, size_t size, arm_tensor *out) {
  int64_t bytes;
  arm_error error;
  if (arm_tensor_bytes(t->shape, t->ndim, t->dtype, &bytes) != 0 || (size_t)bytes != size)
    return arm_fail(error_of_thread(&error), "the array has %lld bytes, got %zu", (long long)bytes, size);
  *out = (arm_tensor){data, {1, 0}, t->ndim, t->dtype, t->shape, NULL, 0};
  return 0;
}

int TVMArrayCopyFromBytes(TVMArrayHandle handle, void *data, size_t nbytes) {
  arm_tensor host, *t = (arm_tensor *)handle;
  return as_bytes(t, data, nbytes, &host) != 0 ? -1 : arm_tensor_copy(&host, t, last_error, sizeof last_error);
}

int TVMArrayCopyToBytes(TVMArrayHandle handle, void *data, size_t nbytes) {
  arm_tensor host, *t = (arm_tensor *)handle;
  return as_bytes(t, data, nbytes, &host) != 0 ? -1 : arm_tensor_copy(t, &host, last_error, sizeof last_error);
}

int TVMArrayCopyFromTo(TVMArrayHandle from, TVMArrayHandle to, TVMStreamHandle stream) {
  (void)stream;
  return arm_tensor_copy((arm_tensor *)from, (arm_tensor *)to, last_error, sizeof last_error);
}

int TVMSynchronize(int device_type, int device_id, TVMStreamHandle stream) {
  (void)stream;
  return arm_device_synchronize((arm_device){device_type, device_id}, last_error, sizeof last_error);
}
