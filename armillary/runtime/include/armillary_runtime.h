/* The public interface of the native runtime: thread pool, modules of compiled kernels, prepared calls, graphs, params.
 *
 * In: a shared library (or a descriptor and a symbol resolver), graph JSON, a params blob, DLPack tensors.
 * Out: results in caller or runtime memory. Invariant: a function that can fail returns 0 or -1 and, on -1, writes one
 * line of text to `err` (of `err_size` bytes, always terminated); nothing aborts, and no call allocates while a graph runs.
 * Thread safety: a module and a pool may be used by many threads; a call or graph object by one thread at a time.
 */
#ifndef ARMILLARY_RUNTIME_H
#define ARMILLARY_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define ARM_ABI_VERSION 1
#define ARM_VERSION "0.1.0"
#define ARM_MAX_NDIM 32

#if defined(__GNUC__)
#define ARM_API __attribute__((visibility("default")))
#else
#define ARM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's tensor, field by field (any DLPack producer's DLTensor can be passed). */
typedef struct { int32_t type, id; } arm_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } arm_dtype;
typedef struct {
  void *data;
  arm_device device;
  int32_t ndim;
  arm_dtype dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL means dense */
  uint64_t byte_offset;
} arm_tensor;

/* Kernels, as the compiler emits them: iterations [begin, end) of one phase, on behalf of thread `thread`. */
typedef int32_t (*arm_phase_fn)(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread);
typedef int64_t (*arm_extent_fn)(const int64_t *vars);
/* A function that kernels call by name. `kinds` has a letter for each argument and one for the result: i integer, f float
 * (the bits of a double), s text (an address), h address, t tensor, which takes 3 + 2 * rank slots: address, rank,
 * dtype (code + 256 * bits), sizes, strides in elements; v no result. `result` holds what the call gives if the function
 * says nothing. Not 0, and a line of text in `err`, when it fails. */
typedef int32_t (*arm_packed_fn)(const char *name, const char *kinds, const int64_t *slots, int64_t *result, char *err,
                                 size_t err_size);
typedef void *(*arm_resolver)(void *context, const char *symbol);

typedef struct arm_pool arm_pool;
typedef struct arm_module arm_module;
typedef struct arm_call arm_call;
typedef struct arm_graph arm_graph;
typedef struct arm_weights arm_weights;
typedef struct arm_package arm_package;

ARM_API int arm_abi_version(void);
ARM_API const char *arm_version(void); /* of the library, as ARM_VERSION is of this header */

/* Who supplies functions by name, for all kernels of this process; NULL: nobody. */
ARM_API void arm_packed_set(arm_packed_fn function);

/* Pool: `threads` includes the caller. bind != 0 pins each worker to one allowed CPU. */
ARM_API arm_pool *arm_pool_create(int threads, int bind, char *err, size_t err_size);
ARM_API int arm_pool_configure(arm_pool *pool, int threads, int bind, char *err, size_t err_size);
ARM_API int arm_pool_threads(const arm_pool *pool);
/* Around what a thread does for a run, its waiting included: loops of other threads leave it a CPU. Runs of graphs do so
 * themselves; a service whose threads also prepare inputs does well to say it for all of that. Calls may be nested. */
ARM_API void arm_pool_enter(arm_pool *pool);
ARM_API void arm_pool_leave(arm_pool *pool);
ARM_API int arm_cpu_count(void); /* the CPUs that this process may use */
ARM_API void arm_pool_destroy(arm_pool *pool);
/* Run fn over [0, extent) on at most max_threads threads; returns the first non-zero code. Inline if the pool is busy. */
ARM_API int32_t arm_pool_run(arm_pool *pool, arm_phase_fn fn, void *const *data, const int64_t *vars, int64_t extent,
                             int max_threads);
/* Run loops one after another, each as arm_pool_run does (without a pool: in this thread), up to the first that gives a
 * code other than 0: that is the result, and `failed` its number. */
typedef struct { arm_phase_fn run; void *const *data; const int64_t *vars; int64_t extent; } arm_loop;
ARM_API int32_t arm_pool_run_steps(arm_pool *pool, const arm_loop *steps, int count, int max_threads, int *failed);

/* Devices other than the CPU, by DLPack number (4: OpenCL). 0: it can be used. Descriptions are lines of name and value. */
ARM_API int arm_device_open(arm_device device, char *err, size_t err_size);
ARM_API int arm_device_describe(arm_device device, char *out, size_t size, char *err, size_t err_size);
ARM_API void *arm_device_allocate(arm_device device, size_t bytes, char *err, size_t err_size);
ARM_API void arm_device_release(arm_device device, void *memory);
ARM_API int arm_device_synchronize(arm_device device, char *err, size_t err_size);
/* From the first call on (`on`) kernels are timed by the device's own clock, until the second (not `on`), which tells the
 * seconds of all of them. -1: the device has no such clock, as the CPU. */
ARM_API int arm_device_time(arm_device device, int on, double *seconds, char *err, size_t err_size);
/* Where built programs are kept; "": nowhere. 1: not there, as it is no folder that this user alone may write to. */
ARM_API int arm_opencl_keep_programs(const char *folder);
ARM_API void arm_opencl_limit_time(double seconds); /* for kernels between two waits; 0: none, below 0: the usual one */
/* How programs are built on a device of that name, and the release of a Mali's driver (-1: the text has none). */
ARM_API const char *arm_opencl_options(const char *device, const char *extensions, const char *source);
ARM_API int arm_opencl_mali_release(const char *version);
ARM_API double arm_opencl_program_seconds(void); /* what building programs, or loading those that were kept, took so far */

/* Modules are reference counted; graphs and calls retain theirs. */
ARM_API int arm_module_open(const char *path, arm_module **out, char *err, size_t err_size);
ARM_API int arm_module_create(const char *descriptor, size_t size, arm_resolver resolve, void *context,
                              arm_module **out, char *err, size_t err_size);
/* Where the package that the module came from lies; libraries of offloaded functions may lie beside it (arm_external.h).
 * Folders with colons between them, where such libraries are looked for first. */
ARM_API int arm_module_set_folder(arm_module *module, const char *folder, char *err, size_t err_size);
ARM_API int arm_external_path(const char *folders, char *err, size_t err_size);
ARM_API void arm_module_release(arm_module *module);
ARM_API int arm_module_count(const arm_module *module);
ARM_API int arm_module_find(const arm_module *module, const char *name); /* -1: no such function */
ARM_API const char *arm_module_name(const arm_module *module, int function);
ARM_API const char *arm_module_target(const arm_module *module);
ARM_API const char *arm_module_descriptor(const arm_module *module, size_t *size);
ARM_API const char *arm_module_graph_json(const arm_module *module, size_t *size); /* NULL if there is none */
/* The checksum of the parameters in a library, where it records one: -1 with a message if they are damaged. */
ARM_API int arm_module_check_params(const arm_module *module, char *err, size_t err_size);
ARM_API const void *arm_module_params(const arm_module *module, size_t *size);

/* The system library: what objects of builds with "-system-lib" hold that are linked into this process. Each registers
 * a part when it is loaded; target, device_code, names and rows are JSON, needs the
 * members of a list. A module is of those that are there when it is made,
 * with the graph and parameters of the network of that name (NULL: the only one, if there is one). */
typedef struct { const char *name, *row; } arm_system_function;
typedef struct { const char *name; const void *address; } arm_system_symbol;
typedef struct arm_system_part {
  struct arm_system_part *next;
  const char *target, *needs, *device_code, *network, *graph_json;
  const void *params;
  const arm_system_function *functions;
  const arm_system_symbol *symbols;
  uint64_t params_size, num_functions, num_symbols, is_network; /* the last: its kernels' names say what they compute */
} arm_system_part;
ARM_API void arm_system_add(arm_system_part *part);
ARM_API void arm_system_remove(arm_system_part *part);
ARM_API const char *arm_system_network(int index); /* NULL: there are not so many */
ARM_API int arm_module_system(const char *network, arm_module **out, char *err, size_t err_size);

/* A prepared call: arguments checked, symbolic dimensions bound, workspaces allocated. */
ARM_API int arm_call_create(arm_module *module, int function, const arm_tensor *args, int num_args,
                            const int64_t *scalars, int num_scalars, arm_pool *pool, arm_call **out, char *err,
                            size_t err_size);
ARM_API int arm_call_run(arm_call *call, char *err, size_t err_size);
ARM_API int arm_call_time(arm_call *call, int64_t number, double *seconds, char *err, size_t err_size);
ARM_API void arm_call_destroy(arm_call *call);

/* Graphs. Tensors handed out are views that live as long as the graph. */
ARM_API int arm_graph_create(const char *json, size_t size, arm_module *module, arm_pool *pool, arm_graph **out,
                             char *err, size_t err_size);
ARM_API int arm_graph_create_on(const char *json, size_t size, arm_module *module, arm_device device, arm_pool *pool,
                                arm_graph **out, char *err, size_t err_size);
ARM_API void arm_graph_destroy(arm_graph *graph);
ARM_API int arm_graph_num_inputs(const arm_graph *graph);
ARM_API int arm_graph_num_outputs(const arm_graph *graph);
ARM_API int arm_graph_num_nodes(const arm_graph *graph);
/* Over several devices of different types; those that the graph needs beside them are the first of their type. */
ARM_API int arm_graph_create_over(const char *json, size_t size, arm_module *module, const arm_device *devices,
                                  int num_devices, arm_pool *pool, arm_graph **out, char *err, size_t err_size);
ARM_API size_t arm_graph_memory(const arm_graph *graph); /* bytes of arena and workspaces */
ARM_API const char *arm_graph_input_name(const arm_graph *graph, int index);
ARM_API int arm_graph_input_index(const arm_graph *graph, const char *name); /* -1: no such input */
ARM_API const char *arm_graph_node_name(const arm_graph *graph, int node);
ARM_API const char *arm_graph_node_function(const arm_graph *graph, int node); /* "" for inputs */
ARM_API int arm_graph_node_owner(const arm_graph *graph, int node); /* the branch or loop around it; -1: none */
ARM_API int arm_graph_node_outputs(const arm_graph *graph, int node);
ARM_API int arm_graph_input_info(const arm_graph *graph, int index, arm_tensor *out, char *err, size_t err_size);
/* An input's memory, to be written in place: counts as setting it (to zeros, if it was not set before). */
ARM_API int arm_graph_input(arm_graph *graph, int index, arm_tensor *out, char *err, size_t err_size);
ARM_API int arm_graph_output(arm_graph *graph, int index, arm_tensor *out, char *err, size_t err_size);
ARM_API int arm_graph_node_output(arm_graph *graph, int node, int index, arm_tensor *out, char *err, size_t err_size);
ARM_API int arm_graph_set_input(arm_graph *graph, int index, const arm_tensor *value, char *err, size_t err_size);
ARM_API int arm_graph_set_input_zero_copy(arm_graph *graph, int index, const arm_tensor *value, char *err,
                                          size_t err_size);
ARM_API int arm_graph_set_output_zero_copy(arm_graph *graph, int index, const arm_tensor *value, char *err,
                                           size_t err_size);
/* Set every input that the blob names; returns how many through `count`. Other names are ignored. */
ARM_API int arm_graph_load_params(arm_graph *graph, const void *blob, size_t size, int *count, char *err,
                                  size_t err_size);
/* The same from a file: the blob lies at `offset`. Each array is read to where it stays, what depends on parameters alone
 * is computed as soon as it can be, and what only that needed is given back. `crc` receives the CRC-32 of the blob. */
ARM_API int arm_graph_read_params(arm_graph *graph, int file, int64_t offset, int64_t size, int *count, uint32_t *crc,
                                  char *err, size_t err_size);
/* The same from the library that the module was opened from; its pages are let go after reading. */
/* What a graph has loaded, for others of the same JSON to take (adopt) instead of loading it: arm_share.c. NULL: it has
 * not loaded everything, or memory ran out. Release it when no other graph is to come. */
ARM_API arm_weights *arm_graph_publish(arm_graph *graph);
ARM_API int arm_graph_adopt(arm_graph *graph, const arm_weights *weights, char *err, size_t err_size);
ARM_API void arm_weights_release(arm_weights *weights);
ARM_API int arm_graph_load_embedded(arm_graph *graph, int *count, char *err, size_t err_size);
/* Compute now what depends on parameters alone (the next run would do it). */
ARM_API int arm_graph_load(arm_graph *graph, char *err, size_t err_size);
/* Say that the values just given to an input are stored elsewhere: it may be given back when it was expanded. */
ARM_API int arm_graph_input_stored(arm_graph *graph, int index);
/* 1 if the values of an input were given back, because only load-time nodes read them; -1: no such input. */
ARM_API int arm_graph_input_is_set(const arm_graph *graph, int index); /* -1: no such input */
/* Whether the caller may set it by writing to its memory: it is the graph's own, no load-time node reads it, and it is
 * not so large that all threads copy it. */
ARM_API int arm_graph_input_is_plain(const arm_graph *graph, int index);
ARM_API int arm_graph_input_released(const arm_graph *graph, int index);
ARM_API int arm_graph_node_is_load(const arm_graph *graph, int node); /* 1: runs when parameters are set */
/* Named sizes, which inputs give when they are set; with other values, results lie elsewhere after the next run, and
 * memory that a user gave for them is forgotten. */
ARM_API int arm_graph_num_sizes(const arm_graph *graph);
ARM_API const char *arm_graph_size_name(const arm_graph *graph, int index);
/* Variants share everything but inputs, nodes and outputs. Picking finds the input of that name and shape, and makes the
 * variant current that takes it together with most of what was set last; returns the input's index or -1. */
ARM_API int arm_graph_num_variants(const arm_graph *graph);
ARM_API int arm_graph_variant(const arm_graph *graph);
ARM_API int arm_graph_set_variant(arm_graph *graph, int variant, char *err, size_t err_size);
ARM_API int arm_graph_pick(arm_graph *graph, const char *name, const arm_tensor *value, char *err, size_t err_size);
ARM_API int arm_graph_input_used(const arm_graph *graph, int index); /* by the current variant; parameters always are */
/* States: inputs that a run writes, zero at first; read and set as inputs are. -1: no such input. */
ARM_API int arm_graph_input_is_state(const arm_graph *graph, int index);
ARM_API int arm_graph_reset_states(arm_graph *graph, char *err, size_t err_size); /* to zero */
ARM_API int arm_graph_run(arm_graph *graph, char *err, size_t err_size);
/* Run nodes [begin, end); seconds, if not NULL, receives end - begin durations. */
ARM_API int arm_graph_run_range(arm_graph *graph, int begin, int end, double *seconds, char *err, size_t err_size);
/* Run once and note when each thread was inside kernels: rows of `spans`, times in seconds since the start, in no order.
 * `count` receives how many there were; those past `capacity` are not kept. `seconds` receives the time of the run. */
#define ARM_WHOLE_PHASE (-1)
typedef struct {
  double begin, end;
  int32_t node, phase, thread; /* thread ARM_WHOLE_PHASE: the phase as the caller sees it, with fork and join */
  int32_t rest; /* of a phase: those that ran side by side with it and come after it, as its caller sees them */
} arm_span;
ARM_API int arm_graph_trace(arm_graph *graph, arm_span *spans, int64_t capacity, int64_t *count, double *seconds,
                            char *err, size_t err_size);
ARM_API int arm_graph_time(arm_graph *graph, int64_t number, double *seconds, char *err, size_t err_size);

/* Packages, as `armc compile` and export_library write them: a .tar, the folder that it unpacks to, or one .so that holds
 * everything. Graphs that are made of one package on the same devices have the parameters in memory once; they live on
 * when the package is closed. Any thread may make them. */
ARM_API int arm_package_open(const char *path, arm_package **out, char *err, size_t err_size);
/* Of the system library: arm_module_system says of what. */
ARM_API int arm_package_system(const char *network, arm_package **out, char *err, size_t err_size);
ARM_API void arm_package_close(arm_package *package);
ARM_API arm_module *arm_package_module(const arm_package *package); /* the package's: retained as long as it is open */
ARM_API const char *arm_package_graph_json(const arm_package *package, size_t *size); /* NULL: functions only */
ARM_API int arm_package_create_graph(arm_package *package, const arm_device *devices, int num_devices, arm_pool *pool,
                                     arm_graph **out, char *err, size_t err_size);

/* Copy a tensor into another of the same dtype and element count (strided sources are gathered). */
ARM_API int arm_tensor_copy(const arm_tensor *src, const arm_tensor *dst, char *err, size_t err_size);
ARM_API const char *arm_dtype_name(arm_dtype dtype); /* "float32"; "?" when it is unknown */
ARM_API uint32_t arm_crc32(uint32_t crc, const void *data, size_t size); /* start with 0; as zlib's */
ARM_API void *arm_alloc(size_t size); /* 64-byte aligned; 2 MiB pages asked for when large; NULL on failure */
ARM_API void arm_free(void *pointer);

#ifdef __cplusplus
}
#endif

#endif
