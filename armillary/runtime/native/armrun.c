/* armrun: runs a compiled model without Python.
 *
 * In: a folder with mod.so (or mod.o), mod.json, mod.params; a package tar; or one shared library that holds everything.
 * Out: outputs as .npz, and times. Invariant: damaged input ends with a message and exit code 1; wrong usage with 2.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_device.h"
#include "arm_files.h"
#include "arm_object.h"

#define MAX_INPUTS 64

typedef struct {
  const char *model, *output, *fill, *inputs[MAX_INPUTS];
  int num_inputs, threads, bind, profile, dump_meta, zero_copy;
  const char *programs; /* where programs of a device are kept */
  arm_device device;
  long run_count, dry_run;
  double kernel_seconds; /* that kernels of a device may take; below 0: the usual limit */
} options;

typedef struct {
  arm_package *package;
  int zero_copy; /* inputs are written and outputs read in the device's memory */
  arm_pool *pool;
  arm_graph *graph;
} model;

static int usage(FILE *stream) {
  fputs("usage: armrun <folder|x.tar|x.so> [options]        (or --model=<folder|x.tar|x.so>)\n"
        "  --input=<x.npz> or --input=<name>=<x.npy>   inputs (may be repeated)\n"
        "  --fill=random|zeros|ones                    values of inputs that are not given (default: random)\n"
        "  --output=<x.npz>                            where to write outputs (output_0, ...)\n"
        "  --device=cpu|opencl[:<n>]                   what the package was compiled for (default: cpu)\n"
        "  --pre-compiled=<folder>                     keep and take programs of an OpenCL device there\n"
        "  --zero-copy         inputs and outputs by pointers into a device's memory\n"
        "  --kernel-timeout=<s>   seconds that kernels of a device may take (default 300; 0: any time)\n"
        "  --threads=<n>       threads (default: the CPUs of this process)\n"
        "  --bind              pin worker threads to CPUs\n"
        "  --run-count=<n>     timed runs (default 50)      --dry-run=<n>   untimed runs before (default 10)\n"
        "  --profile           time of every node           --dump-meta     describe inputs and outputs\n"
        "environment: ARMILLARY_EXTERNAL_PATH=<folders>   where libraries of offloaded functions lie\n", stream);
  return 2;
}

static int parse_count(const char *text, long low, long high, long *out) {
  char *end;
  *out = strtol(text, &end, 10);
  return *text != 0 && *end == 0 && *out >= low && *out <= high ? 0 : -1;
}

static int parse_seconds(const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  return *text != 0 && *end == 0 && *out >= 0 && *out <= 1e9 ? 0 : -1;
}

static const char *following; /* the argument behind the one that is read; NULL once it was taken as its value */

/* The value of an option: --name=value, or --name value. */
static const char *value_of(const char *arg, const char *name) {
  size_t length = strlen(name);
  const char *value = following;
  if (strncmp(arg, name, length) != 0) return NULL;
  if (arg[length] == '=') return arg + length + 1;
  if (arg[length] != 0 || value == NULL || strncmp(value, "--", 2) == 0) return NULL;
  following = NULL;
  return value;
}

static int parse_device(const char *text, arm_device *out) {
  const char *colon = strchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : strlen(text);
  long number = 0;
  int is_cpu = length == 3 && strncmp(text, "cpu", 3) == 0;
  int is_opencl = (length == 6 && strncmp(text, "opencl", 6) == 0) || (length == 2 && strncmp(text, "cl", 2) == 0);
  if ((!is_cpu && !is_opencl) || (colon != NULL && parse_count(colon + 1, 0, 1000, &number) != 0)) return -1;
  *out = (arm_device){is_cpu ? ARM_CPU : ARM_OPENCL, (int32_t)number};
  return 0;
}

static int parse_option(options *o, const char *arg) {
  const char *v;
  long number;
  if ((v = value_of(arg, "--model")) || (o->model == NULL && (v = arg[0] == '-' ? NULL : arg))) o->model = v;
  else if ((v = value_of(arg, "--output"))) o->output = v;
  else if ((v = value_of(arg, "--fill")) || (v = value_of(arg, "--fill-mode"))) {
    o->fill = v;
    return strcmp(v, "random") == 0 || strcmp(v, "zeros") == 0 || strcmp(v, "ones") == 0 ? 0 : -1;
  }
  else if ((v = value_of(arg, "--input"))) {
    if (o->num_inputs == MAX_INPUTS) return -1;
    o->inputs[o->num_inputs++] = v;
  } else if ((v = value_of(arg, "--device"))) {
    return parse_device(v, &o->device);
  } else if ((v = value_of(arg, "--pre-compiled"))) {
    o->programs = v;
  } else if ((v = value_of(arg, "--kernel-timeout"))) {
    return parse_seconds(v, &o->kernel_seconds);
  } else if ((v = value_of(arg, "--threads"))) {
    if (parse_count(v, 1, 1024, &number) != 0) return -1;
    o->threads = (int)number;
  } else if ((v = value_of(arg, "--run-count"))) return parse_count(v, 0, 1000000000, &o->run_count);
  else if ((v = value_of(arg, "--dry-run"))) return parse_count(v, 0, 1000000000, &o->dry_run);
  else if (strcmp(arg, "--profile") == 0) o->profile = 1;
  else if (strcmp(arg, "--dump-meta") == 0) o->dump_meta = 1;
  else if (strcmp(arg, "--bind") == 0) o->bind = 1;
  else if (strcmp(arg, "--zero-copy") == 0) o->zero_copy = 1;
  else return -1;
  return 0;
}

/* ---- loading ---- */

/* Say which file a message is about. */
static int about(const char *path, int status, arm_error *error) {
  char text[1024];
  if (status == 0) return 0;
  snprintf(text, sizeof text, "%s", error->text);
  return arm_fail(error, "%s: %s", path, text);
}

static int has_suffix(const char *text, const char *suffix) {
  size_t a = strlen(text), b = strlen(suffix);
  return a >= b && strcmp(text + a - b, suffix) == 0;
}

static double step(const char *label, double since) {
  double now = arm_now();
  printf("%-22s: %.3f ms\n", label, 1e3 * (now - since));
  return now;
}

static int load(model *m, const options *o, arm_error *error) {
  double begin = arm_now(), t = begin;
  puts("Performance Stats");
  m->package = arm_package_locate(o->model, error);
  if (m->package == NULL) return -1;
  t = step("Files Read", t);
  if (arm_package_link(m->package, error) != 0) return -1;
  t = step("Module Load", t);
  m->pool = arm_pool_create(o->threads, o->bind, error->text, error->size);
  if (m->pool == NULL || arm_package_bare_graph(m->package, &o->device, 1, m->pool, &m->graph, error) != 0) return -1;
  double programs = arm_opencl_program_seconds();
  t = step("Graph Runtime Create", t + programs);
  if (programs > 0) step("Pre Compiled Progs Load", t - programs);
  if (arm_package_load_params(m->package, m->graph, error) != 0) return -1;
  step("Params Set", t);
  step("Total Load Time", begin);
  return 0;
}

/* ---- inputs ---- */

/* The values of a tensor, written into the memory of an input; 1: it is not of the input's type or shape. */
static int write_mapped(model *m, int index, const arm_tensor *value, arm_error *error) {
  arm_tensor t;
  int64_t bytes = 0;
  void *mapped;
  if (arm_graph_input_info(m->graph, index, &t, error->text, error->size) != 0) return -1;
  if (!arm_dtype_equal(t.dtype, value->dtype) || t.ndim != value->ndim ||
      memcmp(t.shape, value->shape, sizeof(int64_t) * (size_t)t.ndim) != 0 || !arm_tensor_dense(value))
    return 1;
  if (arm_graph_input(m->graph, index, &t, error->text, error->size) != 0) return -1;
  (void)arm_tensor_bytes(t.shape, t.ndim, t.dtype, &bytes);
  if (bytes == 0) return 0;
  if (arm_memory_map(t.device, t.data, (size_t)bytes, 1, &mapped, error) != 0) return -1;
  memcpy(mapped, arm_tensor_data(value), (size_t)bytes);
  return arm_memory_unmap(t.device, t.data, mapped, error);
}

static int set_by_name(model *m, const char *name, const unsigned char *data, size_t size, arm_error *error) {
  arm_array array;
  if (arm_npy_parse(data, size, name, &array, error) != 0) return -1;
  int index = arm_graph_pick(m->graph, name, &array.tensor, error->text, error->size);
  int status = index >= 0 && m->zero_copy ? write_mapped(m, index, &array.tensor, error) : 1;
  if (status <= 0) return status;
  return index < 0 ? -1 : arm_graph_set_input(m->graph, index, &array.tensor, error->text, error->size);
}

static int set_member(void *context, const char *member, const unsigned char *data, size_t size, arm_error *error) {
  char *name = arm_strdup(member, strlen(member) - (has_suffix(member, ".npy") ? 4 : 0));
  if (name == NULL) return arm_fail(error, "out of memory");
  int status = set_by_name(context, name, data, size, error);
  free(name);
  return status;
}

/* The name that "<name>=<file>" gives: up to the first '=' behind the name of an input, else up to the first '='. */
static char *given_name(const model *m, const char *argument) {
  for (const char *end = strchr(argument, '='); end != NULL; end = strchr(end + 1, '=')) {
    char *name = arm_strdup(argument, (size_t)(end - argument));
    if (name == NULL || arm_graph_input_index(m->graph, name) >= 0) return name;
    free(name);
  }
  const char *first = strchr(argument, '=');
  return first == NULL || first == argument ? NULL : arm_strdup(argument, (size_t)(first - argument));
}

static int set_given(model *m, const char *argument, arm_error *error) {
  arm_blob file;
  char *name = given_name(m, argument);
  const char *path = name != NULL ? argument + strlen(name) + 1 : argument;
  int status = arm_file_read(path, &file, error);
  if (status == 0) {
    status = name != NULL ? set_by_name(m, name, file.data, file.size, error)
                          : about(path, arm_zip_read(file.data, file.size, set_member, m, error), error);
    arm_blob_free(&file);
  }
  free(name);
  return status;
}

static double uniform(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(*state >> 11) / (double)(UINT64_C(1) << 53);
}

/* Integers count 0..127 (bool 0..1), floats [-1, 1); other types keep zeros. */
static void fill_tensor(const arm_tensor *t, const char *fill, uint64_t *seed) {
  int64_t bytes = 0, item = arm_dtype_bytes(t->dtype);
  (void)arm_tensor_bytes(t->shape, t->ndim, t->dtype, &bytes);
  memset(arm_tensor_data(t), 0, (size_t)bytes);
  if (strcmp(fill, "zeros") == 0) return;
  int ones = strcmp(fill, "ones") == 0;
  for (int64_t i = 0; i < bytes / item; i++) {
    char *at = (char *)arm_tensor_data(t) + i * item;
    double value = ones ? 1 : 2 * uniform(seed) - 1;
    float single = (float)value;
    uint16_t half = value < 0 ? 0xB800 : 0x3800; /* +-0.5 */
    if (t->dtype.code == 2 && t->dtype.bits == 64) memcpy(at, &value, 8);
    else if (t->dtype.code == 2 && t->dtype.bits == 32) memcpy(at, &single, 4);
    else if (t->dtype.code == 2) memcpy(at, ones ? &(uint16_t){0x3C00} : &half, 2);
    else if (t->dtype.code == 4) memcpy(at, (char *)&single + 2, 2);
    else if (t->dtype.code <= 1) *at = ones ? 1 : (char)(uniform(seed) * 127);
    else if (t->dtype.code == 6) *at = ones || uniform(seed) < 0.5;
  }
}

/* Where the host can write the device's memory, there; else by way of the host. */
static int fill_device_input(model *m, int index, const char *fill, uint64_t *seed, arm_error *error) {
  arm_tensor t;
  int64_t bytes = 0;
  if (m->zero_copy) {
    if (arm_graph_input(m->graph, index, &t, error->text, error->size) != 0) return -1;
    (void)arm_tensor_bytes(t.shape, t.ndim, t.dtype, &bytes);
    arm_tensor seen = t;
    if (bytes == 0) return 0;
    if (arm_memory_map(t.device, t.data, (size_t)bytes, 1, &seen.data, error) != 0) return -1;
    fill_tensor(&seen, fill, seed);
    return arm_memory_unmap(t.device, t.data, seen.data, error);
  }
  if (arm_graph_input_info(m->graph, index, &t, error->text, error->size) != 0) return -1;
  (void)arm_tensor_bytes(t.shape, t.ndim, t.dtype, &bytes);
  t.device = (arm_device){ARM_CPU, 0};
  t.data = arm_alloc((size_t)bytes);
  if (t.data == NULL) return arm_fail(error, "out of memory: %lld bytes of input", (long long)bytes);
  fill_tensor(&t, fill, seed);
  int status = arm_graph_set_input(m->graph, index, &t, error->text, error->size);
  arm_free(t.data);
  return status;
}

/* What is given says which variant runs; the rest of its inputs is filled. */
static int set_inputs(model *m, const options *o, arm_error *error) {
  uint64_t seed = 1;
  for (int i = 0; i < o->num_inputs; i++)
    if (set_given(m, o->inputs[i], error) != 0) return -1;
  for (int i = 0; i < arm_graph_num_inputs(m->graph); i++) {
    arm_tensor t;
    if (arm_graph_input_is_set(m->graph, i) || !arm_graph_input_used(m->graph, i) ||
        arm_graph_input_is_state(m->graph, i) == 1)
      continue;
    if (o->device.type == ARM_CPU) {
      if (arm_graph_input(m->graph, i, &t, error->text, error->size) != 0) return -1;
      fill_tensor(&t, o->fill, &seed);
    } else if (fill_device_input(m, i, o->fill, &seed, error) != 0) {
      return -1;
    }
  }
  return 0;
}

/* ---- running ---- */

static void describe(const char *kind, const char *name, const arm_tensor *t) {
  char shape[256];
  arm_shape_text(shape, sizeof shape, t->shape, t->ndim);
  printf("%s %s: %s %s\n", kind, name, shape, arm_dtype_name(t->dtype));
}

static int dump_meta(model *m, const char *is_param, arm_error *error) {
  arm_tensor t;
  int params = 0;
  printf("target: %s\n", arm_module_target(arm_package_module(m->package)));
  for (int i = 0; i < arm_graph_num_inputs(m->graph); i++) {
    if (is_param[i]) {
      params++;
      continue;
    }
    if (arm_graph_input_info(m->graph, i, &t, error->text, error->size) != 0) return -1;
    describe("input", arm_graph_input_name(m->graph, i), &t);
  }
  for (int i = 0; i < arm_graph_num_outputs(m->graph); i++) {
    char name[32];
    snprintf(name, sizeof name, "output_%d", i);
    if (arm_graph_output(m->graph, i, &t, error->text, error->size) != 0) return -1;
    describe("output", name, &t);
  }
  printf("parameters: %d\nnodes: %d\nmemory: %zu bytes\n", params, arm_graph_num_nodes(m->graph),
         arm_graph_memory(m->graph));
  if (arm_graph_num_variants(m->graph) > 1) printf("variants: %d\n", arm_graph_num_variants(m->graph));
  return 0;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int run(model *m, const options *o, arm_error *error) {
  for (long i = 0; i < o->dry_run; i++)
    if (arm_graph_run(m->graph, error->text, error->size) != 0) return -1;
  if (o->run_count == 0) return o->dry_run ? 0 : arm_graph_run(m->graph, error->text, error->size);
  double *times = arm_zalloc((size_t)o->run_count, sizeof *times), sum = 0;
  if (times == NULL) return arm_fail(error, "out of memory for %ld times", o->run_count);
  int status = 0;
  for (long i = 0; i < o->run_count && status == 0; i++) {
    status = arm_graph_time(m->graph, 1, &times[i], error->text, error->size);
    sum += times[i];
  }
  if (status == 0) {
    qsort(times, (size_t)o->run_count, sizeof *times, compare);
    printf("Average ExecTime      : %.4f ms\nMinimum ExecTime      : %.4f ms\nMedian ExecTime       : %.4f ms\n",
           1e3 * sum / (double)o->run_count, 1e3 * times[0], 1e3 * times[o->run_count / 2]);
  }
  free(times);
  return status;
}

static int profile(model *m, arm_error *error) {
  int nodes = arm_graph_num_nodes(m->graph);
  double *seconds = arm_zalloc((size_t)nodes, sizeof *seconds);
  if (seconds == NULL) return arm_fail(error, "out of memory");
  int status = arm_graph_run_range(m->graph, 0, nodes, seconds, error->text, error->size);
  for (int i = 0; i < nodes && status == 0; i++)
    if (*arm_graph_node_function(m->graph, i))
      printf("%10.1f us  %s\n", 1e6 * seconds[i], arm_graph_node_name(m->graph, i));
  free(seconds);
  return status;
}

/* A copy on the host of a tensor of a device; the process ends soon, and it with it. */
static int bring_home(arm_tensor *t, arm_error *error) {
  arm_tensor copy = *t;
  int64_t bytes = 0;
  (void)arm_tensor_bytes(t->shape, t->ndim, t->dtype, &bytes);
  copy.device = (arm_device){ARM_CPU, 0};
  copy.data = arm_alloc((size_t)bytes);
  if (copy.data == NULL) return arm_fail(error, "out of memory: %lld bytes of output", (long long)bytes);
  if (arm_tensor_copy(t, &copy, error->text, error->size) != 0) return -1;
  *t = copy;
  return 0;
}

/* A tensor of a device where the host can read it, until the process ends. */
static int show(arm_tensor *t, arm_error *error) {
  int64_t bytes = 0;
  void *mapped = NULL;
  (void)arm_tensor_bytes(t->shape, t->ndim, t->dtype, &bytes);
  if (bytes > 0 && arm_memory_map(t->device, t->data, (size_t)bytes, 0, &mapped, error) != 0) return -1;
  t->data = mapped;
  t->device = (arm_device){ARM_CPU, 0};
  return 0;
}

static int write_outputs(model *m, const char *path, arm_error *error) {
  int count = arm_graph_num_outputs(m->graph), status = 0;
  arm_array *arrays = arm_zalloc((size_t)count, sizeof *arrays);
  if (arrays == NULL) return arm_fail(error, "out of memory");
  for (int i = 0; i < count && status == 0; i++) {
    arm_array *a = &arrays[i];
    snprintf(a->name, sizeof a->name, "output_%d", i);
    status = arm_graph_output(m->graph, i, &a->tensor, error->text, error->size);
    if (status == 0) memcpy(a->shape, a->tensor.shape, sizeof(int64_t) * (size_t)a->tensor.ndim);
    if (status == 0 && a->tensor.device.type != ARM_CPU)
      status = m->zero_copy ? show(&a->tensor, error) : bring_home(&a->tensor, error);
  }
  if (status == 0) status = arm_npz_write(path, arrays, count, error);
  free(arrays);
  return status;
}

static int work(model *m, const options *o, arm_error *error) {
  if (load(m, o, error) != 0) return -1;
  char *is_param = arm_zalloc((size_t)arm_graph_num_inputs(m->graph), 1);
  if (is_param == NULL) return arm_fail(error, "out of memory");
  for (int i = 0; i < arm_graph_num_inputs(m->graph); i++) is_param[i] = (char)arm_graph_input_is_set(m->graph, i);
  int status = set_inputs(m, o, error);
  if (status == 0 && o->dump_meta) status = dump_meta(m, is_param, error);
  free(is_param);
  if (status == 0) status = run(m, o, error);
  if (status == 0 && o->profile) status = profile(m, error);
  if (status == 0 && o->output != NULL) status = write_outputs(m, o->output, error);
  return status;
}

int main(int argc, char **argv) {
  char text[1024] = "";
  arm_error error = {text, sizeof text};
  options o = {.fill = "random", .run_count = 50, .dry_run = 10, .threads = arm_cpu_count(), .device = {ARM_CPU, 0},
               .kernel_seconds = -1};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0) return usage(stdout), 0;
    int number = i;
    following = i + 1 < argc ? argv[i + 1] : NULL;
    int has_next = following != NULL, status = parse_option(&o, argv[i]);
    i += has_next && following == NULL;
    if (status != 0) {
      fprintf(stderr, "armrun: cannot read the argument %s\n", argv[number]);
      return usage(stderr);
    }
  }
  if (o.model == NULL) return usage(stderr);
  arm_backtrace_on_crash("armrun");
  int is_kept = o.programs != NULL ? arm_opencl_keep_programs(o.programs) : 0;
  if (is_kept < 0) return usage(stderr);
  if (is_kept > 0) fprintf(stderr, "armrun: no program is kept in %s: no folder that you alone may write to\n", o.programs);
  arm_opencl_limit_time(o.kernel_seconds);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failure to write */
  model m = {.zero_copy = o.zero_copy && o.device.type != ARM_CPU};
  int status = work(&m, &o, &error);
  if (status != 0) fprintf(stderr, "armrun: %s\n", text);
  double begin = arm_now();
  arm_graph_destroy(m.graph);
  arm_pool_destroy(m.pool);
  arm_package_close(m.package);
  if (o.profile && status == 0) step("Unload Time", begin);
  return status == 0 ? 0 : 1;
}
