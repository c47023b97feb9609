/* What the runtime's own files share: error text, checked sizes, JSON, function tables. Not installed for users. */
#ifndef ARM_INTERNAL_H
#define ARM_INTERNAL_H

#include "armillary_runtime.h"

#define ARM_ALIGN 64
#define ARM_MAX_BYTES ((int64_t)1 << (sizeof(size_t) > 4 ? 42 : 31)) /* half of what 32 bits address */
#define ARM_MAX_ITEMS ((int64_t)1 << 20)

#if defined(__GNUC__)
#define ARM_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define ARM_PRINTF(a, b)
#endif

typedef struct { char *text; size_t size; } arm_error;

/* Write the message and return -1, so that `return arm_fail(...)` reads well. */
int arm_fail(arm_error *error, const char *format, ...) ARM_PRINTF(2, 3);
int arm_mul(int64_t a, int64_t b, int64_t *out);  /* -1 on overflow or a negative factor */
void *arm_zalloc(size_t count, size_t size);      /* calloc that treats 0 as 1 */
char *arm_strdup(const char *text, size_t size);
double arm_now(void);                             /* monotonic seconds */
int arm_cpu_lacks(const char *feature);           /* 1: compiled code that uses it cannot run here */

/* dtype */
int arm_dtype_parse(const char *name, arm_dtype *out); /* -1: unknown */
int arm_dtype_equal(arm_dtype a, arm_dtype b);         /* bool is one type, however coded */
int64_t arm_dtype_bytes(arm_dtype dtype);
int arm_tensor_bytes(const int64_t *shape, int32_t ndim, arm_dtype dtype, int64_t *out); /* -1: absurd */
int arm_tensor_dense(const arm_tensor *tensor);
void arm_shape_text(char *out, size_t size, const int64_t *shape, int32_t ndim);
void *arm_tensor_data(const arm_tensor *tensor);
int arm_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes); /* whether they share a byte */

/* JSON: a flat table of values; children are chained. Index 0 is the root; -1 means none. */
typedef enum { ARM_NULL, ARM_BOOL, ARM_INT, ARM_REAL, ARM_TEXT, ARM_LIST, ARM_MAP } arm_json_kind;
typedef struct {
  arm_json_kind kind;
  int32_t first, next, count;
  const char *key;  /* in a map */
  const char *text; /* ARM_TEXT, terminated, without inner NUL */
  int64_t number;   /* ARM_INT, ARM_BOOL */
} arm_json_value;
typedef struct { arm_json_value *values; int32_t count, capacity; char *strings; } arm_json;

int arm_json_parse(const char *text, size_t size, arm_json *out, arm_error *error);
void arm_json_free(arm_json *json);
int32_t arm_json_get(const arm_json *json, int32_t map, const char *key);
/* Checked access: -1 with a message that names `where` and `key`. */
int32_t arm_json_need(const arm_json *json, int32_t map, const char *key, arm_json_kind kind, const char *where,
                      arm_error *error);
int arm_json_int(const arm_json *json, int32_t value, int64_t low, int64_t high, int64_t *out);

/* Loops of a job: none depends on another. `failed`: the first that gave a code other than 0, which is the result. */
#define ARM_MAX_LOOPS 8
int32_t arm_pool_run_loops(arm_pool *pool, const arm_loop *loops, int count, int max_threads, int *failed);

/* Extents (arm_extent.c): expressions over named sizes, in postfix code; count 0: none. Value: -1 where it is negative, or
 * beyond ARM_MAX_BYTES. */
typedef struct { int32_t count; int64_t *code; } arm_extent;
int arm_extent_parse(const char *text, char *const *names, int num_names, arm_extent *out, arm_error *error);
int64_t arm_extent_value(const arm_extent *extent, const int64_t *values);
void arm_extent_free(arm_extent *extent);
int arm_extent_reads(const arm_extent *extent, int32_t name); /* whether it is among its names */

/* Values of named sizes; a var of a function that has the name of one is that size. */
typedef struct { char **names; int64_t *values; int32_t count; } arm_size_values;

/* Functions that kernels call by name (arm_packed.c): what stands behind the workspaces in a kernel's data. */
#define ARM_PACKED_FAILED (-5)
int32_t arm_packed_call(const char *name, const char *kinds, const int64_t *slots, int64_t *result);
int arm_packed_failed(const char *where, arm_error *error);

/* Functions */
typedef struct {
  char *name;
  arm_dtype dtype;
  int32_t ndim, is_out;
  int64_t shape[ARM_MAX_NDIM];  /* >= 0: fixed; < 0: var number -(v + 1), and behind the vars the function's extents */
} arm_arg;
typedef struct { arm_phase_fn run; int64_t extent; arm_extent_fn extent_of; } arm_phase;
typedef struct {
  char *name;
  arm_arg *args;
  arm_phase *phases;
  char **vars;
  char **asserts;
  int32_t num_args, num_phases, num_vars, num_asserts;
  arm_extent *extents, workspace_of, thread_workspace_of; /* over the vars */
  int32_t num_extents;
  int64_t workspace, thread_workspace; /* where they are numbers */
  int64_t may_overlap; /* what it writes, and other arguments */
  char *kind, *source;  /* of an offloaded function; NULL for one with phases */
  const char *folder;   /* where its package lies, or NULL */
  size_t source_size;
  int32_t num_constants; /* of the library: the inputs before those of the own graph */
  char *own_graph;       /* JSON of our own kernels for it, or NULL; its parameters are the last inputs */
  size_t own_graph_size;
  int32_t num_own;
  arm_module *module;
  int32_t external_device; /* DLPack type of the device that an offloaded function runs on */
  struct arm_device_code *code; /* NULL: phases of the CPU; else launches on a device: arm_device.h */
  struct arm_launch *launches;
  int32_t num_launches;
} arm_function;

/* Offloaded functions (arm_external.c): the state of one bound call, made of arguments that were checked. Run: 0, or a code
 * whose text arm_offload_failed gives. Stale: values of its constants changed. */
#define ARM_MAX_KIND 63
typedef struct arm_offload arm_offload;
int arm_offload_read(const arm_json *json, int32_t row, const char *where, arm_function *f, arm_error *error);
arm_offload *arm_offload_bind(const arm_function *f, const arm_tensor *args, arm_error *error);
int32_t arm_offload_run(arm_offload *call, void *const *data, arm_pool *pool, int threads);
int arm_offload_keeps(const arm_offload *call, int32_t argument); /* whether it is a constant */
void arm_offload_stale(arm_offload *call);
int arm_offload_failed(const arm_offload *call, arm_error *error);
void arm_offload_free(arm_offload *call);

const arm_function *arm_module_function(const arm_module *module, int index);
void arm_module_retain(arm_module *module);
void arm_module_set_network(arm_module *module, const char *graph_json, const void *params, size_t params_size); /* borrowed */
int arm_functions_read(const arm_json *json, arm_resolver resolve, void *context, struct arm_device_code *code,
                       arm_function **out, int *count, arm_error *error);
void arm_functions_free(arm_function *functions, int count);

/* The bound state of one call; `extents` has one row per phase. Memory belongs to whoever set it up. */
typedef struct {
  const arm_function *function;
  void **data;
  int64_t *vars, *extents;
  int64_t workspace, thread_workspace; /* bytes, the second for each thread; it stands behind the vars, too */
  arm_offload *offload; /* of an offloaded function, which has no phases and runs alone */
  struct arm_launcher *launcher; /* of a device's function, with the bytes of its tensors */
  int64_t *bytes;
  int64_t refused; /* what a device's function did not take: arm_status.c */
} arm_bound;
int arm_bind(const arm_function *function, const arm_tensor *args, int num_args, const int64_t *scalars,
             int num_scalars, const arm_size_values *sizes, arm_bound *out, arm_error *error);
/* Sizes have other values: what depends on them is bound anew; memory of the arguments is given elsewhere. */
int arm_bound_resize(arm_bound *bound, const arm_tensor *args, const arm_size_values *sizes, arm_error *error);
void arm_unbind(arm_bound *bound);
/* Run calls side by side that do not depend on one another: the k-th phases of all, then the next; up to ARM_MAX_LOOPS.
 * 0, or the code of the call `failed`. A step gives the loops of the k-th phases and whose they are; 0: there are none.
 * Loops of few iterations come first: these are long, and threads that wait for the last of them have the others to do. */
int arm_bounds_step(const arm_bound *const *bounds, int count, int k, arm_loop *loops, int *owners);
int32_t arm_bounds_run(const arm_bound *const *bounds, int count, arm_pool *pool, int max_threads, int *failed);
int32_t arm_bound_run(const arm_bound *bound, arm_pool *pool, int max_threads);
int arm_bound_failed(const arm_bound *bound, int32_t code, arm_error *error);

/* Params */
uint32_t arm_crc32_join(uint32_t first, uint32_t second, size_t second_size); /* the sum of one text and the next */
typedef int (*arm_param_visit)(void *context, const char *name, const arm_tensor *value, arm_error *error);
int arm_params_read(const void *blob, size_t size, arm_param_visit visit, void *context, arm_error *error);
#define ARM_PARAMS_MAGIC UINT64_C(0xF7E58D4F05049CB7)
#define ARM_PARAM_HEAD 32
int arm_param_head(const unsigned char *head, int32_t *ndim, arm_dtype *dtype); /* -1: damaged, or an unknown type */
/* Where to put the values of an array (NULL: nowhere), and that they are there. */
typedef int (*arm_param_place)(void *context, const char *name, const arm_tensor *type, void **where, arm_error *error);
typedef int (*arm_param_placed)(void *context, arm_error *error);
typedef struct { int is_known; uint32_t crc; } arm_params_sum;
/* Checksums at the end of a library: -1 with a message if they do not fit. Those of its parameters are checked when read. */
int arm_sums_check(const char *path, int file, arm_params_sum *params, arm_error *error);
int arm_params_sum_check(const arm_params_sum *wanted, uint32_t crc, arm_error *error);
const arm_params_sum *arm_module_params_sum(const arm_module *module);
int arm_params_stream(int file, int64_t offset, uint64_t size, arm_param_place place, arm_param_placed placed,
                      void *context, uint32_t *crc, arm_error *error);

#endif
