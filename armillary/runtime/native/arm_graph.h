/* The graph object, shared by its reader (arm_plan.c) and its runner (arm_graph.c). */
#ifndef ARM_GRAPH_H
#define ARM_GRAPH_H

#include <stdatomic.h>

#include "arm_internal.h"

typedef enum { ARM_NODE_INPUT, ARM_NODE_CALL, ARM_NODE_ALIAS } arm_node_kind;

typedef struct {
  arm_node_kind kind;
  char *name;
  const char *function;     /* "" for inputs, "__nop" for aliases */
  int32_t first_entry, num_outputs, num_inputs;
  int32_t *inputs;          /* entries */
  arm_bound bound;          /* calls only */
} arm_node;

typedef struct {
  arm_tensor tensor; /* its data pointer is filled in when handed out */
  int64_t shape[ARM_MAX_NDIM];
  int64_t bytes;
  int32_t storage;
} arm_entry;

/* One place of argument tables that points at a storage. */
typedef struct { int32_t node, arg, next; } arm_slot;

typedef struct {
  void *data, *owned;
  int64_t bytes, offset; /* offset < 0: not in the arena */
  int32_t first_slot, is_input, is_set, heads;
} arm_storage;

struct arm_graph {
  arm_module *module;
  arm_pool *pool;
  int max_threads;
  int32_t num_nodes, num_entries, num_storages, num_inputs, num_heads, num_slots;
  arm_node *nodes;
  arm_entry *entries;
  arm_storage *storages;
  arm_slot *slots;
  int32_t *inputs, *heads; /* nodes; entries */
  void **copy_out;         /* per head: where to copy the result after a run, or NULL */
  void *arena, *workspace;
  size_t memory;
  _Atomic int running;
};

/* Fill nodes, entries, storages, inputs and heads from graph JSON; memory and calls come later. */
int arm_plan_read(arm_graph *graph, const char *text, size_t size, arm_error *error);

#endif
