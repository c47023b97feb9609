/* Devices: memory that is not the host's, and kernels that run there.
 *
 * In: a kind of device by DLPack number (4: OpenCL) and the number of a device. Out: device memory, copies, prepared
 * launches. Invariant: a device address is a number that no host pointer equals (reading it on the host faults); address
 * plus offset is an address inside the same memory. Work of one device is done in the order it was asked for; only reading
 * and `sync` wait. The CPU has no row: its memory is arm_alloc's and its kernels are phases (arm_function.c).
 */
#ifndef ARM_DEVICE_H
#define ARM_DEVICE_H

#include "arm_internal.h"

#define ARM_CPU 1
#define ARM_OPENCL 4
#define ARM_DEVICE_ALIGN 512 /* of what shares an allocation: no device asks for more */
#define ARM_DEVICE_FAILED (-4) /* the code of a launch that failed; arm_device_told has the text */

/* A number, or an expression over the vars of a function, whose value is known when it is called. */
typedef struct { int64_t number; arm_extent of; /* count 0: the number */ } arm_count;
int64_t arm_count_value(const arm_count *count, const int64_t *vars); /* -1: negative, or too large */
/* What a kernel takes: tensor argument k, in a buffer or in an image; `bytes` of the workspace from an offset on; the value
 * of a var; a number as it is. */
typedef enum { ARM_TAKES_TENSOR, ARM_TAKES_IMAGE, ARM_TAKES_WORKSPACE, ARM_TAKES_VAR, ARM_TAKES_NUMBER } arm_takes;
typedef struct { arm_takes takes; arm_count at, bytes; } arm_kernel_arg;
typedef struct arm_launch {
  char *kernel;
  int32_t num_args, workspace; /* `workspace`: where its address is in the data of a call */
  arm_kernel_arg *args;
  arm_count groups[3]; /* work-groups */
  int64_t items[3];    /* work-items of a group */
} arm_launch;

/* Source or binary of kernels for one kind of device, built at first use. */
typedef struct arm_device_code arm_device_code;

typedef struct {
  const char *name;
  int32_t type;
  int (*open)(int32_t id, arm_error *error); /* 0: there is such a device, and it works */
  int (*describe)(int32_t id, char *out, size_t size, arm_error *error);
  void *(*allocate)(int32_t id, size_t bytes, arm_error *error);
  void *(*allocate_image)(int32_t id, int64_t width, int64_t height, int32_t bits, arm_error *error);
  void (*release)(int32_t id, void *memory);
  int (*write)(int32_t id, void *to, const void *from, size_t bytes, arm_error *error); /* from the host */
  int (*read)(int32_t id, void *to, const void *from, size_t bytes, arm_error *error);  /* to the host; waits */
  int (*copy)(int32_t id, void *to, const void *from, size_t bytes, arm_error *error);  /* inside the device */
  int (*clear)(int32_t id, void *memory, size_t bytes, arm_error *error);
  int (*synchronize)(int32_t id, arm_error *error);
  int (*build)(int32_t id, const char *source, void **program, arm_error *error);
  void (*drop)(void *program);
  int (*prepare)(int32_t id, void *program, const arm_launch *launch, void **prepared, arm_error *error);
  int (*launch)(void *prepared, void *const *data, const int64_t *bytes, const int64_t *vars, arm_error *error);
  void (*forget)(void *prepared);
  int (*map)(int32_t id, void *memory, size_t bytes, int writes, void **out, arm_error *error); /* for the host; waits */
  int (*unmap)(int32_t id, void *memory, void *mapped, arm_error *error);
  int (*watch)(int32_t id, int on, arm_error *error);                /* from now on note how long kernels take */
  int (*elapsed)(int32_t id, double *seconds, arm_error *error);     /* of all launched since the last question; waits */
  int (*divide_anew)(int32_t id, const void *memory, arm_error *error); /* other parts of it are used from now on; waits */
} arm_device_kind;

const arm_device_kind *arm_device_kind_of(int32_t type); /* NULL: the CPU, or unknown */
const arm_device_kind *arm_device_kind_named(const char *name);
extern const arm_device_kind arm_opencl_kind;

/* Memory on any device, the CPU included. */
void *arm_memory_allocate(arm_device device, size_t bytes, arm_error *error);
/* An image of four numbers a pixel, of `bits` each, with rows of `width` pixels that hold `bytes` together. */
void *arm_memory_allocate_image(arm_device device, int64_t width, size_t bytes, int32_t bits, arm_error *error);
void arm_memory_release(arm_device device, void *memory);
int arm_memory_copy(arm_device to_device, void *to, arm_device from_device, const void *from, size_t bytes,
                    arm_error *error);
int arm_memory_clear(arm_device device, void *memory, size_t bytes, arm_error *error);
int arm_memory_synchronize(arm_device device, arm_error *error);
int arm_memory_divide_anew(arm_device device, const void *memory, arm_error *error); /* its tensors have other places now */
/* Memory of a device where the host reads it, or (`writes`) fills all of it: no copy where both share memory. The CPU's is
 * itself. Kernels may use it again after it was unmapped. */
int arm_memory_map(arm_device device, void *memory, size_t bytes, int writes, void **out, arm_error *error);
int arm_memory_unmap(arm_device device, void *memory, void *mapped, arm_error *error);
/* How long kernels take, of a device that notes it; -1 without a text: it is the CPU, or tells nothing. */
int arm_device_watch(arm_device device, int on, arm_error *error);
int arm_device_elapsed(arm_device device, double *seconds, arm_error *error);

/* The text of the last launch that failed in this thread. */
arm_error arm_device_told(void);

/* Kernels: "device_code" of a descriptor, by the name of a kind; NULL where there is none. */
int arm_device_code_read(const arm_json *json, arm_device_code **out, arm_error *error);
void arm_device_code_free(arm_device_code *code);
int32_t arm_device_code_type(const arm_device_code *code);

/* The launches of a function row, in order. */
int arm_launches_read(const arm_json *json, int32_t list, const char *where, const arm_function *f, arm_launch **out,
                      int32_t *count, arm_error *error);
void arm_launches_free(arm_launch *launches, int32_t count);

/* A function's launches on a device. Prepared once; each run enqueues them. */
typedef struct arm_launcher arm_launcher;
int arm_launcher_make(arm_device_code *code, int32_t id, const arm_launch *launches, int32_t count, arm_launcher **out,
                      arm_error *error);
int32_t arm_launcher_run(arm_launcher *launcher, void *const *data, const int64_t *bytes, const int64_t *vars);
void arm_launcher_free(arm_launcher *launcher);

/* arm_status.c: what kernels say of values that they refuse, the first of them since somebody looked. A call whose function
 * is checked has the address of such memory where the CPU's have the workspace of their threads, and its number behind the
 * vars. */
#define ARM_STATUS_BYTES 16
typedef struct { int32_t code, call; int64_t value; } arm_status; /* code 0: nothing */
int arm_bound_is_checked(const arm_bound *bound);
void arm_bound_set_status(const arm_bound *bound, void *status, int64_t call);
void *arm_status_make(arm_device device, arm_error *error);
int arm_status_take(arm_device device, void *status, arm_status *out, arm_error *error); /* waits; clears what was said */

#endif
