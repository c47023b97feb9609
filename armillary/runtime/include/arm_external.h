/* The interface between the runtime and a library that computes offloaded functions: what such a library exports.
 *
 * A library of kind `acme` is a shared object `libarmillary_external_acme.so` that exports one function,
 *     const arm_external_api *armillary_external(void);
 * The runtime finds it in the folders of ARMILLARY_EXTERNAL_PATH, beside the package, or where the system looks. For each
 * offloaded function of a graph it calls `create` once, when the constants are there, then `run` as often as the graph
 * runs, then `destroy`. Invariant: a function that can fail returns 0, or -1 with one line of text in `err` (of `err_size`
 * bytes, terminated); nothing aborts and no exception leaves. Constants stay where they are until `destroy`; inputs and
 * outputs may lie elsewhere at each run, are dense and do not overlap. One handle is used by one thread at a time.
 */
#ifndef ARM_EXTERNAL_H
#define ARM_EXTERNAL_H

#include "armillary_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ARM_EXTERNAL_ABI 2 /* a library of 1 knows no devices, and is taken too */
#define ARM_EXTERNAL_ENTRY "armillary_external"

/* Iterations [begin, end) on behalf of `thread`; 0, or the code that the loop ends with. */
typedef int32_t (*arm_external_work)(void *context, int64_t begin, int64_t end, int64_t thread);

/* What the runtime lends: its threads and its memory. It outlives the handle. Since 2: of a function whose descriptor names
 * the device "opencl", also the context, the device and the in-order queue that the graph's own kernels use (cl_context,
 * cl_device_id, cl_command_queue), and the buffer of an address; else NULL. There the data of tensors are such addresses,
 * and what `run` enqueues need not be waited for. */
typedef struct arm_external_host {
  int32_t abi, threads;
  void *pool;
  int32_t (*parallel)(const struct arm_external_host *host, arm_external_work work, void *context, int64_t extent);
  void *(*allocate)(size_t size); /* 64-byte aligned */
  void (*release)(void *memory);
  void *cl_context, *cl_device, *cl_queue;
  /* The cl_mem of [address, address + bytes): valid as long as that memory, and not to be released. */
  int (*cl_memory)(const struct arm_external_host *host, const void *address, size_t bytes, void **mem, char *err,
                   size_t err_size);
  void *device_state;
} arm_external_host;

typedef struct {
  const char *symbol; /* name of the function */
  const char *source; /* what the code generator wrote: JSON, terminated */
  size_t source_size;
  const arm_tensor *constants; /* in the order of the source's const nodes */
  int32_t num_constants;
} arm_external_function;

typedef struct {
  int32_t abi;         /* ARM_EXTERNAL_ABI */
  const char *kind;    /* "acme" */
  const char *version; /* of the library behind it, for messages */
  int (*create)(const arm_external_function *function, const arm_external_host *host, void **handle, char *err,
                size_t err_size);
  int (*run)(void *handle, const arm_tensor *inputs, int32_t num_inputs, const arm_tensor *outputs, int32_t num_outputs,
             char *err, size_t err_size);
  void (*destroy)(void *handle);
} arm_external_api;

typedef const arm_external_api *(*arm_external_entry)(void);

#ifdef __cplusplus
}
#endif

#endif
