/* OpenCL programs and launches: source built once, binaries kept in a folder, kernels with their arguments set.
 *
 * In: the source of a module's kernels, a device; then launches. Out: kernels in the device's queue. Kernels of
 * much text are built side by side in a few programs. Invariant: a kept
 * binary is found again by source, device and driver, so one that fits no more is built anew, as is one that is damaged or
 * that somebody else may have written; an argument is set again only when its memory moved. A program that does not build
 * is an error with the compiler's own words.
 */
#define _GNU_SOURCE /* O_NOFOLLOW, O_CLOEXEC */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <errno.h>

#include "arm_files.h"
#include "arm_opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STANDARD "-cl-std=CL1.2"
#define UNEVEN " -cl-arm-non-uniform-work-group-size"
#define OLDEST_MALI 8 /* r8p0: the oldest that knows the option */
#define HALF " -DARMILLARY_HALF"
#define MAX_BINARY ((size_t)1 << 30)
#define MAX_PATH 4096
/* NVIDIA's driver builds one program after another, whatever the thread: 0.12 s for any and 3 s for a megabyte. 99 kernels
 * of 380 KB took 1.7 s in 4 programs, 4.0 s in 16 and 5.6 s in 32. */
#define MAX_PARTS 4
#define PART_BYTES 98304 /* of text, at least, of each program of many */
#define STACK ((size_t)8 << 20) /* of a thread that runs a driver's compiler */

static char folder[MAX_PATH - 64]; /* where binaries are kept; "": nowhere */

/* Whether only this user and the administrator may have written it. */
static int is_private(const struct stat *info) {
  return (info->st_uid == 0 || info->st_uid == geteuid()) && (info->st_mode & 022) == 0;
}

static int is_folder_private(void) {
  struct stat info;
  return stat(folder, &info) == 0 && S_ISDIR(info.st_mode) && is_private(&info);
}

int arm_opencl_keep_programs(const char *path) {
  if (strlen(path) >= sizeof folder) return -1;
  memcpy(folder, path, strlen(path) + 1);
  return *folder == 0 || is_folder_private() ? 0 : 1;
}

/* ---- binaries on disk ---- */

static uint64_t mix(uint64_t hash, const char *text) {
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001B3);
  return (hash ^ 0xFF) * UINT64_C(0x100000001B3);
}

/* A product and a sum may be one instruction, but where a kernel asks that they be not: the option would overrule it.
 * Mali's drivers of OpenCL 1.2 take groups that do not divide the global size by an option of Arm's. That the device
 * computes in half is said: not every driver defines the extension's name for the preprocessor. */
const char *arm_opencl_options(const char *device, const char *extensions, const char *source) {
  static const char *const OPTIONS[] = {
      STANDARD " -cl-mad-enable",      STANDARD,      STANDARD " -cl-mad-enable" UNEVEN,      STANDARD UNEVEN,
      STANDARD " -cl-mad-enable" HALF, STANDARD HALF, STANDARD " -cl-mad-enable" UNEVEN HALF, STANDARD UNEVEN HALF};
  int is_strict = strstr(source, "FP_CONTRACT OFF") != NULL;
  int is_uneven = strstr(device, "Mali") != NULL && strstr(extensions, "cl_arm_non_uniform_work_group_size") != NULL;
  int in_half = strstr(extensions, "cl_khr_fp16") != NULL && strstr(source, "ARMILLARY_HALF") != NULL;
  return OPTIONS[is_strict + 2 * is_uneven + 4 * in_half];
}

static const char *options_of(const arm_cl_state *s, const char *source) {
  char extensions[64] = "";
  if (strstr(s->name, "Mali") != NULL && arm_cl_has(s, "cl_arm_non_uniform_work_group_size"))
    strcat(extensions, "cl_arm_non_uniform_work_group_size ");
  if (arm_cl_has(s, "cl_khr_fp16")) strcat(extensions, "cl_khr_fp16");
  return arm_opencl_options(s->name, extensions, source);
}

/* The release of Mali's driver: 8 of "OpenCL 1.2 v1.r8p0-02rel0"; -1: the text has none. */
int arm_opencl_mali_release(const char *version) {
  int release = -1;
  for (const char *at = version; (at = strchr(at, 'r')) != NULL; at++)
    if (sscanf(at, "r%dp%*d", &release) == 1) return release;
  return -1;
}

/* A kept binary: its file, and what stands before it there: a magic, its name (two FNV-1a hashes, begun differently), the
 * CRC-32 of name and binary. */
typedef struct { char path[MAX_PATH]; unsigned char head[28]; } kept_binary;
#define MAGIC "ARMCLB2\n"
#define NAME_SIZE 16

static void name_binary(const arm_cl_state *s, const char *source, const char *options, kept_binary *out) {
  const char *parts[] = {source, s->name, s->driver, s->version, options};
  uint64_t names[2] = {UINT64_C(0xCBF29CE484222325), UINT64_C(0x9AE16A3B2F90404F)};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    for (int k = 0; k < 2; k++) names[k] = mix(names[k], parts[i]);
  snprintf(out->path, MAX_PATH, "%s/%016llx%016llx.clbin", folder, (unsigned long long)names[0],
           (unsigned long long)names[1]);
  memcpy(out->head, MAGIC, 8);
  memcpy(out->head + 8, names, NAME_SIZE);
}

static void sum_binary(kept_binary *kept, const unsigned char *bytes, size_t size) {
  uint32_t sum = arm_crc32(arm_crc32(0, kept->head + 8, NAME_SIZE), bytes, size);
  memcpy(kept->head + 8 + NAME_SIZE, &sum, sizeof sum);
}

static unsigned char *read_all(int handle, size_t size) {
  unsigned char *bytes = malloc(size);
  for (size_t done = 0; bytes != NULL && done < size;) {
    ssize_t got = read(handle, bytes + done, size - done);
    if (got > 0) done += (size_t)got;
    else if (got == 0 || errno != EINTR) {
      free(bytes);
      return NULL;
    }
  }
  return bytes;
}

/* NULL: there is none, or it is damaged (it is removed), or somebody else may have written it. */
static unsigned char *read_binary(const kept_binary *kept, size_t *size) {
  kept_binary found = *kept;
  struct stat info;
  int handle = is_folder_private() ? open(kept->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
  if (handle < 0) return NULL;
  unsigned char *bytes = NULL;
  int is_ours = fstat(handle, &info) == 0 && S_ISREG(info.st_mode) && is_private(&info);
  if (is_ours && info.st_size > (off_t)sizeof found.head && (size_t)info.st_size < MAX_BINARY)
    bytes = read_all(handle, (size_t)info.st_size);
  close(handle);
  if (!is_ours) return NULL;
  *size = (size_t)info.st_size - sizeof found.head;
  if (bytes != NULL) sum_binary(&found, bytes + sizeof found.head, *size);
  if (bytes != NULL && memcmp(bytes, found.head, sizeof found.head) == 0) return bytes;
  unlink(kept->path);
  free(bytes);
  return NULL;
}

/* Where nothing can be written nothing is kept; what is no regular file of this name goes. */
static void write_binary(kept_binary *kept, unsigned char *bytes, size_t size) {
  struct stat info;
  if (!is_folder_private()) return;
  if (lstat(kept->path, &info) == 0 && !S_ISREG(info.st_mode) && remove(kept->path) != 0) return;
  sum_binary(kept, bytes + sizeof kept->head, size);
  memcpy(bytes, kept->head, sizeof kept->head);
  (void)arm_file_write(kept->path, bytes, size + sizeof kept->head, 0600, &(arm_error){NULL, 0});
}

static void keep_binary(kept_binary *kept, cl_program program) {
  size_t size = 0;
  if (arm_cl()->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != CL_SUCCESS) return;
  unsigned char *bytes = size > 0 && size < MAX_BINARY - sizeof kept->head ? malloc(size + sizeof kept->head) : NULL;
  if (bytes == NULL) return;
  unsigned char *list[] = {bytes + sizeof kept->head};
  if (arm_cl()->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof list, list, NULL) == CL_SUCCESS)
    write_binary(kept, bytes, size);
  free(bytes);
}

/* NULL: there is none, or it is for another driver after all. */
static cl_program load_binary(const arm_cl_state *s, const kept_binary *kept, const char *options) {
  size_t size = 0;
  unsigned char *bytes = read_binary(kept, &size);
  if (bytes == NULL) return NULL;
  const unsigned char *list[] = {bytes + sizeof kept->head};
  cl_int status = CL_SUCCESS, code;
  cl_program made = arm_cl()->clCreateProgramWithBinary(s->context, 1, &s->device, &size, list, &status, &code);
  free(bytes);
  if (code != CL_SUCCESS) return NULL;
  if (status == CL_SUCCESS && arm_cl()->clBuildProgram(made, 1, &s->device, options, NULL, NULL) == CL_SUCCESS)
    return made;
  (void)arm_cl()->clReleaseProgram(made);
  return NULL;
}

/* ---- building ---- */

/* The kernel that a line of the source belongs to: "" where it stands before the first one. */
static void kernel_at(const char *source, long line, char name[ARM_CL_NAME]) {
  const char *begin = NULL;
  name[0] = 0;
  for (const char *at = source; line-- > 0 && at != NULL; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, "__kernel", 8) == 0) begin = at;
  }
  const char *bracket = begin == NULL ? NULL : strstr(begin, " void ");
  if (bracket != NULL) snprintf(name, ARM_CL_NAME, "%.*s", (int)strcspn(bracket + 6, "("), bracket + 6);
}

/* The first ":<line>:<column>" of a compiler's words; 0: it has none. */
static long line_of(const char *log) {
  for (; log != NULL && (log = strchr(log, ':')) != NULL; log++) {
    char *end;
    long line = strtol(log + 1, &end, 10);
    if (end > log + 1 && *end == ':' && end[1] >= '0' && end[1] <= '9') return line;
  }
  return 0;
}

static int build_failed(const arm_cl_state *s, cl_program program, const char *source, cl_int code, arm_error *error) {
  char name[ARM_CL_NAME];
  size_t size = 0;
  char *log = NULL;
  if (arm_cl()->clGetProgramBuildInfo(program, s->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) == CL_SUCCESS)
    log = arm_zalloc(size + 1, 1);
  if (log != NULL) (void)arm_cl()->clGetProgramBuildInfo(program, s->device, CL_PROGRAM_BUILD_LOG, size, log, NULL);
  kernel_at(source, line_of(log), name);
  arm_fail(error, "OpenCL: %s does not build %s%s (error %d):\n%.800s", s->name, *name ? "kernel " : "the kernels", name, code,
           log ? log : "");
  free(log);
  return -1;
}

static cl_program build_source(const arm_cl_state *s, const char *source, const char *options, arm_error *error) {
  cl_int code;
  cl_program made = arm_cl()->clCreateProgramWithSource(s->context, 1, &source, NULL, &code);
  if (arm_cl_check(code, "making a program", error) != 0) return NULL;
  code = arm_cl()->clBuildProgram(made, 1, &s->device, options, NULL, NULL);
  if (code == CL_SUCCESS) return made;
  build_failed(s, made, source, code, error);
  (void)arm_cl()->clReleaseProgram(made);
  return NULL;
}

/* The driver's release, and extensions that kernels ask for, with what they are for. */
static int check_device(const arm_cl_state *s, const char *source, arm_error *error) {
  static const char *const WANTED[][3] = {
      {"cl_khr_fp64", "double", "take float64 out of the network"},
  };
  for (size_t i = 0; i < sizeof WANTED / sizeof *WANTED; i++)
    if (strstr(source, WANTED[i][0]) != NULL && !arm_cl_has(s, WANTED[i][0]))
      return arm_fail(error, "OpenCL: the kernels compute in %s, and %s has no %s; %s", WANTED[i][1], s->name, WANTED[i][0],
                      WANTED[i][2]);
  int release = strstr(s->name, "Mali") != NULL ? arm_opencl_mali_release(s->version) : -1;
  if (release >= 0 && release < OLDEST_MALI)
    return arm_fail(error, "OpenCL: the driver of %s is r%d (%s); kernels need r%dp0 or later: update the driver", s->name,
                    release, s->version, OLDEST_MALI);
  if (strstr(source, "image2d_t") != NULL && arm_cl_number(s->device, CL_DEVICE_IMAGE_SUPPORT, 4) == 0)
    return arm_fail(error, "OpenCL: the kernels read images, and %s has none; compile for \"opencl\", without -device=adreno",
                    s->name);
  return 0;
}

/* ---- parts of a source, built side by side ---- */

/* A program of the device for each part. */
typedef struct { int32_t count; cl_program parts[MAX_PARTS]; } built_programs;

/* A part on its way: `text` is written first with what all kernels share, then with its own. */
typedef struct {
  const arm_cl_state *state;
  const char *options; /* the whole source's: numbers do not depend on how it is divided */
  char *text;
  size_t size;
  cl_program program;
  char message[1024];
  pthread_t thread;
} part_build;

static size_t block_size(const char *block) {
  const char *end = strstr(block, "\n\n");
  return end == NULL ? strlen(block) : (size_t)(end - block);
}

static const char *next_block(const char *block) {
  const char *next = block + block_size(block);
  return *next == 0 ? NULL : next + 2;
}

static int is_kernel(const char *block) { return strncmp(block, "__kernel", 8) == 0; }

/* How many parts a source is built in: 1 where its blocks are not those of our own emitter, each kernel in one. */
static int32_t count_parts(const char *source) {
  size_t kernels = 0, most = (size_t)arm_cpu_count();
  for (const char *block = source; block != NULL; block = next_block(block)) {
    const char *end = block + block_size(block);
    while (end > block && end[-1] == '\n') end--;
    if (is_kernel(block) && end[-1] != '}') return 1;
    kernels += (size_t)is_kernel(block);
  }
  if (most > strlen(source) / PART_BYTES) most = strlen(source) / PART_BYTES;
  if (most > kernels) most = kernels;
  return most < 1 ? 1 : most > MAX_PARTS ? MAX_PARTS : (int32_t)most;
}

static void append(part_build *part, const char *block) {
  size_t size = block_size(block);
  memcpy(part->text + part->size, block, size);
  memcpy(part->text + part->size + size, "\n\n", 3);
  part->size += size + 2;
}

static int longest_first(const void *one, const void *other) {
  const char *a = *(const char *const *)one, *b = *(const char *const *)other;
  size_t first = block_size(a), second = block_size(b);
  if (first != second) return first < second ? 1 : -1;
  return a < b ? -1 : 1;
}

/* What is no kernel to all parts; kernels, the longest first, each to the part that has least so far. */
static int divide(const char *source, part_build *parts, int32_t count, arm_error *error) {
  size_t kernels = 0;
  const char **order = arm_zalloc(strlen(source) / 8 + 1, sizeof *order);
  if (order == NULL) return arm_fail(error, "out of memory");
  for (const char *block = source; block != NULL; block = next_block(block)) {
    if (is_kernel(block)) order[kernels++] = block;
    else
      for (int32_t k = 0; k < count; k++) append(&parts[k], block);
  }
  qsort(order, kernels, sizeof *order, longest_first);
  for (size_t i = 0; i < kernels; i++) {
    int32_t least = 0;
    for (int32_t k = 1; k < count; k++)
      if (parts[k].size < parts[least].size) least = k;
    append(&parts[least], order[i]);
  }
  free(order);
  return 0;
}

static void *build_part(void *argument) {
  part_build *part = argument;
  kept_binary kept;
  arm_error error = {part->message, sizeof part->message};
  if (*folder) name_binary(part->state, part->text, part->options, &kept);
  if (*folder) part->program = load_binary(part->state, &kept, part->options);
  if (part->program != NULL) return NULL;
  part->program = build_source(part->state, part->text, part->options, &error);
  if (part->program != NULL && *folder) keep_binary(&kept, part->program);
  return NULL;
}

/* Each part on a thread of its own, the first here; so is one whose thread cannot be made. */
static void build_parts(part_build *parts, int32_t count) {
  pthread_attr_t attributes;
  int has_thread[MAX_PARTS] = {0};
  (void)pthread_attr_init(&attributes);
  (void)pthread_attr_setstacksize(&attributes, STACK);
  for (int32_t k = 1; k < count; k++)
    has_thread[k] = pthread_create(&parts[k].thread, &attributes, build_part, &parts[k]) == 0;
  (void)pthread_attr_destroy(&attributes);
  for (int32_t k = 0; k < count; k++)
    if (!has_thread[k]) (void)build_part(&parts[k]);
  for (int32_t k = 1; k < count; k++)
    if (has_thread[k]) (void)pthread_join(parts[k].thread, NULL);
}

void arm_cl_drop(void *program) {
  built_programs *built = program;
  for (int32_t k = 0; k < built->count; k++)
    if (built->parts[k] != NULL) (void)arm_cl()->clReleaseProgram(built->parts[k]);
  free(built);
}

static double spent; /* on programs; devices are opened one at a time when packages are loaded */

double arm_opencl_program_seconds(void) { return spent; }

static int build_all(const arm_cl_state *s, const char *source, part_build *parts, built_programs *built, arm_error *error) {
  size_t room = strlen(source) + 3;
  for (int32_t k = 0; k < built->count; k++) {
    parts[k] = (part_build){.state = s, .options = options_of(s, source), .text = malloc(room)};
    if (parts[k].text == NULL) return arm_fail(error, "out of memory");
  }
  if (built->count == 1) memcpy(parts->text, source, room - 2);
  else if (divide(source, parts, built->count, error) != 0) return -1;
  build_parts(parts, built->count);
  for (int32_t k = 0; k < built->count; k++) built->parts[k] = parts[k].program;
  for (int32_t k = 0; k < built->count; k++)
    if (parts[k].program == NULL) return arm_fail(error, "%s", parts[k].message);
  return 0;
}

int arm_cl_build(int32_t id, const char *source, void **program, arm_error *error) {
  double begin = arm_now();
  const arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL || check_device(s, source, error) != 0) return -1;
  built_programs *built = arm_zalloc(1, sizeof *built);
  part_build *parts = arm_zalloc(MAX_PARTS, sizeof *parts);
  int status = built == NULL || parts == NULL ? arm_fail(error, "out of memory") : 0;
  if (status == 0) built->count = count_parts(source);
  if (status == 0) status = build_all(s, source, parts, built, error);
  for (int32_t k = 0; parts != NULL && k < MAX_PARTS; k++) free(parts[k].text);
  free(parts);
  spent += arm_now() - begin;
  if (status == 0) *program = built;
  else if (built != NULL) arm_cl_drop(built);
  return status;
}

/* ---- launches ---- */

typedef struct { const void *address; int64_t bytes; } set_part;
typedef struct {
  arm_cl_state *state;
  const arm_launch *launch;
  cl_kernel kernel;
  char name[ARM_CL_NAME];
  uint64_t parts;  /* the state's when `set` was */
  set_part set[];  /* the memory that each argument was last set to */
} prepared_launch;

/* Rather here than at the first run: what the device refuses. */
static int check_items(const prepared_launch *p, arm_error *error) {
  size_t limit = 0;
  const int64_t *items = p->launch->items;
  int64_t count = items[0] * items[1] * items[2];
  (void)arm_cl()->clGetKernelWorkGroupInfo(p->kernel, p->state->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof limit, &limit,
                                           NULL);
  if (limit == 0 || (size_t)count <= limit) return 0;
  return arm_fail(error, "OpenCL: kernel %s wants work-groups of %lld items; %s allows %zu", p->launch->kernel,
                  (long long)count, p->state->name, limit);
}

static int failed(const prepared_launch *p, const char *what, cl_int code, arm_error *error) {
  char text[160];
  snprintf(text, sizeof text, "%s kernel %.100s", what, p->launch->kernel);
  return arm_cl_check(code, text, error);
}

static cl_kernel find_kernel(const built_programs *built, const char *name, cl_int *code) {
  cl_kernel kernel = NULL;
  *code = CL_INVALID_KERNEL_NAME;
  for (int32_t k = 0; k < built->count && *code == CL_INVALID_KERNEL_NAME; k++)
    kernel = arm_cl()->clCreateKernel(built->parts[k], name, code);
  return kernel;
}

/* The numbers that a kernel of several launches takes for this one. */
static int set_numbers(const prepared_launch *p, arm_error *error) {
  for (int32_t k = 0; k < p->launch->num_args; k++) {
    const arm_kernel_arg *arg = &p->launch->args[k];
    if (arg->takes != ARM_TAKES_NUMBER) continue;
    cl_int code = arm_cl()->clSetKernelArg(p->kernel, (cl_uint)k, sizeof(int64_t), &arg->at.number);
    if (code != CL_SUCCESS) return failed(p, "setting a number of", code, error);
  }
  return 0;
}

int arm_cl_prepare(int32_t id, void *program, const arm_launch *launch, void **prepared, arm_error *error) {
  cl_int code;
  arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL) return -1;
  prepared_launch *made = arm_zalloc(1, sizeof *made + (size_t)launch->num_args * sizeof *made->set);
  if (made == NULL) return arm_fail(error, "out of memory");
  *made = (prepared_launch){.state = s, .launch = launch};
  snprintf(made->name, sizeof made->name, "%s", launch->kernel);
  made->kernel = find_kernel(program, launch->kernel, &code);
  if (code != CL_SUCCESS) {
    (void)failed(made, "making", code, error);
    free(made);
    return -1;
  }
  if (check_items(made, error) != 0 || set_numbers(made, error) != 0) {
    arm_cl_forget(made);
    return -1;
  }
  *prepared = made;
  return 0;
}

static int set_memory(prepared_launch *p, int32_t k, const char *address, int64_t bytes, arm_error *error) {
  set_part *set = &p->set[k];
  if (address == set->address && address != NULL && bytes == set->bytes) return 0;
  cl_mem mem;
  int is_image = p->launch->args[k].takes == ARM_TAKES_IMAGE;
  if (arm_cl_memory(p->state, address, (size_t)bytes, is_image, &mem, error) != 0) return -1;
  cl_int code = arm_cl()->clSetKernelArg(p->kernel, (cl_uint)k, sizeof mem, (const void *)&mem);
  if (code != CL_SUCCESS) return failed(p, "setting an argument of", code, error);
  *set = (set_part){address, bytes};
  return 0;
}

static int set_argument(prepared_launch *p, int32_t k, void *const *data, const int64_t *bytes, const int64_t *vars,
                        arm_error *error) {
  const arm_kernel_arg *arg = &p->launch->args[k];
  int64_t at = arm_count_value(&arg->at, vars), size = arm_count_value(&arg->bytes, vars);
  if (arg->takes == ARM_TAKES_NUMBER) return 0; /* set once, when the launch was prepared */
  if (arg->takes == ARM_TAKES_VAR) {
    cl_int code = arm_cl()->clSetKernelArg(p->kernel, (cl_uint)k, sizeof(int64_t), &vars[at]);
    return code == CL_SUCCESS ? 0 : failed(p, "setting a number of", code, error);
  }
  if (arg->takes != ARM_TAKES_WORKSPACE) return set_memory(p, k, data[at], bytes[at], error);
  if (at < 0 || size < 0) return arm_fail(error, "OpenCL: kernel %s: its workspace is too large", p->launch->kernel);
  return set_memory(p, k, (const char *)data[p->launch->workspace] + at, size, error);
}

int arm_cl_launch(void *prepared, void *const *data, const int64_t *bytes, const int64_t *vars, arm_error *error) {
  prepared_launch *p = prepared;
  size_t all[3], items[3];
  for (int d = 0; d < 3; d++) {
    items[d] = (size_t)p->launch->items[d];
    int64_t groups = arm_count_value(&p->launch->groups[d], vars);
    if (groups < 0)
      return arm_fail(error, "OpenCL: kernel %s is to run for a number of groups that no device takes", p->launch->kernel);
    all[d] = items[d] * (size_t)groups;
    if (all[d] == 0) return 0;
  }
  if (p->parts != p->state->parts) memset(p->set, 0, sizeof *p->set * (size_t)p->launch->num_args);
  p->parts = p->state->parts;
  for (int32_t k = 0; k < p->launch->num_args; k++)
    if (set_argument(p, k, data, bytes, vars, error) != 0) return -1;
  if (p->state->is_watched) return arm_cl_launch_watched(p->state, p->kernel, p->name, all, items, error);
  if (arm_cl_is_free(p->state, error) != 0) return -1;
  cl_event event = NULL;
  cl_int code = arm_cl()->clEnqueueNDRangeKernel(p->state->queue, p->kernel, 3, NULL, all, items, 0, NULL,
                                                 arm_cl_notes_launches() ? &event : NULL);
  if (code != CL_SUCCESS) return failed(p, "launching", code, error);
  arm_cl_note(p->state, p->name, event);
  return 0;
}

void arm_cl_forget(void *prepared) {
  prepared_launch *p = prepared;
  if (p == NULL) return;
  (void)arm_cl()->clReleaseKernel(p->kernel);
  free(p);
}
