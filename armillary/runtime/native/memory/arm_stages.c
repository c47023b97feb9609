/* Sizes that data says: what is known only once a part of the graph has run.
 *
 * In: nodes that call `__bind`; each reads one integer (int64, one element) and gives it to a named size. Out: for each a
 * stage: what has the size in its shape gets shape, place and bound call when the node runs, in an arena of the stage.
 * An entry or a call of several sizes belongs to the stage of the last of them. Invariant: nothing of a stage is alive
 * before its node has run, so its arena may grow there; what reads a size stands behind its node, in the same region or
 * one inside it; while a size keeps its value, and all before it do, nothing is done.
 */
#include <stdlib.h>
#include <string.h>

#include "../arm_graph.h"

/* ---- planning ---- */

static int check_bind(const arm_graph *g, const arm_node *node, arm_error *error) {
  static const arm_dtype number = {0, 64, 1};
  const arm_entry *count = &g->entries[node->inputs[0]];
  if (g->num_devices > 1) return arm_fail(error, "graph: %s: data says no sizes in a graph over several devices", node->name);
  if (count->extents != NULL || count->bytes != 8 || !arm_dtype_equal(count->tensor.dtype, number))
    return arm_fail(error, "graph: node %s: a __bind reads one number, int64", node->name);
  if (g->size_stages[node->size] > 0)
    return arm_fail(error, "graph: node %s: the size %s has its value already", node->name, g->sizes.names[node->size]);
  return 0;
}

static int number_stages(arm_graph *g, arm_error *error) {
  int32_t count = 0;
  for (int32_t i = 0; i < g->num_nodes; i++) count += g->nodes[i].kind == ARM_NODE_BIND;
  if (count == 0) return 0;
  g->stages = arm_zalloc((size_t)count + 1, sizeof *g->stages);
  g->size_stages = arm_zalloc((size_t)g->sizes.count, sizeof *g->size_stages);
  if (g->stages == NULL || g->size_stages == NULL) return arm_fail(error, "graph: out of memory");
  for (int32_t i = 0; i < g->num_nodes; i++) {
    arm_node *node = &g->nodes[i];
    if (node->kind != ARM_NODE_BIND) continue;
    if (check_bind(g, node, error) != 0) return -1;
    node->stage = ++g->num_stages;
    g->stages[node->stage] = (arm_stage){i, 1, NULL, 0};
    g->size_stages[node->size] = node->stage;
  }
  return 0;
}

/* Whether a node that reads sizes of a stage runs only after the stage's own node did. */
static int comes_after(const arm_graph *g, int32_t index, int32_t stage) {
  int32_t from = g->stages[stage].node, owner = g->nodes[index].owner;
  if (index <= from) return 0;
  while (owner >= 0 && owner != g->nodes[from].owner) owner = g->nodes[owner].owner;
  return owner == g->nodes[from].owner;
}

static int entry_reads(const arm_entry *entry, int32_t size) {
  for (int axis = 0; entry->extents != NULL && axis < entry->tensor.ndim; axis++)
    if (arm_extent_reads(&entry->extents[axis], size)) return 1;
  return 0;
}

/* Whether a node has a size in the shape of what it reads or gives, or among the variables of its function. */
static int node_reads(const arm_graph *g, const arm_node *node, int32_t size) {
  for (int32_t k = 0; k < node->num_inputs; k++)
    if (entry_reads(&g->entries[node->inputs[k]], size)) return 1;
  for (int32_t k = 0; k < node->num_outputs; k++)
    if (entry_reads(&g->entries[node->first_entry + k], size)) return 1;
  if (node->kind == ARM_NODE_EQUAL)
    return arm_extent_reads(&node->sides[0].extent, size) || arm_extent_reads(&node->sides[1].extent, size);
  if (node->kind != ARM_NODE_CALL) return 0;
  const arm_function *f = arm_module_function(g->module, arm_module_find(g->module, node->function));
  for (int32_t v = 0; v < f->num_vars; v++)
    if (strcmp(f->vars[v], g->sizes.names[size]) == 0) return 1;
  return 0;
}

static int plan_node(arm_graph *g, int32_t index, arm_error *error) {
  arm_node *node = &g->nodes[index];
  for (int32_t k = 1; k <= g->num_stages && node->kind != ARM_NODE_BIND; k++) {
    const arm_node *from = &g->nodes[g->stages[k].node];
    if (!node_reads(g, node, from->size)) continue;
    if (!comes_after(g, index, k))
      return arm_fail(error, "graph: node %s has the size %s, which is known only after node %s", node->name,
                      g->sizes.names[from->size], from->name);
    node->stage = k;
  }
  return 0;
}

int arm_stages_plan(arm_graph *g, arm_error *error) {
  if (number_stages(g, error) != 0) return -1;
  for (int32_t s = 0; s < g->num_storages; s++) g->storages[s].stage = -1;
  for (int32_t i = 0; i < g->num_entries; i++) { /* the first entry of a storage is what makes it; others are views */
    arm_entry *entry = &g->entries[i];
    for (int axis = 0; g->num_stages > 0 && entry->extents != NULL && axis < entry->tensor.ndim; axis++)
      for (int32_t k = entry->stage + 1; k <= g->num_stages; k++)
        if (arm_extent_reads(&entry->extents[axis], g->nodes[g->stages[k].node].size)) entry->stage = k;
    if (g->storages[entry->storage].stage < 0) g->storages[entry->storage].stage = entry->stage;
  }
  for (int32_t i = 0; i < g->num_nodes && g->num_stages > 0; i++)
    if (plan_node(g, i, error) != 0) return -1;
  return 0;
}

void arm_stages_free(arm_graph *g) {
  for (int32_t k = 1; k <= g->num_stages; k++) arm_memory_release(g->devices[0].device, g->stages[k].arena);
  free(g->stages);
  free(g->size_stages);
}

/* ---- calls of a stage ---- */

/* The tensors of a call, as they are now: see bind_node. */
static void call_tensors(const arm_graph *g, const arm_node *node, arm_tensor *args) {
  const arm_function *f = node->bound.function;
  for (int32_t k = 0, ins = 0, outs = 0; k < f->num_args; k++)
    args[k] = arm_graph_entry_tensor(g, f->args[k].is_out ? node->first_entry + outs++ : node->inputs[ins++]);
}

/* Whether sizes decide about a call: it has variables, and none is given to it otherwise. */
static int is_sized(const arm_node *node) {
  return node->kind == ARM_NODE_CALL && !node->is_load && node->bound.function->num_vars > 0;
}

int arm_graph_resize_calls(arm_graph *g, int32_t stage, arm_error *error) {
  int32_t widest = 0;
  for (int32_t i = 0; i < g->num_nodes; i++)
    if (is_sized(&g->nodes[i]) && g->nodes[i].bound.function->num_args > widest)
      widest = g->nodes[i].bound.function->num_args;
  arm_tensor *args = arm_zalloc((size_t)widest, sizeof *args);
  int status = args == NULL ? arm_fail(error, "graph: out of memory") : 0;
  for (int32_t i = 0; i < g->num_nodes && status == 0; i++) {
    arm_node *node = &g->nodes[i];
    if (node->stage != stage) continue;
    if (is_sized(node)) {
      call_tensors(g, node, args);
      status = arm_bound_resize(&node->bound, args, &g->sizes, error);
    } else if (node->kind == ARM_NODE_ALIAS) {
      status = arm_graph_check_alias(g, node, error);
    }
  }
  free(args);
  return status == 0 ? arm_graph_make_workspaces(g, error) : -1;
}

/* ---- running ---- */

void arm_stages_stale(arm_graph *g, int32_t after) {
  for (int32_t k = after + 1; k <= g->num_stages; k++) g->stages[k].is_stale = 1;
}

static int check_value(const arm_graph *g, const arm_node *node, int64_t value, arm_error *error) {
  const arm_size *size = &g->bounds[node->size];
  if (value < size->low || value > size->high)
    return arm_fail(error, "%s: the data says %s = %lld, which lies outside its bounds %lld to %lld", node->name,
                    g->sizes.names[node->size], (long long)value, (long long)size->low, (long long)size->high);
  if (value % size->step != 0)
    return arm_fail(error, "%s: the data says %s = %lld, which is no multiple of %lld", node->name,
                    g->sizes.names[node->size], (long long)value, (long long)size->step);
  return 0;
}

int arm_stages_run(arm_graph *g, int32_t index, arm_error *error) {
  const arm_node *node = &g->nodes[index];
  const arm_storage *from = &g->storages[g->entries[node->inputs[0]].storage];
  int64_t value;
  if (arm_memory_copy((arm_device){ARM_CPU, 0}, &value, arm_storage_device(g, from), from->data, sizeof value, error) != 0)
    return -1;
  if (check_value(g, node, value, error) != 0) return -1;
  if (g->sizes.values[node->size] == value && !g->stages[node->stage].is_stale) return 0;
  g->sizes.values[node->size] = value;
  arm_stages_stale(g, node->stage - 1); /* this one, too, until all of it has succeeded */
  if (arm_sizes_place_stage(g, node->stage, error) != 0) return -1;
  g->stages[node->stage].is_stale = 0;
  return 0;
}
