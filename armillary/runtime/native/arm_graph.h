/* The graph object, shared by its reader (arm_plan.c) and its runner (arm_graph.c). */
#ifndef ARM_GRAPH_H
#define ARM_GRAPH_H

#include <stdatomic.h>

#include "arm_device.h"

typedef enum {
  ARM_NODE_INPUT, ARM_NODE_CALL, ARM_NODE_ALIAS, ARM_NODE_IF, ARM_NODE_LOOP, ARM_NODE_YIELD, ARM_NODE_BIND, ARM_NODE_EQUAL
} arm_node_kind;

/* What a branch or loop says of the nodes after it: sizes of its regions; for loops, what is carried and collected. */
typedef struct {
  int32_t first, second, states, scans;
  int64_t trips; /* rows of the scans; -1: what their shapes say, or no bound */
} arm_control;

/* One of two extents that must be equal: its text, and whose axis it is. */
typedef struct { arm_extent extent; char *text, *of; } arm_side;

typedef struct {
  arm_node_kind kind;
  char *name;
  const char *function;     /* "" for inputs, "__nop" for aliases */
  int32_t first_entry, num_outputs, num_inputs;
  int32_t owner;            /* the branch or loop around the node, or -1 */
  arm_control control;
  int32_t is_choice;        /* an input that not every variant has */
  uint64_t stamp;           /* when an input was set last: counts upwards, 0 is never */
  int32_t *inputs;          /* entries */
  int32_t is_load;          /* runs when parameters are set, not in an inference */
  int32_t is_sized;         /* depends on sizes and parameters alone: runs when these have other values (arm_sizes.c) */
  arm_bound bound;          /* calls only, as all below */
  int32_t group_end;       /* where the calls end that run beside this one, the first of them: arm_concurrent.c */
  int32_t is_concurrent;        /* not the first of them */
  int64_t workspace;        /* where its own begins */
  int32_t device;           /* where it runs: of the graph's devices */
  int32_t size;             /* that a __bind gives its value */
  int32_t stage;            /* from which on its sizes are known: memory/arm_stages.c */
  arm_side *sides;          /* of an __equal: the two that it compares */
} arm_node;

/* A named size: graph.sizes and its value are of one number. */
typedef struct { int64_t low, high, step; } arm_size;

typedef struct {
  arm_tensor tensor; /* its data pointer is filled in when handed out */
  int64_t shape[ARM_MAX_NDIM];
  int64_t bytes;
  int32_t storage, stage;
  arm_extent *extents; /* by axis, where one is an expression over sizes; `shape` is for their present values */
} arm_entry;

/* One place of argument tables that points at a storage. */
typedef struct { int32_t node, arg, next; } arm_slot;

typedef struct {
  void *data, *owned;
  int32_t device;        /* where it lies: of the graph's devices */
  _Atomic int *users;    /* of `owned`, where other graphs may use it too (arm_share.c): nobody writes to it then */
  int64_t bytes, offset; /* offset < 0: not in the arena */
  int64_t room;          /* of `owned`, which grows with sizes */
  int32_t first, last;   /* steps in which it is alive, where sizes decide about its place */
  int32_t stage;         /* of which arena the offset is: memory/arm_stages.c */
  int64_t width;         /* of the image that holds it, in pixels of four numbers; 0: it is in a buffer */
  int32_t bits;          /* of a number of the image */
  int32_t first_slot, is_input, is_set, heads;
  int32_t is_state;                /* an input that a run writes: memory/arm_states.c */
  int32_t is_load;                 /* written by a load-time node */
  int32_t last_load;               /* the last load-time node that reads it, or -1 */
  int32_t is_kept;                 /* read in inferences, or with another storage: stays after loading */
  int32_t is_fresh, is_released;   /* set since the load-time nodes ran; given back after they did */
  int32_t feeds_sized;             /* a node that is_sized reads it */
  int32_t is_stored;               /* its values can be had again from where they are stored, so it may be given back */
} arm_storage;

/* Nodes [begin, end) with their inputs (positions in arg_nodes) and heads: what one run does. */
typedef struct { int32_t begin, end, first_head, num_heads, num_inputs, *inputs; } arm_variant;

#define ARM_MAX_GRAPH_DEVICES 4

/* A device of a graph, with the memory that its values and calls share; `status`: NULL where no call is checked there. */
typedef struct {
  arm_device device;
  void *arena, *workspace, *status;
  int64_t workspace_bytes, arena_bytes, workspace_room; /* needed; there */
} arm_graph_device;

/* What is known from a node on that reads a size from data (`__bind`); stage 0, what inputs say, has no node. `is_stale`:
 * shapes, places and calls are to be made anew when it is reached, also where the size keeps its value. */
typedef struct { int32_t node, is_stale; void *arena; int64_t bytes; } arm_stage;

struct arm_graph {
  arm_module *module;
  arm_graph_device devices[ARM_MAX_GRAPH_DEVICES]; /* the first: of all that the graph does not place elsewhere */
  int32_t num_devices;
  arm_pool *pool;
  int max_threads;
  int32_t num_nodes, num_entries, num_storages, num_inputs, num_heads, num_slots;
  arm_node *nodes;
  arm_entry *entries;
  arm_storage *storages;
  arm_slot *slots;
  int32_t *inputs, *heads; /* nodes; entries */
  arm_variant *variants;
  int32_t num_variants, active;
  uint64_t stamps;
  arm_size *bounds;         /* arm_sizes.c */
  arm_size_values sizes;    /* as they are bound */
  int64_t *new_sizes;       /* as the inputs give them */
  arm_stage *stages;        /* of which the first is not used; NULL: data says no size */
  int32_t *size_stages, num_stages;
  int32_t is_resized, is_unplaced; /* an input has another shape; binding its sizes has failed */
  int32_t has_new_sizes;   /* since the nodes that are is_sized ran, or parameters that they read */
  void **copy_out;         /* per head: where to copy the result after a run, or NULL */
  size_t memory;
  int32_t is_unchecked;       /* users gave memory to inputs: whether it overlaps what is written is not known yet */
  int32_t num_load, is_stale; /* load-time nodes; whether some have to run before the next inference */
  _Atomic int running;
};

/* Where the spans of a traced run go: arm_trace.c. Each thread has room for so many, and counts its own. */
typedef struct { _Alignas(128) int64_t count; } arm_noted;
typedef struct {
  arm_span *spans;
  int64_t room;
  double start;
  arm_noted *noted;
  int threads;
} arm_trace;
int arm_trace_open(arm_trace *trace, arm_span *spans, int64_t capacity, int threads, arm_error *error);
int64_t arm_trace_close(arm_trace *trace); /* how many there were, now side by side; more than capacity: not so */
int32_t arm_bounds_trace(const arm_bound *const *bounds, const int32_t *nodes, int count, arm_pool *pool, int max_threads,
                         arm_trace *trace, int *failed);

/* Times of nodes [begin, end), added up; `last` is when the latest node was done. With a trace, the spans of threads. */
typedef struct {
  double *seconds, last;
  int begin, end;
  arm_trace *trace;
  int is_watched; /* the device tells how long kernels took; otherwise the time until the next is done counts */
} arm_clock;

/* Run those of nodes [begin, end) that lie directly in `owner`'s region. */
int arm_nodes_run(arm_graph *graph, int begin, int end, int32_t owner, arm_clock *clock, arm_error *error);

/* Branches and loops: arm_control.c. */
int arm_control_kind(const char *function, arm_node_kind *kind); /* 0: a plain function */
int arm_control_read(const arm_json *json, int32_t attrs, arm_node *node, arm_error *error);
int arm_control_check(arm_graph *graph, int32_t stage, arm_error *error); /* stage: whose sizes were bound, -1: none; fills in `owner` */
int arm_control_run(arm_graph *graph, int32_t index, arm_clock *clock, arm_error *error);

/* Variants: arm_variants.c. */
int arm_variants_read(arm_graph *graph, const arm_json *json, arm_error *error);
void arm_variants_free(arm_graph *graph);
int arm_variants_uses(const arm_graph *graph, int index);

/* Sizes: arm_sizes.c. Check: whether a value may be an input's. Take: it is. Bind: before anything runs. */
int arm_sizes_read(arm_graph *graph, const arm_json *json, arm_error *error);
int arm_sizes_read_dim(const arm_graph *graph, const char *text, arm_entry *entry, int axis, arm_error *error);
int arm_sizes_read_lifetimes(arm_graph *graph, const arm_json *json, int32_t list, arm_error *error);
int arm_sizes_check(const arm_graph *graph, const arm_entry *entry, const char *what, const arm_tensor *value,
                    arm_error *error);
void arm_sizes_take(arm_graph *graph, arm_entry *entry, const arm_tensor *value);
int arm_sizes_place(arm_graph *graph, arm_error *error);
int arm_sizes_place_stage(arm_graph *graph, int32_t stage, arm_error *error); /* shapes, places, pointers, calls */
int arm_sizes_bind(arm_graph *graph, arm_error *error);
int arm_sizes_plan(arm_graph *graph, arm_error *error); /* nodes that are is_sized: what they read */
int arm_sizes_run(arm_graph *graph, arm_error *error);
void arm_sizes_free(arm_graph *graph);

/* Extents that must be equal: memory/arm_equal.c. Stage: of those outside of branches and loops. */
int arm_equal_read(const arm_graph *graph, const arm_json *json, int32_t attrs, arm_node *node, arm_error *error);
void arm_equal_free(arm_node *node);
int arm_equal_check(const arm_graph *graph, const arm_node *node, arm_error *error);
int arm_equal_check_stage(const arm_graph *graph, int32_t stage, arm_error *error);

/* Sizes that data says: memory/arm_stages.c. Plan: which stage everything belongs to. Run: a `__bind`. */
int arm_stages_plan(arm_graph *graph, arm_error *error);
int arm_stages_run(arm_graph *graph, int32_t node, arm_error *error);
void arm_stages_stale(arm_graph *graph, int32_t after);
void arm_stages_free(arm_graph *graph);
static inline char *arm_arena_of(const arm_graph *graph, const arm_storage *storage) {
  return storage->stage > 0 ? graph->stages[storage->stage].arena : graph->devices[storage->device].arena;
}

/* States: memory/arm_states.c. Begin: a state that nobody set is zero. */
int arm_states_read(arm_graph *graph, const arm_json *json, int32_t list, arm_error *error);
int arm_states_begin(arm_graph *graph, int32_t storage, arm_error *error);

/* Fill nodes, entries, storages, inputs and heads from graph JSON; memory and calls come later. */
int arm_plan_read(arm_graph *graph, const char *text, size_t size, arm_error *error);

/* arm_graph.c */
void *arm_storage_allocate(const arm_graph *graph, const arm_storage *storage, arm_error *error);
void arm_graph_point(arm_graph *graph, int32_t storage, void *data);
int arm_graph_own(arm_graph *graph, int32_t storage, arm_error *error);
int arm_graph_reserve(arm_graph *graph, int32_t device, int64_t bytes, arm_error *error); /* room in an arena */
int arm_graph_resize_calls(arm_graph *graph, int32_t stage, arm_error *error);
int arm_graph_check_alias(const arm_graph *graph, const arm_node *node, arm_error *error);
int arm_graph_make_workspaces(arm_graph *graph, arm_error *error);
arm_tensor arm_graph_entry_tensor(const arm_graph *graph, int32_t entry);
int arm_graph_check_value(const arm_graph *graph, const arm_entry *entry, const char *what, const arm_tensor *value,
                          arm_error *error);
void arm_graph_was_set(arm_graph *graph, int32_t storage);
int32_t arm_graph_input_entry(const arm_graph *graph, int index, arm_error *error); /* -1: there is no such input */

/* memory/arm_zero_copy.c: -1 with a message if what the present variant writes to a user's memory overlaps what else it uses. */
int arm_places_check(arm_graph *graph, arm_error *error);
/* The device of a storage. */
static inline arm_device arm_storage_device(const arm_graph *graph, const arm_storage *storage) {
  return graph->devices[storage->device].device;
}
/* The number of the graph's device of a type; opened (the first of its type) and added where it is missing. */
int32_t arm_graph_device_of(arm_graph *graph, int32_t type, arm_error *error);
int arm_graph_copy_alias(const arm_graph *graph, const arm_node *node, arm_error *error);

/* memory/arm_share.c: memory of storages. Let go of what is owned; the last user frees it. */
void arm_storage_drop(arm_device device, arm_storage *storage);
/* Before somebody writes: if others use the memory, forget it, so that new memory is taken; `copy` keeps the values. */
int arm_storage_unshare(arm_graph *graph, int32_t storage, int copy, arm_error *error);

/* arm_concurrent.c: calls that run together. Plan: find them, and the bytes of workspace that calls take on each device.
 * Place: give each its own. Run: those of nodes [begin, end). */
void arm_concurrent_plan(arm_graph *graph);
void arm_concurrent_place(arm_graph *graph);
int arm_concurrent_run(arm_graph *graph, int32_t begin, int32_t end, arm_clock *clock, arm_error *error);

/* arm_status.c: give calls on devices that are checked where to say what they refuse. End: of a run that ended in `status`;
 * what was refused is an error, and forgotten. */
int arm_graph_make_statuses(arm_graph *graph, arm_error *error);
int arm_graph_end_run(arm_graph *graph, int status, arm_error *error);

/* arm_load.c: load-time nodes. After arm_plan_read, find what they read and what may go after they ran. */
int arm_load_plan(arm_graph *graph, arm_error *error);
/* Run the load-time nodes whose inputs are all set and some of them fresh; `all`: a missing input is an error. */
/* The message of a kernel's error code, with the name of its node. */
int arm_node_failed(const arm_node *node, int32_t code, arm_error *error);
int arm_load_expand(arm_graph *graph, int all, arm_error *error);

#endif
