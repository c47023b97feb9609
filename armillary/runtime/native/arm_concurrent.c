/* Which calls of a graph may run side by side, and their running.
 *
 * In: a graph whose calls are bound. Out: `group_end` of a call: the group that begins there ends before that node.
 * Invariant: in the places that the plan gave them, no call of a group writes what another reads or writes; what lies
 * between them does nothing when it runs. A group needs no more workspace than the largest call (or 1 MB).
 * Threads go from one call to the next without waiting, and help with any of them: a call of few iterations keeps nobody
 * waiting where there is another, as in fire modules, the branches of an Inception, queries beside keys. The compiler's
 * plan keeps groups possible (program/lifetimes.py).
 */
#include "arm_graph.h"

#define FREE_WORKSPACE ((int64_t)1 << 20)

static int overlap(const arm_graph *g, int32_t one, int32_t other) {
  const arm_storage *a = &g->storages[one], *b = &g->storages[other];
  if (one == other) return 1;
  if (a->device != b->device || a->stage != b->stage) return 0;
  if (a->offset < 0 || b->offset < 0) return 0;
  return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static int writes_what_is_used(const arm_graph *g, const arm_node *writer, const arm_node *user) {
  for (int32_t w = 0; w < writer->num_outputs; w++) {
    int32_t written = g->entries[writer->first_entry + w].storage;
    for (int32_t k = 0; k < user->num_inputs; k++)
      if (overlap(g, written, g->entries[user->inputs[k]].storage)) return 1;
    for (int32_t k = 0; k < user->num_outputs; k++)
      if (overlap(g, written, g->entries[user->first_entry + k].storage)) return 1;
  }
  return 0;
}

/* Whether a __nop has nothing to copy, wherever users put their memory. */
static int is_in_place(const arm_graph *g, const arm_node *node) {
  const arm_entry *to = &g->entries[node->first_entry];
  int64_t place = g->storages[to->storage].offset;
  for (int32_t i = 0; i < node->num_inputs; i++) {
    const arm_entry *from = &g->entries[node->inputs[i]];
    int64_t offset = g->storages[from->storage].offset;
    if (g->storages[from->storage].device != g->storages[to->storage].device) return 0;
    if (g->storages[from->storage].stage != g->storages[to->storage].stage) return 0;
    if (from->storage != to->storage && (place < 0 || offset != place)) return 0;
    if (place >= 0) place += from->bytes;
  }
  return 1;
}

static int64_t rounded(const arm_graph *g, const arm_node *node, int64_t bytes) {
  int64_t align = g->devices[node->device].device.type == ARM_CPU ? ARM_ALIGN : ARM_DEVICE_ALIGN;
  return (bytes + align - 1) / align * align;
}

/* Bounded: see arm_function.c. */
static int64_t workspace_of(const arm_graph *g, const arm_node *node) {
  return rounded(g, node, node->bound.workspace) + node->bound.thread_workspace * g->max_threads; /* on a device: the first alone */
}

/* When parameters are set or sizes are bound. */
static int runs_before(const arm_node *node) { return node->is_load || node->is_sized; }

static int32_t members(const arm_graph *g, int32_t begin, int32_t end, int32_t *found) {
  int32_t count = 0;
  for (int32_t i = begin; i < end; i++)
    if (g->nodes[i].kind == ARM_NODE_CALL && !runs_before(&g->nodes[i])) found[count++] = i;
  return count;
}

static int may_join(const arm_graph *g, int32_t begin, int32_t candidate, int64_t limit) {
  int32_t group[ARM_MAX_LOOPS], count = members(g, begin, candidate, group);
  const arm_node *node = &g->nodes[candidate];
  int64_t workspace = workspace_of(g, node);
  if (count == ARM_MAX_LOOPS || node->bound.offload != NULL) return 0;
  for (int32_t i = 0; i < count; i++) {
    const arm_node *other = &g->nodes[group[i]];
    if (other->bound.offload != NULL || other->device != node->device) return 0; /* a library's function runs alone */
    if (writes_what_is_used(g, node, other) || writes_what_is_used(g, other, node)) return 0;
    workspace += workspace_of(g, other);
  }
  return workspace <= limit;
}

static int begins_a_variant(const arm_graph *g, int32_t node) {
  for (int32_t v = 0; v < g->num_variants; v++)
    if (g->variants[v].begin == node) return 1;
  return 0;
}

/* Where the group that begins at a call ends. */
static int32_t group_end_of(const arm_graph *g, int32_t begin, int64_t limit) {
  int32_t end = begin + 1;
  for (int32_t i = end; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    if (begins_a_variant(g, i)) break;
    if (node->kind == ARM_NODE_INPUT || runs_before(node)) continue;
    if (node->owner != g->nodes[begin].owner) break;
    if (node->kind == ARM_NODE_ALIAS && is_in_place(g, node)) continue;
    if (node->kind != ARM_NODE_CALL || !may_join(g, begin, i, limit)) break;
    end = i + 1;
  }
  return end;
}

/* Give the calls of a group workspaces beside one another; how much they take together. */
static int64_t lay_out(arm_graph *g, int32_t begin, int32_t end) {
  int32_t group[ARM_MAX_LOOPS], count = members(g, begin, end, group);
  int64_t together = 0;
  for (int32_t i = 0; i < count; i++) {
    g->nodes[group[i]].workspace = together;
    together += workspace_of(g, &g->nodes[group[i]]);
  }
  return together;
}

static void widen(arm_graph *g, int32_t device, int64_t bytes) {
  if (bytes > g->devices[device].workspace_bytes) g->devices[device].workspace_bytes = bytes;
}

void arm_concurrent_plan(arm_graph *g) {
  for (int32_t d = 0; d < g->num_devices; d++) g->devices[d].workspace_bytes = 0;
  for (int32_t i = 0; i < g->num_nodes; i++) g->nodes[i].is_concurrent = 0; /* of a plan for other sizes */
  for (int32_t i = 0; i < g->num_nodes; i++)
    if (g->nodes[i].kind == ARM_NODE_CALL) widen(g, g->nodes[i].device, workspace_of(g, &g->nodes[i]));
  int64_t limits[ARM_MAX_GRAPH_DEVICES];
  for (int32_t d = 0; d < g->num_devices; d++) {
    int64_t most = g->devices[d].workspace_bytes;
    limits[d] = most > FREE_WORKSPACE ? most : FREE_WORKSPACE;
  }
  for (int32_t i = 0; i < g->num_nodes; i++) {
    if (g->nodes[i].kind != ARM_NODE_CALL || runs_before(&g->nodes[i]) || g->nodes[i].is_concurrent) continue;
    int32_t end = g->nodes[i].group_end = group_end_of(g, i, limits[g->nodes[i].device]);
    widen(g, g->nodes[i].device, lay_out(g, i, end));
    for (int32_t k = i + 1; k < end; k++) g->nodes[k].is_concurrent = 1;
  }
}

void arm_concurrent_place(arm_graph *g) {
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    const arm_function *f = node->bound.function;
    if (f == NULL) continue;
    char *own = (char *)g->devices[node->device].workspace + node->workspace;
    node->bound.data[f->num_args] = own;
    node->bound.data[f->num_args + 1] = own + rounded(g, node, node->bound.workspace);
  }
}

int arm_concurrent_run(arm_graph *g, int32_t begin, int32_t end, arm_clock *clock, arm_error *error) {
  const arm_bound *bounds[ARM_MAX_LOOPS];
  int32_t group[ARM_MAX_LOOPS], count = members(g, begin, end, group);
  int failed = 0;
  for (int32_t i = 0; i < count; i++) bounds[i] = &g->nodes[group[i]].bound;
  int32_t code = clock != NULL && clock->trace != NULL
                     ? arm_bounds_trace(bounds, group, count, g->pool, g->max_threads, clock->trace, &failed)
                     : arm_bounds_run(bounds, count, g->pool, g->max_threads, &failed);
  return code == 0 ? 0 : arm_node_failed(&g->nodes[group[failed]], code, error);
}
