/* OpenCL devices: finding the library and the device, memory, copies.
 *
 * In: the number of a device, counted over all platforms, GPUs first. Out: memory with addresses of our own, in-order
 * copies. Invariant: an address lies where no host pointer can, is never given twice, and belongs to one cl_mem; what is
 * asked of a device is done in that order, so a copy after a launch reads its result.
 */
#include "arm_opencl.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 16
#define MAX_PLATFORMS 8
#define FIRST_ADDRESS ((uintptr_t)1 << (sizeof(uintptr_t) * 8 - 2)) /* no process has memory there */
#define STEP 4096 /* addresses of two allocations do not touch */

static arm_cl_api api;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static arm_cl_state *states[MAX_DEVICES];
static cl_device_id devices[MAX_DEVICES];
static cl_platform_id platforms_of[MAX_DEVICES];
static int num_devices = -1;
static _Atomic uintptr_t next_address;

const arm_cl_api *arm_cl(void) { return &api; }

static const char *code_name(cl_int code) {
  switch (code) {
  case CL_DEVICE_NOT_FOUND: return "no device";
  case CL_DEVICE_NOT_AVAILABLE: return "the device is not available: it was reset, or has gone";
  case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return "what it waited for failed";
  case CL_INVALID_CONTEXT:
  case CL_INVALID_COMMAND_QUEUE: return "the driver has lost the device; start the process again";
  case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "out of device memory";
  case CL_OUT_OF_RESOURCES: return "out of resources of the device (or a kernel faulted)";
  case CL_OUT_OF_HOST_MEMORY: return "out of host memory";
  case CL_BUILD_PROGRAM_FAILURE: return "the program does not build";
  case CL_MISALIGNED_SUB_BUFFER_OFFSET: return "a part of a buffer is not aligned for this device";
  case CL_INVALID_BINARY: return "the binary is for another device";
  case CL_INVALID_KERNEL_ARGS: return "an argument of the kernel was never set";
  case CL_INVALID_WORK_GROUP_SIZE: return "the work-group is too large for the device";
  case CL_INVALID_BUFFER_SIZE: return "a buffer of this size is refused";
  default: return "";
  }
}

int arm_cl_check(cl_int code, const char *what, arm_error *error) {
  if (code == CL_SUCCESS) return 0;
  const char *name = code_name(code);
  return arm_fail(error, "OpenCL: %s: %s%serror %d", what, name, *name ? ", " : "", code);
}

int arm_cl_check_wait(const arm_cl_state *s, cl_int code, const char *what, arm_error *error) {
  if (code == CL_SUCCESS) return 0;
  char text[384];
  snprintf(text, sizeof text, "%s: %s%s%s", s->name, what, *s->last ? ", behind kernel " : "", s->last);
  return arm_cl_check(code, text, error);
}

/* ---- finding devices ---- */

static const char *const LIBRARIES[] = {
    "libOpenCL.so.1", "libOpenCL.so", "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so",
    "/vendor/lib64/egl/libGLES_mali.so",
};

static int load_api(arm_error *error) {
  void *library = NULL;
  for (size_t i = 0; i < sizeof LIBRARIES / sizeof *LIBRARIES && library == NULL; i++)
    library = dlopen(LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return arm_fail(error, "OpenCL: there is no libOpenCL.so on this system");
  void *found;
#define ARM_CL_FIND(result, name, args) \
  found = dlsym(library, #name); \
  if (found == NULL) return arm_fail(error, "OpenCL: the library lacks %s; OpenCL 1.2 is needed", #name); \
  memcpy(&api.name, &found, sizeof found);
  ARM_CL_FUNCTIONS(ARM_CL_FIND)
#undef ARM_CL_FIND
  return 0;
}

static int is_gpu(cl_device_id device) {
  cl_bitfield type = 0;
  (void)api.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
  return (type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR)) != 0;
}

/* Devices of all platforms, GPUs and accelerators before CPUs. */
static int find_devices(arm_error *error) {
  cl_platform_id platforms[MAX_PLATFORMS];
  cl_uint count = 0;
  if (num_devices >= 0) return 0;
  if (load_api(error) != 0) return -1;
  cl_int code = api.clGetPlatformIDs(MAX_PLATFORMS, platforms, &count);
  if (code != CL_SUCCESS || count == 0) return arm_fail(error, "OpenCL: no driver (platform) is installed");
  int found = 0;
  for (int wants_gpu = 1; wants_gpu >= 0; wants_gpu--) {
    for (cl_uint p = 0; p < count && p < MAX_PLATFORMS; p++) {
      cl_device_id here[MAX_DEVICES];
      cl_uint some = 0;
      if (api.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, here, &some) != CL_SUCCESS) continue;
      for (cl_uint d = 0; d < some && d < MAX_DEVICES && found < MAX_DEVICES; d++) {
        if (is_gpu(here[d]) != wants_gpu) continue;
        devices[found] = here[d];
        platforms_of[found++] = platforms[p];
      }
    }
  }
  num_devices = found;
  return 0;
}

static void info_text(cl_device_id device, cl_uint what, char *out, size_t size) {
  size_t used = 0;
  char text[1024];
  if (api.clGetDeviceInfo(device, what, sizeof text - 1, text, &used) != CL_SUCCESS || used >= sizeof text) used = 0;
  text[used] = 0;
  snprintf(out, size, "%.*s", (int)size - 1, text);
}

static int start(arm_cl_state *s, arm_error *error) {
  cl_int code;
  cl_uint bits = 0;
  info_text(s->device, CL_DEVICE_NAME, s->name, sizeof s->name);
  info_text(s->device, CL_DRIVER_VERSION, s->driver, sizeof s->driver);
  info_text(s->device, CL_DEVICE_VERSION, s->version, sizeof s->version);
  (void)api.clGetDeviceInfo(s->device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, NULL);
  s->alignment = bits / 8 > 0 ? bits / 8 : 1;
  s->context = api.clCreateContext(NULL, 1, &s->device, NULL, NULL, &code);
  if (arm_cl_check(code, "making a context", error) != 0) return -1;
  s->queue = api.clCreateCommandQueue(s->context, s->device, 0, &code);
  if (arm_cl_check(code, "making a queue", error) != 0) return -1;
  return pthread_mutex_init(&s->lock, NULL) == 0 ? 0 : arm_fail(error, "OpenCL: no lock can be made");
}

/* A device stays open as long as the process: its programs and buffers may outlive whoever asked first. */
arm_cl_state *arm_cl_open(int32_t id, arm_error *error) {
  pthread_mutex_lock(&guard);
  arm_cl_state *state = id >= 0 && id < MAX_DEVICES ? states[id] : NULL;
  int status = state != NULL ? 0 : sizeof(uintptr_t) < 8 ? arm_fail(error, "OpenCL: 64-bit systems only")
                                                         : find_devices(error);
  if (state == NULL && status == 0 && (id < 0 || id >= num_devices))
    status = arm_fail(error, "OpenCL: there are %d devices; there is no device %d", num_devices, id);
  if (state == NULL && status == 0) {
    state = arm_zalloc(1, sizeof *state);
    if (state == NULL) status = arm_fail(error, "out of memory");
    if (status == 0) {
      state->device = devices[id];
      state->platform = platforms_of[id];
      status = start(state, error);
    }
    if (status == 0) states[id] = state;
    else free(state);
  }
  pthread_mutex_unlock(&guard);
  return status == 0 ? state : NULL;
}

static int open_device(int32_t id, arm_error *error) { return arm_cl_open(id, error) == NULL ? -1 : 0; }

uint64_t arm_cl_number(cl_device_id device, cl_uint what, size_t size) {
  uint64_t wide = 0;
  uint32_t narrow = 0;
  (void)api.clGetDeviceInfo(device, what, size, size == 8 ? (void *)&wide : (void *)&narrow, NULL);
  return size == 8 ? wide : narrow;
}

int arm_cl_has(const arm_cl_state *s, const char *extension) {
  char extensions[8192];
  size_t used = 0;
  if (api.clGetDeviceInfo(s->device, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, &used) != CL_SUCCESS)
    used = 0;
  extensions[used < sizeof extensions ? used : 0] = 0;
  return strstr(extensions, extension) != NULL;
}

static int describe(int32_t id, char *out, size_t size, arm_error *error) {
  const arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL) return -1;
  snprintf(out, size, "name\t%s\ndriver\t%s\nversion\t%s\ngpu\t%d\nunits\t%llu\nitems\t%llu\nlocal\t%llu\nmemory\t%llu\n"
           "half\t%d\ndouble\t%d\nimages\t%d\nwidest\t%llu\nhighest\t%llu\nshared\t%d\n",
           s->name, s->driver, s->version, is_gpu(s->device),
           (unsigned long long)arm_cl_number(s->device, CL_DEVICE_MAX_COMPUTE_UNITS, 4),
           (unsigned long long)arm_cl_number(s->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, 8),
           (unsigned long long)arm_cl_number(s->device, CL_DEVICE_LOCAL_MEM_SIZE, 8),
           (unsigned long long)arm_cl_number(s->device, CL_DEVICE_GLOBAL_MEM_SIZE, 8),
           arm_cl_has(s, "cl_khr_fp16"), arm_cl_has(s, "cl_khr_fp64"),
           arm_cl_number(s->device, CL_DEVICE_IMAGE_SUPPORT, 4) != 0,
           (unsigned long long)arm_cl_number(s->device, CL_DEVICE_IMAGE2D_MAX_WIDTH, 8),
           (unsigned long long)arm_cl_number(s->device, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 8),
           arm_cl_number(s->device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0);
  return 0;
}

/* ---- memory ---- */

static int keep(arm_cl_state *s, arm_cl_buffer *buffer) {
  if (s->num_buffers == s->room) {
    int32_t room = s->room ? 2 * s->room : 64;
    arm_cl_buffer **more = realloc(s->buffers, sizeof *more * (size_t)room);
    if (more == NULL) return -1;
    s->buffers = more;
    s->room = room;
  }
  s->buffers[s->num_buffers++] = buffer;
  return 0;
}

static void *allocate(int32_t id, size_t bytes, arm_error *error) {
  arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL) return NULL;
  arm_cl_buffer *made = arm_zalloc(1, sizeof *made);
  if (made == NULL) return arm_fail(error, "out of memory"), NULL;
  cl_int code;
  made->bytes = bytes > 0 ? bytes : 1;
  int is_shared = arm_cl_number(s->device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0; /* then the host can map it as it is */
  made->mem = api.clCreateBuffer(s->context, CL_MEM_READ_WRITE | (is_shared ? CL_MEM_ALLOC_HOST_PTR : 0), made->bytes, NULL,
                                 &code);
  if (code != CL_SUCCESS) {
    free(made);
    const char *name = code_name(code);
    arm_fail(error, "OpenCL: %s: no buffer of %zu bytes: %s (error %d)", s->name, bytes, name, code);
    return NULL;
  }
  return arm_cl_enter(s, made, error);
}

void *arm_cl_enter(arm_cl_state *s, arm_cl_buffer *made, arm_error *error) {
  pthread_mutex_lock(&s->lock);
  uintptr_t span = (made->bytes + 2 * STEP - 1) / STEP * STEP;
  made->address = FIRST_ADDRESS + atomic_fetch_add(&next_address, span);
  int status = keep(s, made);
  pthread_mutex_unlock(&s->lock);
  if (status == 0) return (void *)made->address; /* NOLINT: a number that stands for the buffer */
  (void)api.clReleaseMemObject(made->mem);
  free(made);
  arm_fail(error, "out of memory");
  return NULL;
}

/* The position of the last buffer that begins at or before an address; -1: none. The lock is held. */
static int32_t position_of(const arm_cl_state *s, uintptr_t address) {
  int32_t low = 0, high = s->num_buffers;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (s->buffers[middle]->address <= address) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

static arm_cl_buffer *buffer_at(const arm_cl_state *s, const void *address, size_t bytes) {
  int32_t at = position_of(s, (uintptr_t)address);
  arm_cl_buffer *found = at < 0 ? NULL : s->buffers[at];
  if (found == NULL || (uintptr_t)address - found->address > found->bytes ||
      bytes > found->bytes - ((uintptr_t)address - found->address))
    return NULL;
  return found;
}

static void release(int32_t id, void *memory) {
  char text[64];
  arm_error error = {text, sizeof text};
  arm_cl_state *s = arm_cl_open(id, &error);
  if (s == NULL) return;
  pthread_mutex_lock(&s->lock);
  int32_t at = position_of(s, (uintptr_t)memory);
  arm_cl_buffer *gone = at >= 0 && s->buffers[at]->address == (uintptr_t)memory ? s->buffers[at] : NULL;
  if (gone != NULL) {
    memmove(&s->buffers[at], &s->buffers[at + 1], sizeof *s->buffers * (size_t)(s->num_buffers - at - 1));
    s->num_buffers--;
  }
  pthread_mutex_unlock(&s->lock);
  if (gone == NULL) return;
  /* A driver crashes where memory that is in use loses its parts; behind a kernel that hangs it stays. */
  if (arm_cl_wait(s, "releasing memory", &error) != 0 && s->late != NULL) return;
  (void)api.clFinish(s->queue);
  for (int32_t i = gone->num_parts; i-- > 0;) (void)api.clReleaseMemObject(gone->parts[i].mem);
  (void)api.clReleaseMemObject(gone->mem);
  free(gone->parts);
  free(gone);
}

static int part_of(arm_cl_buffer *buffer, size_t offset, size_t bytes, cl_mem *out, arm_error *error) {
  for (int32_t i = 0; i < buffer->num_parts; i++)
    if (buffer->parts[i].offset == offset && buffer->parts[i].bytes == bytes) {
      *out = buffer->parts[i].mem;
      return 0;
    }
  if (buffer->num_parts == buffer->room) {
    int32_t room = buffer->room ? 2 * buffer->room : 8;
    arm_cl_part *more = realloc(buffer->parts, sizeof *more * (size_t)room);
    if (more == NULL) return arm_fail(error, "out of memory");
    buffer->parts = more;
    buffer->room = room;
  }
  cl_int code;
  cl_buffer_region region = {offset, bytes};
  cl_mem made = api.clCreateSubBuffer(buffer->mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (arm_cl_check(code, "taking a part of a buffer", error) != 0) return -1;
  buffer->parts[buffer->num_parts++] = (arm_cl_part){offset, bytes, made};
  *out = made;
  return 0;
}

int arm_cl_memory(arm_cl_state *s, const void *address, size_t bytes, int is_image, cl_mem *out, arm_error *error) {
  int status = 0;
  pthread_mutex_lock(&s->lock);
  arm_cl_buffer *buffer = buffer_at(s, address, bytes);
  if (buffer != NULL && (buffer->width > 0) != is_image)
    status = arm_fail(error, "OpenCL: %p is %s, the kernel takes %s", address, is_image ? "a buffer" : "an image",
                      is_image ? "an image" : "a buffer");
  else if (buffer == NULL) status = arm_fail(error, "OpenCL: %p with %zu bytes is no memory of %s", address, bytes, s->name);
  else if ((uintptr_t)address == buffer->address) *out = buffer->mem;
  else status = part_of(buffer, (uintptr_t)address - buffer->address, bytes > 0 ? bytes : 1, out, error);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static int divide_anew(int32_t id, const void *memory, arm_error *error) {
  arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL || arm_cl_wait(s, "taking memory apart", error) != 0) return -1;
  (void)api.clFinish(s->queue);
  pthread_mutex_lock(&s->lock);
  arm_cl_buffer *buffer = buffer_at(s, memory, 0);
  for (int32_t i = buffer == NULL ? 0 : buffer->num_parts; i-- > 0;) (void)api.clReleaseMemObject(buffer->parts[i].mem);
  if (buffer != NULL) buffer->num_parts = 0;
  s->parts++;
  pthread_mutex_unlock(&s->lock);
  return 0;
}

/* ---- copies ---- */

typedef struct { arm_cl_state *state; const arm_cl_buffer *buffer; cl_mem mem; size_t offset; } place;

static int find_place(int32_t id, const void *address, size_t bytes, place *out, arm_error *error) {
  arm_cl_state *s = out->state = arm_cl_open(id, error);
  if (s == NULL) return -1;
  pthread_mutex_lock(&s->lock);
  const arm_cl_buffer *buffer = buffer_at(s, address, bytes);
  if (buffer != NULL) {
    out->buffer = buffer;
    out->mem = buffer->mem;
    out->offset = (uintptr_t)address - buffer->address;
  }
  pthread_mutex_unlock(&s->lock);
  return buffer != NULL ? 0 : arm_fail(error, "OpenCL: %p with %zu bytes is no memory of %s", address, bytes, s->name);
}

static int write_device(int32_t id, void *to, const void *from, size_t bytes, arm_error *error) {
  place p;
  if (find_place(id, to, bytes, &p, error) != 0) return -1;
  if (p.buffer->width > 0) return arm_cl_write_image(p.state, p.buffer, from, bytes, error);
  if (arm_cl_wait(p.state, "copying to the device", error) != 0) return -1;
  return arm_cl_check(api.clEnqueueWriteBuffer(p.state->queue, p.mem, 1, p.offset, bytes, from, 0, NULL, NULL),
                      "copying to the device", error);
}

static int read_device(int32_t id, void *to, const void *from, size_t bytes, arm_error *error) {
  place p;
  if (find_place(id, from, bytes, &p, error) != 0) return -1;
  if (p.buffer->width > 0) return arm_cl_read_image(p.state, p.buffer, to, bytes, error);
  if (arm_cl_wait(p.state, "copying from the device", error) != 0) return -1;
  return arm_cl_check_wait(p.state, api.clEnqueueReadBuffer(p.state->queue, p.mem, 1, p.offset, bytes, to, 0, NULL, NULL),
                           "copying from the device", error);
}

static int copy_inside(int32_t id, void *to, const void *from, size_t bytes, arm_error *error) {
  place p, q;
  if (to == from) return 0;
  if (find_place(id, from, bytes, &p, error) != 0 || find_place(id, to, bytes, &q, error) != 0) return -1;
  if (p.buffer->width > 0 || q.buffer->width > 0)
    return arm_cl_copy_image(p.state, q.buffer, q.offset, p.buffer, p.offset, bytes, error);
  return arm_cl_check(
      api.clEnqueueCopyBuffer(p.state->queue, p.mem, q.mem, p.offset, q.offset, bytes, 0, NULL, NULL),
      "copying inside the device", error);
}

static int clear(int32_t id, void *memory, size_t bytes, arm_error *error) {
  place p;
  static const uint8_t zero = 0;
  if (find_place(id, memory, bytes, &p, error) != 0) return -1;
  if (p.buffer->width > 0) return arm_cl_clear_image(p.state, p.buffer, bytes, error);
  return arm_cl_check(
      api.clEnqueueFillBuffer(p.state->queue, p.mem, &zero, sizeof zero, p.offset, bytes, 0, NULL, NULL),
      "filling memory", error);
}

static int map(int32_t id, void *memory, size_t bytes, int writes, void **out, arm_error *error) {
  place p;
  cl_int code;
  if (find_place(id, memory, bytes, &p, error) != 0) return -1;
  if (p.buffer->width > 0) return arm_fail(error, "OpenCL: an image is not mapped");
  if (arm_cl_wait(p.state, "mapping memory", error) != 0) return -1;
  *out = api.clEnqueueMapBuffer(p.state->queue, p.mem, 1, writes ? CL_MAP_WRITE_INVALIDATE : CL_MAP_READ, p.offset, bytes, 0,
                                NULL, NULL, &code);
  return arm_cl_check_wait(p.state, code, "mapping memory", error);
}

static int unmap(int32_t id, void *memory, void *mapped, arm_error *error) {
  place p;
  if (find_place(id, memory, 1, &p, error) != 0) return -1;
  return arm_cl_check(api.clEnqueueUnmapMemObject(p.state->queue, p.mem, mapped, 0, NULL, NULL), "unmapping memory", error);
}

static int synchronize(int32_t id, arm_error *error) {
  arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL || arm_cl_wait(s, "waiting for the device", error) != 0) return -1;
  return arm_cl_check_wait(s, api.clFinish(s->queue), "waiting for the device", error);
}

const arm_device_kind arm_opencl_kind = {
    "opencl", ARM_OPENCL, open_device, describe, allocate, arm_cl_allocate_image, release, write_device, read_device,
    copy_inside, clear, synchronize, arm_cl_build, arm_cl_drop, arm_cl_prepare, arm_cl_launch, arm_cl_forget,
    map, unmap, arm_cl_watch, arm_cl_elapsed, divide_anew,
};
