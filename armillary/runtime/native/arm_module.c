/* Modules of compiled functions, from a shared library, an object or symbols already in memory; prepared calls.
 *
 * In: a path, or a descriptor with a resolver. Out: a reference-counted module. Invariant: a file is checked to be a whole
 * ELF image before the dynamic loader sees it (mapping a truncated one would crash the process). Objects are linked by
 * arm_object.c.
 */
#define _GNU_SOURCE
#include "arm_device.h"
#include "arm_object.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <elf.h>
#endif

struct arm_module {
  _Atomic int references;
  void *handle;       /* of the dynamic loader; NULL: an object, or code of the caller's */
  arm_object *object;
  arm_function *functions;
  arm_device_code *code;
  int count;
  char *folder; /* of the package, where libraries of offloaded functions may lie; NULL: none */
  char *descriptor, *target;
  size_t descriptor_size;
  const char *graph_json;
  const void *params;
  size_t graph_json_size, params_size;
  arm_params_sum params_sum;
};

struct arm_call {
  arm_module *module;
  arm_device device;
  arm_pool *pool;
  int max_threads;
  void *workspace, *status; /* NULL: not checked */
  arm_bound bound;
};

#if defined(__linux__) && defined(__LP64__)
static int check_segments(FILE *file, const Elf64_Ehdr *head, uint64_t size) {
  for (int i = 0; i < head->e_phnum; i++) {
    Elf64_Phdr row;
    if (fseek(file, (long)(head->e_phoff + (uint64_t)i * sizeof row), SEEK_SET) != 0 ||
        fread(&row, sizeof row, 1, file) != 1)
      return -1;
    if (row.p_filesz > size || row.p_offset > size - row.p_filesz) return -1;
    if (row.p_type == PT_LOAD && (row.p_memsz < row.p_filesz || row.p_memsz > (uint64_t)ARM_MAX_BYTES)) return -1;
  }
  return 0;
}

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#elif defined(__riscv)
#define MACHINE EM_RISCV
#else
#define MACHINE EM_NONE /* not compared */
#endif

static const char *machine_name(int machine) {
  switch (machine) {
  case EM_X86_64: return "x86_64";
  case EM_AARCH64: return "aarch64";
  case EM_RISCV: return "riscv64";
  case EM_ARM: return "arm (32 bits)";
  case EM_386: return "i386";
  default: return "another architecture";
  }
}

static int is_foreign(const Elf64_Ehdr *head) { /* e_machine lies at the same place in images of 32 bits */
  return memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 && (head->e_type == ET_DYN || head->e_type == ET_REL) && MACHINE != EM_NONE &&
         head->e_machine != MACHINE;
}

static int check_elf(const char *path, arm_error *error) {
  Elf64_Ehdr head = {0};
  FILE *file = fopen(path, "rb");
  if (file == NULL) return arm_fail(error, "%s: cannot be opened", path);
  int ok = fseek(file, 0, SEEK_END) == 0;
  long size = ftell(file);
  ok = ok && size > 0 && fseek(file, 0, SEEK_SET) == 0 && fread(&head, sizeof head, 1, file) == 1 &&
       memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_type == ET_DYN &&
       head.e_phentsize == sizeof(Elf64_Phdr) && head.e_phnum > 0 && head.e_phoff < (uint64_t)size &&
       head.e_shoff <= (uint64_t)size &&
       (uint64_t)head.e_shnum * head.e_shentsize <= (uint64_t)size - head.e_shoff &&
       check_segments(file, &head, (uint64_t)size) == 0;
  fclose(file);
  if (is_foreign(&head))
    return arm_fail(error, "%s: the code is for %s, this machine is %s", path, machine_name(head.e_machine),
                    machine_name(MACHINE));
  return ok ? 0 : arm_fail(error, "%s: not a shared library, or a damaged one", path);
}
#else
static int check_elf(const char *path, arm_error *error) {
  (void)path;
  (void)error;
  return 0;
}
#endif

/* Instructions that this processor lacks would end the process at the first run. */
static int check_cpu(const arm_json *json, const char *target, arm_error *error) {
  int32_t needs = arm_json_get(json, 0, "needs");
  if (needs < 0 || json->values[needs].kind != ARM_LIST) return 0;
  for (int32_t v = json->values[needs].first; v >= 0; v = json->values[v].next)
    if (json->values[v].kind == ARM_TEXT && arm_cpu_lacks(json->values[v].text))
      return arm_fail(error,
                      "the code was compiled for \"%s\" and uses %s, which this processor lacks; compile it here, or "
                      "for an older CPU",
                      target, json->values[v].text);
  return 0;
}

static int read_descriptor(arm_module *module, const char *text, size_t size, arm_resolver resolve, void *context,
                           arm_error *error) {
  arm_json json;
  if (arm_json_parse(text, size, &json, error) != 0) return -1;
  int32_t target = arm_json_get(&json, 0, "target");
  const char *name = target >= 0 && json.values[target].kind == ARM_TEXT ? json.values[target].text : "";
  int status = check_cpu(&json, name, error);
  if (status == 0) status = arm_device_code_read(&json, &module->code, error);
  if (status == 0)
    status = arm_functions_read(&json, resolve, context, module->code, &module->functions, &module->count, error);
  module->target = arm_strdup(name, strlen(name));
  module->descriptor = arm_strdup(text, size);
  module->descriptor_size = size;
  arm_json_free(&json);
  if (status == 0 && (module->target == NULL || module->descriptor == NULL)) return arm_fail(error, "out of memory");
  return status;
}

int arm_module_create(const char *descriptor, size_t size, arm_resolver resolve, void *context, arm_module **out,
                      char *err, size_t err_size) {
  arm_error error = {err, err_size};
  *out = NULL;
  arm_module *module = arm_zalloc(1, sizeof *module);
  if (module == NULL) return arm_fail(&error, "out of memory");
  atomic_store(&module->references, 1);
  if (read_descriptor(module, descriptor, size, resolve, context, &error) != 0) {
    arm_module_release(module);
    return -1;
  }
  for (int i = 0; i < module->count; i++) module->functions[i].module = module;
  *out = module;
  return 0;
}

int arm_module_set_folder(arm_module *module, const char *folder, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  char *copy = arm_strdup(folder, strlen(folder));
  if (copy == NULL) return arm_fail(&error, "out of memory");
  free(module->folder);
  module->folder = copy;
  for (int i = 0; i < module->count; i++) module->functions[i].folder = copy;
  return 0;
}

static void *resolve_in_library(void *handle, const char *symbol) { return dlsym(handle, symbol); }

static const void *sized_symbol(void *handle, const char *name, size_t *size) {
  char size_name[64];
  snprintf(size_name, sizeof size_name, "%s_size", name);
  const void *data = dlsym(handle, name);
  const uint64_t *length = dlsym(handle, size_name);
  *size = 0;
  if (data == NULL || length == NULL) return NULL;
  *size = (size_t)*length;
  return data;
}

/* A regular file (a pipe would be waited for), whole, as it was exported. */
static int check_file(const char *path, arm_params_sum *params, arm_error *error) {
  struct stat info;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return arm_fail(error, "%s: cannot be opened: %s", path, strerror(errno));
  int status = 0;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) status = arm_fail(error, "%s: is not a regular file", path);
  if (status == 0 && !arm_object_is(path)) status = check_elf(path, error);
  if (status == 0) status = arm_sums_check(path, file, params, error);
  close(file);
  return status;
}

static void *resolve_in_object(void *object, const char *symbol) { return arm_object_symbol(object, symbol); }

/* The descriptor among the symbols of a library or an object, and what it describes. */
static int describe(const char *path, arm_resolver resolve, void *code, arm_module **out, arm_error *error) {
  const char *descriptor = resolve(code, "armillary_descriptor");
  if (descriptor == NULL)
    return arm_fail(error, "%s: not a compiled model: symbol armillary_descriptor is missing", path);
  return arm_module_create(descriptor, strlen(descriptor), resolve, code, out, error->text, error->size);
}

static int open_object(const char *path, arm_module **out, arm_error *error) {
  arm_object *object = arm_object_open(path, error);
  if (object == NULL) return -1;
  int status = describe(path, resolve_in_object, object, out, error);
  if (status == 0) (*out)->object = object;
  else arm_object_free(object);
  return status;
}

static int open_library(const char *path, arm_module **out, arm_error *error) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    const char *told = dlerror();
    int is_static = told != NULL && strstr(told, "ynamic loading not supported") != NULL;
    return arm_fail(error, "%s: %s%s", path, told ? told : "cannot be loaded",
                    is_static ? "; a static program runs packages of objects: export_library(\"net.tar\")" : "");
  }
  if (describe(path, resolve_in_library, handle, out, error) != 0) {
    dlclose(handle);
    return -1;
  }
  arm_module *module = *out;
  module->handle = handle;
  module->graph_json = sized_symbol(handle, "armillary_graph_json", &module->graph_json_size);
  module->params = sized_symbol(handle, "armillary_params", &module->params_size);
  return 0;
}

int arm_module_open(const char *path, arm_module **out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  arm_params_sum params_sum;
  *out = NULL;
  if (check_file(path, &params_sum, &error) != 0) return -1;
  char slashed[4096]; /* dlopen searches the system's folders for a name without a slash */
  if ((size_t)snprintf(slashed, sizeof slashed, "%s%s", strchr(path, '/') ? "" : "./", path) >= sizeof slashed)
    return arm_fail(&error, "%s: the path is too long", path);
  if ((arm_object_is(path) ? open_object : open_library)(slashed, out, &error) != 0) return -1;
  (*out)->params_sum = params_sum;
  *strrchr(slashed, '/') = 0;
  return arm_module_set_folder(*out, *slashed ? slashed : "/", err, err_size);
}

void arm_module_set_network(arm_module *module, const char *graph_json, const void *params, size_t params_size) {
  module->graph_json = graph_json;
  module->graph_json_size = strlen(graph_json);
  module->params = params;
  module->params_size = params_size;
}

void arm_module_retain(arm_module *module) { atomic_fetch_add(&module->references, 1); }

void arm_module_release(arm_module *module) {
  if (module == NULL || atomic_fetch_sub(&module->references, 1) != 1) return;
  arm_functions_free(module->functions, module->count);
  arm_device_code_free(module->code);
  free(module->descriptor);
  free(module->target);
  free(module->folder);
  if (module->handle != NULL) dlclose(module->handle);
  arm_object_free(module->object);
  free(module);
}

int arm_module_count(const arm_module *module) { return module->count; }

int arm_module_find(const arm_module *module, const char *name) {
  for (int i = 0; i < module->count; i++)
    if (strcmp(module->functions[i].name, name) == 0) return i;
  return -1;
}

const arm_function *arm_module_function(const arm_module *module, int index) {
  return index >= 0 && index < module->count ? &module->functions[index] : NULL;
}

const char *arm_module_name(const arm_module *module, int function) {
  const arm_function *f = arm_module_function(module, function);
  return f ? f->name : NULL;
}

const char *arm_module_target(const arm_module *module) { return module->target; }

const char *arm_module_descriptor(const arm_module *module, size_t *size) {
  *size = module->descriptor_size;
  return module->descriptor;
}

const char *arm_module_graph_json(const arm_module *module, size_t *size) {
  *size = module->graph_json_size;
  return module->graph_json;
}

const void *arm_module_params(const arm_module *module, size_t *size) {
  *size = module->params_size;
  return module->params;
}

const arm_params_sum *arm_module_params_sum(const arm_module *module) { return &module->params_sum; }

int arm_module_check_params(const arm_module *module, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (!module->params_sum.is_known) return 0;
  return arm_params_sum_check(&module->params_sum, arm_crc32(0, module->params, module->params_size), &error);
}

/* ---- prepared calls ---- */

static int make_workspace(arm_call *call, const arm_function *f, arm_error *error) {
  int64_t shared = (call->bound.workspace + ARM_ALIGN - 1) / ARM_ALIGN * ARM_ALIGN, total;
  if (arm_mul(call->bound.thread_workspace, call->max_threads, &total) != 0 || total > ARM_MAX_BYTES)
    return arm_fail(error, "%s: its workspaces are too large", f->name);
  total += shared;
  call->workspace = arm_memory_allocate(call->device, (size_t)total, error);
  if (call->workspace == NULL) return -1;
  call->bound.data[f->num_args] = call->workspace;
  call->bound.data[f->num_args + 1] = (char *)call->workspace + shared;
  if (!arm_bound_is_checked(&call->bound)) return 0;
  call->status = arm_status_make(call->device, error);
  if (call->status == NULL) return -1;
  arm_bound_set_status(&call->bound, call->status, 0);
  return 0;
}

/* What a function writes has memory of its own: kernels read and write as if no two arguments shared a byte. */
static int check_outputs(const arm_function *f, const arm_tensor *args, arm_error *error) {
  for (int i = 0; i < f->num_args && !f->may_overlap; i++) {
    int64_t size = 0, other = 0;
    if (!f->args[i].is_out || arm_tensor_bytes(args[i].shape, args[i].ndim, args[i].dtype, &size) != 0) continue;
    for (int k = 0; k < f->num_args; k++)
      if (k != i && arm_tensor_bytes(args[k].shape, args[k].ndim, args[k].dtype, &other) == 0 &&
          arm_overlap(arm_tensor_data(&args[i]), size, arm_tensor_data(&args[k]), other))
        return arm_fail(error, "%s: argument %d (%s) is written and lies over argument %d (%s): give it memory of its own",
                        f->name, i, f->args[i].name, k, f->args[k].name);
  }
  return 0;
}

int arm_call_create(arm_module *module, int function, const arm_tensor *args, int num_args, const int64_t *scalars,
                    int num_scalars, arm_pool *pool, arm_call **out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  const arm_function *f = arm_module_function(module, function);
  *out = NULL;
  if (f == NULL) return arm_fail(&error, "the module has no function number %d", function);
  arm_call *call = arm_zalloc(1, sizeof *call);
  if (call == NULL) return arm_fail(&error, "out of memory");
  arm_module_retain(module);
  call->module = module;
  call->device = num_args > 0 ? args[0].device : (arm_device){arm_device_code_type(f->code), 0};
  call->pool = pool;
  call->max_threads = pool ? arm_pool_threads(pool) : 1;
  if (arm_bind(f, args, num_args, scalars, num_scalars, NULL, &call->bound, &error) != 0 ||
      check_outputs(f, args, &error) != 0 || make_workspace(call, f, &error) != 0) {
    arm_call_destroy(call);
    return -1;
  }
  *out = call;
  return 0;
}

int arm_call_run(arm_call *call, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int32_t code = arm_bound_run(&call->bound, call->pool, call->max_threads);
  arm_status said = {0, 0, 0};
  if (code == 0 && call->status != NULL && arm_status_take(call->device, call->status, &said, &error) != 0) return -1;
  call->bound.refused = said.value;
  if (said.code != 0) code = said.code;
  return code == 0 ? 0 : arm_bound_failed(&call->bound, code, &error);
}

int arm_call_time(arm_call *call, int64_t number, double *seconds, char *err, size_t err_size) {
  double start = arm_now();
  for (int64_t i = 0; i < number; i++)
    if (arm_call_run(call, err, err_size) != 0) return -1;
  if (arm_device_synchronize(call->device, err, err_size) != 0) return -1;
  *seconds = arm_now() - start;
  return 0;
}

void arm_call_destroy(arm_call *call) {
  if (call == NULL) return;
  arm_unbind(&call->bound);
  arm_memory_release(call->device, call->workspace);
  arm_memory_release(call->device, call->status);
  arm_module_release(call->module);
  free(call);
}
