/* Function rows of the descriptor: reading them, binding arguments to them, running their phases.
 *
 * In: descriptor JSON and a resolver of symbols; tensors and scalars. Out: tables of function pointers; bound calls.
 * Invariant: a bound call has passed every check of count, dtype, shape, alignment and contiguity, so running it cannot
 * read outside the tensors it was given.
 */
#include "arm_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const arm_json *json;
  arm_resolver resolve;
  void *context;
  arm_device_code *code;
  arm_error *error;
  char where[160];
} reader;

static void *symbol(reader *r, int32_t value) {
  if (value < 0) return NULL;
  const char *name = r->json->values[value].text;
  void *address = r->resolve(r->context, name);
  if (address == NULL) arm_fail(r->error, "%s: the library does not define symbol \"%s\"", r->where, name);
  return address;
}

static int read_vars(reader *r, int32_t row, arm_function *f) {
  int32_t list = arm_json_need(r->json, row, "vars", ARM_LIST, r->where, r->error);
  if (list < 0) return -1;
  f->vars = arm_zalloc((size_t)r->json->values[list].count, sizeof *f->vars);
  if (f->vars == NULL) return arm_fail(r->error, "out of memory");
  for (int32_t v = r->json->values[list].first; v >= 0; v = r->json->values[v].next) {
    int32_t name = arm_json_need(r->json, v, "name", ARM_TEXT, r->where, r->error);
    if (name < 0) return -1;
    const char *text = r->json->values[name].text;
    if ((f->vars[f->num_vars] = arm_strdup(text, strlen(text))) == NULL) return arm_fail(r->error, "out of memory");
    f->num_vars++;
  }
  return 0;
}

/* A dimension that is an expression over the vars: a row of the function's extents. */
static int add_extent(reader *r, const char *text, arm_function *f, int64_t *out) {
  arm_extent *rows = realloc(f->extents, sizeof *rows * ((size_t)f->num_extents + 1));
  if (rows == NULL) return arm_fail(r->error, "out of memory");
  f->extents = rows;
  if (arm_extent_parse(text, f->vars, f->num_vars, &rows[f->num_extents], r->error) != 0) return -1;
  *out = -(int64_t)f->num_vars - 1 - f->num_extents++;
  return 0;
}

static int read_dim(reader *r, int32_t value, arm_function *f, int64_t *out) {
  if (arm_json_int(r->json, value, 0, ARM_MAX_BYTES, out) == 0) return 0;
  if (value < 0 || r->json->values[value].kind != ARM_TEXT)
    return arm_fail(r->error, "%s: a dimension is neither a size nor a var of the function", r->where);
  for (int v = 0; v < f->num_vars; v++) {
    if (strcmp(f->vars[v], r->json->values[value].text) != 0) continue;
    *out = -(int64_t)(v + 1);
    return 0;
  }
  return add_extent(r, r->json->values[value].text, f, out);
}

static int read_arg(reader *r, int32_t row, arm_function *f, arm_arg *arg) {
  int32_t name = arm_json_need(r->json, row, "name", ARM_TEXT, r->where, r->error);
  int32_t dtype = arm_json_need(r->json, row, "dtype", ARM_TEXT, r->where, r->error);
  int32_t role = arm_json_need(r->json, row, "role", ARM_TEXT, r->where, r->error);
  int32_t shape = arm_json_need(r->json, row, "shape", ARM_LIST, r->where, r->error);
  if (name < 0 || dtype < 0 || role < 0 || shape < 0) return -1;
  const arm_json_value *values = r->json->values;
  if (arm_dtype_parse(values[dtype].text, &arg->dtype) != 0)
    return arm_fail(r->error, "%s: unknown dtype \"%.40s\"", r->where, values[dtype].text);
  if (strcmp(values[role].text, "in") != 0 && strcmp(values[role].text, "out") != 0)
    return arm_fail(r->error, "%s: role \"%.40s\" is neither in nor out", r->where, values[role].text);
  if (values[shape].count > ARM_MAX_NDIM) return arm_fail(r->error, "%s: too many dimensions", r->where);
  arg->is_out = values[role].text[0] == 'o';
  arg->name = arm_strdup(values[name].text, strlen(values[name].text));
  if (arg->name == NULL) return arm_fail(r->error, "out of memory");
  for (int32_t v = values[shape].first; v >= 0; v = values[v].next)
    if (read_dim(r, v, f, &arg->shape[arg->ndim++]) != 0) return -1;
  return 0;
}

static int read_args(reader *r, int32_t row, arm_function *f) {
  int32_t list = arm_json_need(r->json, row, "args", ARM_LIST, r->where, r->error);
  if (list < 0) return -1;
  f->args = arm_zalloc((size_t)r->json->values[list].count, sizeof *f->args);
  if (f->args == NULL) return arm_fail(r->error, "out of memory");
  for (int32_t v = r->json->values[list].first; v >= 0; v = r->json->values[v].next)
    if (read_arg(r, v, f, &f->args[f->num_args++]) != 0) return -1;
  return 0;
}

static int read_phase(reader *r, int32_t row, arm_phase *phase) {
  int32_t extent = arm_json_get(r->json, row, "extent");
  void *run = symbol(r, arm_json_need(r->json, row, "symbol", ARM_TEXT, r->where, r->error));
  if (run == NULL) return -1;
  memcpy(&phase->run, &run, sizeof run);
  if (arm_json_int(r->json, extent, 0, ARM_MAX_BYTES, &phase->extent) == 0) return 0;
  if (extent < 0 || r->json->values[extent].kind != ARM_MAP)
    return arm_fail(r->error, "%s: a phase's extent is neither a size nor a symbol", r->where);
  void *of = symbol(r, arm_json_need(r->json, extent, "symbol", ARM_TEXT, r->where, r->error));
  if (of == NULL) return -1;
  memcpy(&phase->extent_of, &of, sizeof of);
  return 0;
}

static int read_phases(reader *r, int32_t row, arm_function *f) {
  int32_t list = arm_json_need(r->json, row, "phases", ARM_LIST, r->where, r->error);
  if (list < 0) return -1;
  f->phases = arm_zalloc((size_t)r->json->values[list].count, sizeof *f->phases);
  if (f->phases == NULL) return arm_fail(r->error, "out of memory");
  for (int32_t v = r->json->values[list].first; v >= 0; v = r->json->values[v].next)
    if (read_phase(r, v, &f->phases[f->num_phases++]) != 0) return -1;
  return 0;
}

static int read_launches(reader *r, int32_t row, arm_function *f) {
  int32_t list = arm_json_get(r->json, row, "launches");
  if (list < 0) return 0;
  if (r->json->values[list].kind != ARM_LIST || r->code == NULL)
    return arm_fail(r->error, "%s: launches are a list, and the descriptor has device_code for them", r->where);
  f->code = r->code;
  return arm_launches_read(r->json, list, r->where, f, &f->launches, &f->num_launches, r->error);
}

static int read_asserts(reader *r, int32_t row, arm_function *f) {
  int32_t list = arm_json_need(r->json, row, "asserts", ARM_LIST, r->where, r->error);
  if (list < 0) return -1;
  f->asserts = arm_zalloc((size_t)r->json->values[list].count, sizeof *f->asserts);
  if (f->asserts == NULL) return arm_fail(r->error, "out of memory");
  for (int32_t v = r->json->values[list].first; v >= 0; v = r->json->values[v].next) {
    if (r->json->values[v].kind != ARM_TEXT) return arm_fail(r->error, "%s: an assert is not a text", r->where);
    const char *text = r->json->values[v].text;
    if ((f->asserts[f->num_asserts] = arm_strdup(text, strlen(text))) == NULL)
      return arm_fail(r->error, "out of memory");
    f->num_asserts++;
  }
  return 0;
}

/* Bytes of a workspace: a number up to `limit`, or an expression over the vars. */
static int read_workspace(reader *r, int32_t row, const char *key, int64_t limit, const arm_function *f, int64_t *bytes,
                          arm_extent *of) {
  int32_t value = arm_json_get(r->json, row, key);
  if (arm_json_int(r->json, value, 0, limit, bytes) == 0) return 0;
  if (value < 0 || r->json->values[value].kind != ARM_TEXT)
    return arm_fail(r->error, "%s: bad workspace sizes (thread_workspace must be a multiple of %d)", r->where, ARM_ALIGN);
  return arm_extent_parse(r->json->values[value].text, f->vars, f->num_vars, of, r->error);
}

static int read_function(reader *r, int32_t row, arm_function *f) {
  const char *name = r->json->values[row].key;
  snprintf(r->where, sizeof r->where, "descriptor: function %.120s", name);
  if ((f->name = arm_strdup(name, strlen(name))) == NULL) return arm_fail(r->error, "out of memory");
  if (read_vars(r, row, f) != 0) return -1;
  if (read_workspace(r, row, "workspace", ARM_MAX_BYTES, f, &f->workspace, &f->workspace_of) != 0 ||
      read_workspace(r, row, "thread_workspace", ARM_MAX_BYTES / 4096, f, &f->thread_workspace,
                     &f->thread_workspace_of) != 0)
    return -1;
  if (f->thread_workspace % ARM_ALIGN != 0)
    return arm_fail(r->error, "%s: bad workspace sizes (thread_workspace must be a multiple of %d)", r->where, ARM_ALIGN);
  if (read_args(r, row, f) != 0 || read_phases(r, row, f) != 0) return -1;
  if (read_launches(r, row, f) != 0 || read_asserts(r, row, f) != 0) return -1;
  int32_t overlap = arm_json_get(r->json, row, "may_overlap");
  if (overlap >= 0 && arm_json_int(r->json, overlap, 0, 1, &f->may_overlap) != 0)
    return arm_fail(r->error, "%s: may_overlap is neither 0 nor 1", r->where);
  return arm_offload_read(r->json, row, r->where, f, r->error);
}

int arm_functions_read(const arm_json *json, arm_resolver resolve, void *context, arm_device_code *code,
                       arm_function **out, int *count, arm_error *error) {
  reader r = {json, resolve, context, code, error, "descriptor"};
  int64_t abi = 0;
  *out = NULL;
  *count = 0;
  if (arm_json_int(json, arm_json_get(json, 0, "abi"), ARM_ABI_VERSION, ARM_ABI_VERSION, &abi) != 0)
    return arm_fail(error, "descriptor: kernel ABI is not %d; compile the model again", ARM_ABI_VERSION);
  int32_t rows = arm_json_need(json, 0, "functions", ARM_MAP, "descriptor", error);
  if (rows < 0) return -1;
  arm_function *functions = arm_zalloc((size_t)json->values[rows].count, sizeof *functions);
  if (functions == NULL) return arm_fail(error, "out of memory");
  *out = functions;
  for (int32_t v = json->values[rows].first; v >= 0; v = json->values[v].next)
    if (read_function(&r, v, &functions[(*count)++]) != 0) return -1;
  return 0;
}

void arm_functions_free(arm_function *functions, int count) {
  for (int i = 0; i < count; i++) {
    arm_function *f = &functions[i];
    for (int k = 0; k < f->num_args; k++) free(f->args[k].name);
    for (int k = 0; k < f->num_vars; k++) free(f->vars[k]);
    for (int k = 0; k < f->num_asserts; k++) free(f->asserts[k]);
    for (int k = 0; k < f->num_extents; k++) arm_extent_free(&f->extents[k]);
    arm_extent_free(&f->workspace_of);
    arm_extent_free(&f->thread_workspace_of);
    free(f->extents);
    free(f->name);
    free(f->args);
    arm_launches_free(f->launches, f->num_launches);
    free(f->phases);
    free(f->vars);
    free(f->asserts);
    free(f->kind);
    free(f->source);
    free(f->own_graph);
  }
  free(functions);
}

/* ---- binding ---- */

#define UNBOUND INT64_MIN

static int check_type(const arm_function *f, int index, const arm_tensor *t, arm_error *error) {
  const arm_arg *arg = &f->args[index];
  int32_t wanted = f->kind != NULL ? f->external_device : arm_device_code_type(f->code);
  if (t->device.type != wanted)
    return arm_fail(error, "%s: argument %d (%s) is on a device of type %d, but the function runs on type %d", f->name,
                    index, arg->name, t->device.type, wanted);
  if (!arm_dtype_equal(t->dtype, arg->dtype))
    return arm_fail(error, "%s: argument %d (%s) has dtype %s, but %s is wanted", f->name, index, arg->name,
                    arm_dtype_name(t->dtype), arm_dtype_name(arg->dtype));
  if (t->ndim != arg->ndim)
    return arm_fail(error, "%s: argument %d (%s) has %d dimensions, but %d are wanted", f->name, index, arg->name,
                    t->ndim, arg->ndim);
  int64_t bytes;
  if (arm_tensor_bytes(t->shape, t->ndim, t->dtype, &bytes) != 0)
    return arm_fail(error, "%s: argument %d (%s) has an impossible shape", f->name, index, arg->name);
  if (!arm_tensor_dense(t))
    return arm_fail(error, "%s: argument %d (%s) is not contiguous; pass a contiguous copy", f->name, index, arg->name);
  if (bytes > 0 && t->data == NULL)
    return arm_fail(error, "%s: argument %d (%s) has no memory", f->name, index, arg->name);
  if ((uintptr_t)arm_tensor_data(t) % (uintptr_t)arm_dtype_bytes(t->dtype) != 0)
    return arm_fail(error, "%s: argument %d (%s) is not aligned to its element", f->name, index, arg->name);
  return 0;
}

/* The dimensions that are numbers or vars, which take their values here; or, once all have one, the expressions. */
static int check_shape(const arm_function *f, int index, const arm_tensor *t, int64_t *vars, int are_bound,
                       arm_error *error) {
  const arm_arg *arg = &f->args[index];
  for (int axis = 0; axis < arg->ndim; axis++) {
    int64_t wanted = arg->shape[axis];
    if ((wanted < -(int64_t)f->num_vars) != are_bound) continue;
    if (are_bound) {
      wanted = arm_extent_value(&f->extents[-wanted - 1 - f->num_vars], vars);
    } else if (wanted < 0) {
      int64_t *var = &vars[-wanted - 1];
      if (*var == UNBOUND) *var = t->shape[axis];
      wanted = *var;
    }
    if (t->shape[axis] == wanted) continue;
    char got[256];
    arm_shape_text(got, sizeof got, t->shape, t->ndim);
    const char *name = arg->shape[axis] < 0 && !are_bound ? f->vars[-arg->shape[axis] - 1] : "";
    return arm_fail(error, "%s: argument %d (%s) has shape %s, but %s%s%lld is wanted on axis %d", f->name, index,
                    arg->name, got, name, *name ? " = " : "", (long long)wanted, axis);
  }
  return 0;
}

static int bind_vars(const arm_function *f, const int64_t *scalars, int num_scalars, int64_t *vars, arm_error *error) {
  int used = 0, wanted = 0;
  for (int v = 0; v < f->num_vars; v++) wanted += vars[v] == UNBOUND;
  if (wanted != num_scalars)
    return arm_fail(error, "%s: %d scalar arguments given, but %d are wanted", f->name, num_scalars, wanted);
  for (int v = 0; v < f->num_vars; v++)
    if (vars[v] == UNBOUND) vars[v] = scalars[used++];
  return 0;
}

static int bind_extents(const arm_function *f, arm_bound *out, arm_error *error) {
  for (int k = 0; k < f->num_phases; k++) {
    const arm_phase *phase = &f->phases[k];
    out->extents[k] = phase->extent_of ? phase->extent_of(out->vars) : phase->extent;
    if (out->extents[k] < 0)
      return arm_fail(error, "%s: phase %d has the extent %lld", f->name, k, (long long)out->extents[k]);
  }
  return 0;
}

static int bind_workspaces(const arm_function *f, arm_bound *out, arm_error *error) {
  out->workspace = f->workspace_of.count ? arm_extent_value(&f->workspace_of, out->vars) : f->workspace;
  out->thread_workspace =
      f->thread_workspace_of.count ? arm_extent_value(&f->thread_workspace_of, out->vars) : f->thread_workspace;
  if (out->workspace < 0 || out->thread_workspace < 0 || out->thread_workspace > ARM_MAX_BYTES / 4096)
    return arm_fail(error, "%s: its workspaces are too large", f->name);
  out->vars[f->num_vars] = out->thread_workspace; /* on a device: which call it is, arm_status.c */
  return 0;
}

static void take_sizes(const arm_function *f, const arm_size_values *sizes, int64_t *vars) {
  for (int v = 0; v < f->num_vars; v++) {
    vars[v] = UNBOUND;
    for (int32_t s = 0; sizes != NULL && s < sizes->count; s++)
      if (strcmp(sizes->names[s], f->vars[v]) == 0) vars[v] = sizes->values[s];
  }
}

static int check_extents(const arm_function *f, const arm_tensor *args, int64_t *vars, arm_error *error) {
  for (int i = 0; f->num_extents > 0 && i < f->num_args; i++)
    if (check_shape(f, i, &args[i], vars, 1, error) != 0) return -1;
  return 0;
}

/* Kernels are made here, so that what the device refuses is told before anything runs. */
static int bind_launches(const arm_function *f, const arm_tensor *args, arm_bound *out, arm_error *error) {
  out->bytes = arm_zalloc((size_t)f->num_args + 2, sizeof *out->bytes);
  if (out->bytes == NULL) return arm_fail(error, "out of memory");
  out->bytes[f->num_args + 1] = ARM_STATUS_BYTES;
  for (int i = 0; i < f->num_args; i++) {
    if (args[i].device.id != args[0].device.id)
      return arm_fail(error, "%s: its arguments are on devices %d and %d", f->name, args[0].device.id, args[i].device.id);
    (void)arm_tensor_bytes(args[i].shape, args[i].ndim, args[i].dtype, &out->bytes[i]); /* checked */
  }
  return arm_launcher_make(f->code, f->num_args ? args[0].device.id : 0, f->launches, f->num_launches, &out->launcher,
                           error);
}

int arm_bind(const arm_function *f, const arm_tensor *args, int num_args, const int64_t *scalars, int num_scalars,
             const arm_size_values *sizes, arm_bound *out, arm_error *error) {
  memset(out, 0, sizeof *out);
  if (num_args != f->num_args)
    return arm_fail(error, "%s: %d tensor arguments given, but %d are wanted", f->name, num_args, f->num_args);
  out->function = f;
  out->data = arm_zalloc((size_t)num_args + 3, sizeof *out->data);
  out->vars = arm_zalloc((size_t)f->num_vars + 1, sizeof *out->vars); /* the last: which call it is, for a device */
  out->extents = arm_zalloc((size_t)f->num_phases, sizeof *out->extents);
  if (out->data == NULL || out->vars == NULL || out->extents == NULL) return arm_fail(error, "out of memory");
  out->data[num_args + 2] = (void *)(uintptr_t)arm_packed_call;
  take_sizes(f, sizes, out->vars);
  for (int i = 0; i < num_args; i++) {
    if (check_type(f, i, &args[i], error) != 0 || check_shape(f, i, &args[i], out->vars, 0, error) != 0) return -1;
    out->data[i] = arm_tensor_data(&args[i]);
  }
  if (bind_vars(f, scalars, num_scalars, out->vars, error) != 0) return -1;
  if (check_extents(f, args, out->vars, error) != 0 || bind_workspaces(f, out, error) != 0) return -1;
  if (bind_extents(f, out, error) != 0 || (f->code != NULL && bind_launches(f, args, out, error) != 0)) return -1;
  if (f->kind == NULL) return 0;
  out->offload = arm_offload_bind(f, args, error);
  return out->offload ? 0 : -1;
}

int arm_bound_resize(arm_bound *bound, const arm_tensor *args, const arm_size_values *sizes, arm_error *error) {
  const arm_function *f = bound->function;
  int64_t call = bound->vars[f->num_vars];
  take_sizes(f, sizes, bound->vars);
  for (int i = 0; i < f->num_args; i++) {
    if (check_shape(f, i, &args[i], bound->vars, 0, error) != 0) return -1;
    if (bound->bytes != NULL) (void)arm_tensor_bytes(args[i].shape, args[i].ndim, args[i].dtype, &bound->bytes[i]);
  }
  if (bind_vars(f, NULL, 0, bound->vars, error) != 0 || check_extents(f, args, bound->vars, error) != 0) return -1;
  if (bind_workspaces(f, bound, error) != 0 || bind_extents(f, bound, error) != 0) return -1;
  if (f->code != NULL) bound->vars[f->num_vars] = call;
  return 0;
}

void arm_unbind(arm_bound *bound) {
  arm_offload_free(bound->offload);
  free(bound->data);
  free(bound->vars);
  free(bound->extents);
  free(bound->bytes);
  arm_launcher_free(bound->launcher);
  memset(bound, 0, sizeof *bound);
}

int arm_bounds_step(const arm_bound *const *bounds, int count, int k, arm_loop *loops, int *owners) {
  int found = 0;
  for (int i = 0; i < count; i++) {
    const arm_function *f = bounds[i]->function;
    if (k >= f->num_phases) continue;
    int at = found++;
    for (; at > 0 && loops[at - 1].extent > bounds[i]->extents[k]; at--) {
      loops[at] = loops[at - 1];
      owners[at] = owners[at - 1];
    }
    loops[at] = (arm_loop){f->phases[k].run, bounds[i]->data, bounds[i]->vars, bounds[i]->extents[k]};
    owners[at] = i;
  }
  return found;
}

static int32_t launch_all(const arm_bound *const *bounds, int count, int *failed) {
  for (int i = 0; i < count; i++) {
    *failed = i;
    int32_t code = arm_launcher_run(bounds[i]->launcher, bounds[i]->data, bounds[i]->bytes, bounds[i]->vars);
    if (code != 0) return code;
  }
  return 0;
}

int32_t arm_bounds_run(const arm_bound *const *bounds, int count, arm_pool *pool, int max_threads, int *failed) {
  if (count > 0 && bounds[0]->launcher != NULL) return launch_all(bounds, count, failed);
  arm_loop loops[ARM_MAX_LOOPS];
  int owners[ARM_MAX_LOOPS], num_loops, loop = 0;
  *failed = 0;
  if (bounds[0]->offload != NULL) return arm_offload_run(bounds[0]->offload, bounds[0]->data, pool, max_threads);
  for (int k = 0; (num_loops = arm_bounds_step(bounds, count, k, loops, owners)) > 0; k++) {
    int32_t code = arm_pool_run_loops(pool, loops, num_loops, max_threads, &loop);
    *failed = owners[loop];
    if (code != 0) return code;
  }
  return 0;
}

int32_t arm_bound_run(const arm_bound *bound, arm_pool *pool, int max_threads) {
  int failed;
  return arm_bounds_run(&bound, 1, pool, max_threads, &failed);
}

/* Where the message has {}, the first element of the last argument is shown: a kernel puts there what was wrong. A device
 * said it in its status. */
static int assert_failed(const arm_bound *bound, const char *message, arm_error *error) {
  const arm_function *f = bound->function;
  const char *gap = strstr(message, "{}");
  if (gap == NULL || f->num_args == 0) return arm_fail(error, "%s: %s", f->name, message);
  const void *data = bound->data[f->num_args - 1];
  arm_dtype type = f->args[f->num_args - 1].dtype;
  long long value = 0;
  if (f->code != NULL) value = bound->refused;
  else if (type.code == 0 && type.bits == 64) value = *(const int64_t *)data;
  else if (type.code == 0 && type.bits == 32) value = *(const int32_t *)data;
  else if (type.code == 0 && type.bits == 16) value = *(const int16_t *)data;
  else if (type.code == 0) value = *(const int8_t *)data;
  return arm_fail(error, "%s: %.*s%lld%s", f->name, (int)(gap - message), message, value, gap + 2);
}

int arm_bound_failed(const arm_bound *bound, int32_t code, arm_error *error) {
  const arm_function *f = bound->function;
  if (bound->offload != NULL) return arm_offload_failed(bound->offload, error);
  if (code == ARM_DEVICE_FAILED) return arm_fail(error, "%s: %s", f->name, arm_device_told().text);
  if (code == ARM_PACKED_FAILED) return arm_packed_failed(f->name, error);
  if (code >= 1 && code <= f->num_asserts) return assert_failed(bound, f->asserts[code - 1], error);
  return arm_fail(error, "%s: failed with code %d", f->name, code);
}
