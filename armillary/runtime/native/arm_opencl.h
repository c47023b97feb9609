/* What we use of OpenCL 1.2: types, numbers and signatures as the Khronos specification gives them, and a table of the
 * functions, which are looked up when an OpenCL device is first asked for.
 *
 * In: libOpenCL of the system. Out: `arm_cl()`. Invariant: nothing links against OpenCL; where there is no library, or no
 * device, the runtime works without and says why.
 */
#ifndef ARM_OPENCL_H
#define ARM_OPENCL_H

#include <pthread.h>

#include "arm_device.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_ulong, cl_bitfield;
typedef struct arm_cl_platform *cl_platform_id;
typedef struct arm_cl_device *cl_device_id;
typedef struct arm_cl_context *cl_context;
typedef struct arm_cl_queue *cl_command_queue;
typedef struct arm_cl_mem *cl_mem;
typedef struct arm_cl_program *cl_program;
typedef struct arm_cl_kernel *cl_kernel;
typedef struct arm_cl_event *cl_event;
typedef struct { size_t origin, size; } cl_buffer_region;
typedef struct { cl_uint order, type; } cl_image_format;
typedef struct {
  cl_uint type;
  size_t width, height, depth, array_size, row_pitch, slice_pitch;
  cl_uint mip_levels, samples;
  cl_mem buffer;
} cl_image_desc;

enum {
  CL_SUCCESS = 0, CL_INVALID_KERNEL_NAME = -46, CL_DEVICE_NOT_FOUND = -1, CL_DEVICE_NOT_AVAILABLE = -2, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14,
  CL_INVALID_CONTEXT = -34, CL_INVALID_COMMAND_QUEUE = -36, CL_MEM_OBJECT_ALLOCATION_FAILURE = -4, CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6, CL_BUILD_PROGRAM_FAILURE = -11, CL_MISALIGNED_SUB_BUFFER_OFFSET = -13,
  CL_INVALID_BINARY = -42, CL_INVALID_KERNEL_ARGS = -52, CL_INVALID_WORK_GROUP_SIZE = -54, CL_INVALID_BUFFER_SIZE = -61,
  CL_PLATFORM_NOT_FOUND_KHR = -1001
};
enum {
  CL_PLATFORM_NAME = 0x0902, CL_DEVICE_TYPE_GPU = 1 << 2, CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,
  CL_DEVICE_TYPE = 0x1000, CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_IMAGE2D_MAX_WIDTH = 0x1011, CL_DEVICE_IMAGE2D_MAX_HEIGHT = 0x1012,
  CL_DEVICE_IMAGE_SUPPORT = 0x1016, CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F, CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, CL_DEVICE_NAME = 0x102B, CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F, CL_DEVICE_EXTENSIONS = 0x1030
};
enum {
  CL_MEM_READ_WRITE = 1 << 0, CL_MEM_ALLOC_HOST_PTR = 1 << 4, CL_MAP_READ = 1 << 0, CL_MAP_WRITE_INVALIDATE = 1 << 2,
  CL_BUFFER_CREATE_TYPE_REGION = 0x1220, CL_PROGRAM_BINARY_SIZES = 0x1165,
  CL_PROGRAM_BINARIES = 0x1166, CL_PROGRAM_BUILD_LOG = 0x1183, CL_QUEUE_PROFILING_ENABLE = 1 << 1,
  CL_KERNEL_WORK_GROUP_SIZE = 0x11B0, CL_MEM_OBJECT_IMAGE2D = 0x10F1, CL_RGBA = 0x10B5, CL_HALF_FLOAT = 0x10DD,
  CL_FLOAT = 0x10DE, CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3, CL_PROFILING_COMMAND_START = 0x1282, CL_PROFILING_COMMAND_END = 0x1283
};
#define CL_DEVICE_TYPE_ALL ((cl_bitfield)0xFFFFFFFF)

#define ARM_CL_FUNCTIONS(X) \
  X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *)) \
  X(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *)) \
  X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *)) \
  X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *)) \
  X(cl_context, clCreateContext, (const intptr_t *, cl_uint, const cl_device_id *, \
                                  void (*)(const char *, const void *, size_t, void *), void *, cl_int *)) \
  X(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *)) \
  X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *)) \
  X(cl_mem, clCreateSubBuffer, (cl_mem, cl_bitfield, cl_uint, const void *, cl_int *)) \
  X(cl_int, clReleaseMemObject, (cl_mem)) \
  X(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *)) \
  X(cl_program, clCreateProgramWithBinary, (cl_context, cl_uint, const cl_device_id *, const size_t *, \
                                            const unsigned char **, cl_int *, cl_int *)) \
  X(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device_id *, const char *, \
                             void (*)(cl_program, void *), void *)) \
  X(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *)) \
  X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *)) \
  X(cl_int, clReleaseProgram, (cl_program)) \
  X(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *)) \
  X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *)) \
  X(cl_int, clGetKernelWorkGroupInfo, (cl_kernel, cl_device_id, cl_uint, size_t, void *, size_t *)) \
  X(cl_int, clReleaseKernel, (cl_kernel)) \
  X(cl_int, clEnqueueNDRangeKernel, (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, \
                                     const size_t *, cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueReadBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, \
                                  const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueWriteBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, \
                                   const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueCopyBuffer, (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, \
                                  const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueFillBuffer, (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, \
                                  const cl_event *, cl_event *)) \
  X(cl_mem, clCreateImage, (cl_context, cl_bitfield, const cl_image_format *, const cl_image_desc *, void *, cl_int *)) \
  X(cl_int, clEnqueueReadImage, (cl_command_queue, cl_mem, cl_bool, const size_t *, const size_t *, size_t, size_t, \
                                 void *, cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueWriteImage, (cl_command_queue, cl_mem, cl_bool, const size_t *, const size_t *, size_t, size_t, \
                                  const void *, cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueFillImage, (cl_command_queue, cl_mem, const void *, const size_t *, const size_t *, cl_uint, \
                                 const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueCopyImage, (cl_command_queue, cl_mem, cl_mem, const size_t *, const size_t *, const size_t *, \
                                 cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueCopyImageToBuffer, (cl_command_queue, cl_mem, cl_mem, const size_t *, const size_t *, size_t, \
                                         cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueCopyBufferToImage, (cl_command_queue, cl_mem, cl_mem, size_t, const size_t *, const size_t *, \
                                         cl_uint, const cl_event *, cl_event *)) \
  X(void *, clEnqueueMapBuffer, (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event *, \
                                 cl_event *, cl_int *)) \
  X(cl_int, clEnqueueUnmapMemObject, (cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *)) \
  X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void *, size_t *)) \
  X(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void *, size_t *)) \
  X(cl_int, clReleaseEvent, (cl_event)) \
  X(cl_int, clFlush, (cl_command_queue)) \
  X(cl_int, clFinish, (cl_command_queue))

typedef struct {
#define ARM_CL_MEMBER(result, name, args) result (*name) args;
  ARM_CL_FUNCTIONS(ARM_CL_MEMBER)
#undef ARM_CL_MEMBER
} arm_cl_api;

/* A part of a buffer that a kernel takes: made once, as long as the buffer is there. */
typedef struct { size_t offset, bytes; cl_mem mem; } arm_cl_part;

typedef struct {
  uintptr_t address;
  size_t bytes;
  cl_mem mem;
  size_t width, pixel; /* of an image, in pixels and in bytes of one; 0: a buffer */
  arm_cl_part *parts;
  int32_t num_parts, room;
} arm_cl_buffer;

#define ARM_CL_NAME 128
#define ARM_CL_NOTES 256 /* launches that are remembered where each is noted */
typedef struct { cl_event event; char name[ARM_CL_NAME]; } arm_cl_launched;

/* A device in use: one context and one in-order queue. `buffers` are in order of their addresses, which only grow. */
typedef struct {
  cl_platform_id platform;
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
  char name[128], driver[64], version[64];
  size_t alignment; /* of a part's offset, in bytes */
  pthread_mutex_t lock;
  _Atomic uint64_t parts; /* how often memory was divided anew: what kernels were set to before is not valid */
  arm_cl_buffer **buffers;
  int32_t num_buffers, room;
  char last[ARM_CL_NAME]; /* the kernel that was launched last */
  int32_t launched;       /* kernels since the last wait */
  arm_cl_launched noted[ARM_CL_NOTES];
  int32_t num_noted;
  cl_event late; /* of what did not end in time; NULL: all did */
  char late_name[ARM_CL_NAME];
  cl_command_queue watched; /* notes when each kernel ran; NULL: nobody asked */
  int32_t is_watched;
  cl_event *events;    /* of kernels launched since they were asked for last */
  int32_t num_events, room_events;
} arm_cl_state;

const arm_cl_api *arm_cl(void); /* valid once a device was opened */
arm_cl_state *arm_cl_open(int32_t id, arm_error *error);
int arm_cl_check(cl_int code, const char *what, arm_error *error); /* -1 with the name of the code unless CL_SUCCESS */
/* As arm_cl_check, of something that waits for kernels: names the last one. */
int arm_cl_check_wait(const arm_cl_state *state, cl_int code, const char *what, arm_error *error);
/* The memory object of [address, address + bytes); it stays valid as long as the memory that it is a part of. */
int arm_cl_memory(arm_cl_state *state, const void *address, size_t bytes, int is_image, cl_mem *out, arm_error *error);
/* Give new memory its address; it is released where that fails. */
void *arm_cl_enter(arm_cl_state *state, arm_cl_buffer *made, arm_error *error);
uint64_t arm_cl_number(cl_device_id device, cl_uint what, size_t size);
int arm_cl_has(const arm_cl_state *state, const char *extension);

/* arm_opencl_image.c: two-dimensional images of four numbers a pixel, row after row as in a buffer. */
void *arm_cl_allocate_image(int32_t id, int64_t width, int64_t height, int32_t bits, arm_error *error);
int arm_cl_write_image(arm_cl_state *s, const arm_cl_buffer *to, const void *from, size_t bytes, arm_error *error);
int arm_cl_read_image(arm_cl_state *s, const arm_cl_buffer *from, void *to, size_t bytes, arm_error *error);
int arm_cl_clear_image(arm_cl_state *s, const arm_cl_buffer *image, size_t bytes, arm_error *error);
/* One of both is an image, or both are. */
int arm_cl_copy_image(arm_cl_state *s, const arm_cl_buffer *to, size_t to_offset, const arm_cl_buffer *from,
                      size_t from_offset, size_t bytes, arm_error *error);

/* arm_opencl_events.c: how long kernels take. */
int arm_cl_watch(int32_t id, int on, arm_error *error);
int arm_cl_elapsed(int32_t id, double *seconds, arm_error *error);
int arm_cl_launch_watched(arm_cl_state *s, cl_kernel kernel, const char *name, const size_t *all, const size_t *items,
                          arm_error *error);

/* arm_opencl_wait.c: waiting, for so long as the limit allows. */
int arm_cl_is_free(arm_cl_state *s, arm_error *error); /* -1 while a kernel runs that did not end in time */
int arm_cl_wait(arm_cl_state *s, const char *what, arm_error *error);
int arm_cl_wait_event(arm_cl_state *s, cl_event event, const char *what, arm_error *error);
int arm_cl_notes_launches(void);
void arm_cl_note(arm_cl_state *s, const char *name, cl_event event); /* a launch; NULL: without its event */

/* arm_opencl_program.c */
int arm_cl_build(int32_t id, const char *source, void **program, arm_error *error);
void arm_cl_drop(void *program);
int arm_cl_prepare(int32_t id, void *program, const arm_launch *launch, void **prepared, arm_error *error);
int arm_cl_launch(void *prepared, void *const *data, const int64_t *bytes, const int64_t *vars, arm_error *error);
void arm_cl_forget(void *prepared);

#endif
