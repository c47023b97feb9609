/* The graph runner: a flat table of bound calls over an arena that is allocated once.
 *
 * In: graph JSON, a module, a pool; then inputs. Out: results in the graph's or the user's memory.
 * Invariant: a run touches only memory that was checked when it was bound, and allocates nothing.
 */
#include "arm_graph.h"

#include <stdlib.h>
#include <string.h>

#define MIN_SHARED_BYTES (128 << 10) /* of an input that all threads copy */
#define MIN_SHARED_ROWS 16

void arm_graph_point(arm_graph *g, int32_t storage, void *data) {
  arm_storage *s = &g->storages[storage];
  s->data = data;
  for (int32_t i = s->first_slot; i >= 0; i = g->slots[i].next)
    g->nodes[g->slots[i].node].bound.data[g->slots[i].arg] = data;
}

/* ---- creation ---- */

void *arm_storage_allocate(const arm_graph *g, const arm_storage *s, arm_error *error) {
  arm_device device = arm_storage_device(g, s);
  if (s->width > 0) return arm_memory_allocate_image(device, s->width, (size_t)s->bytes, s->bits, error);
  return arm_memory_allocate(device, (size_t)s->bytes, error);
}

int arm_graph_reserve(arm_graph *g, int32_t d, int64_t bytes, arm_error *error) {
  arm_graph_device *device = &g->devices[d];
  if (device->arena != NULL && bytes <= device->arena_bytes) return 0;
  void *arena = arm_memory_allocate(device->device, (size_t)bytes, error);
  if (arena == NULL) return -1;
  arm_memory_release(device->device, device->arena);
  g->memory += (size_t)(bytes - device->arena_bytes);
  device->arena = arena;
  device->arena_bytes = bytes;
  return 0;
}

static int allocate_storages(arm_graph *g, arm_error *error) {
  int64_t sizes[ARM_MAX_GRAPH_DEVICES] = {0};
  for (int32_t s = 0; s < g->num_storages; s++) {
    int64_t end = g->storages[s].offset + g->storages[s].bytes, *size = &sizes[g->storages[s].device];
    if (g->storages[s].offset >= 0 && g->storages[s].stage == 0 && end > *size) *size = end;
  }
  for (int32_t d = 0; d < g->num_devices; d++)
    if (arm_graph_reserve(g, d, sizes[d], error) != 0) return -1;
  for (int32_t s = 0; s < g->num_storages; s++) {
    arm_storage *storage = &g->storages[s];
    if (storage->offset >= 0) {
      storage->data = arm_arena_of(g, storage) + storage->offset;
    } else if (!storage->is_input && (!storage->is_load || storage->heads > 0)) {
      storage->data = storage->owned = arm_storage_allocate(g, storage, error);
      if (storage->data == NULL) return -1;
      storage->room = storage->bytes;
      g->memory += (size_t)storage->bytes;
    }
  }
  return 0;
}

arm_tensor arm_graph_entry_tensor(const arm_graph *g, int32_t entry) {
  arm_tensor tensor = g->entries[entry].tensor;
  const arm_storage *storage = &g->storages[g->entries[entry].storage];
  tensor.data = storage->data;
  tensor.device = arm_storage_device(g, storage);
  return tensor;
}

static void add_slot(arm_graph *g, int32_t entry, int32_t node, int32_t arg) {
  arm_storage *storage = &g->storages[g->entries[entry].storage];
  g->slots[g->num_slots] = (arm_slot){node, arg, storage->first_slot};
  storage->first_slot = g->num_slots++;
}

static int is_in_place(const arm_graph *g, const arm_node *node, int32_t entry) {
  return node->num_inputs > 0 && g->entries[node->inputs[0]].storage == g->entries[entry].storage;
}

/* The k-th `in` argument of the function is the node's k-th input, the k-th `out` argument its k-th output. */
static int bind_node(arm_graph *g, int32_t index, arm_tensor *args, arm_error *error) {
  static _Alignas(ARM_ALIGN) char placeholder[ARM_ALIGN]; /* inputs get their memory later */
  arm_node *node = &g->nodes[index];
  const arm_function *f = arm_module_function(g->module, arm_module_find(g->module, node->function));
  int32_t ins = 0, outs = 0;
  for (int32_t k = 0; k < f->num_args; k++) {
    int is_out = f->args[k].is_out;
    if (is_out ? outs >= node->num_outputs : ins >= node->num_inputs)
      return arm_fail(error, "graph: node %s: %s wants more %s than the graph gives", node->name, f->name,
                      is_out ? "outputs" : "inputs");
    int32_t entry = is_out ? node->first_entry + outs++ : node->inputs[ins++];
    if (is_out && g->storages[g->entries[entry].storage].is_input && !is_in_place(g, node, entry))
      return arm_fail(error, "graph: node %s overwrites an input of the graph", node->name);
    args[k] = arm_graph_entry_tensor(g, entry);
    node->device = g->storages[g->entries[entry].storage].device; /* all of one: arm_bind looks */
    if (args[k].data == NULL) args[k].data = placeholder;
    add_slot(g, entry, index, k);
  }
  if (ins != node->num_inputs || outs != node->num_outputs)
    return arm_fail(error, "graph: node %s: %s takes %d inputs and %d outputs, the graph gives %d and %d", node->name,
                    f->name, ins, outs, node->num_inputs, node->num_outputs);
  return arm_bind(f, args, f->num_args, NULL, 0, &g->sizes, &node->bound, error);
}

/* A __nop lays its inputs one after another; those that the plan already put in place are not copied. */
int arm_graph_check_alias(const arm_graph *g, const arm_node *node, arm_error *error) {
  const arm_entry *to = &g->entries[node->first_entry];
  int64_t bytes = 0;
  int is_shared = 0;
  for (int32_t i = 0; i < node->num_inputs; i++) {
    const arm_entry *from = &g->entries[node->inputs[i]];
    if (from->bytes > to->bytes - bytes) return arm_fail(error, "graph: __nop %s changes the size in bytes", node->name);
    bytes += from->bytes;
    is_shared = is_shared || from->storage == to->storage;
  }
  if (bytes != to->bytes) return arm_fail(error, "graph: __nop %s changes the size in bytes", node->name);
  if (is_shared && node->num_inputs != 1)
    return arm_fail(error, "graph: __nop %s joins inputs and shares the storage of one", node->name);
  if (!is_shared && g->storages[to->storage].is_input && !g->storages[to->storage].is_state)
    return arm_fail(error, "graph: node %s overwrites an input of the graph", node->name);
  return 0;
}

/* Sizes have typical values here, which extents that must be equal need not fit: what they decide is checked again when
 * they are bound. */
static int check_first_alias(arm_graph *g, const arm_node *node, arm_error *error) {
  int is_sized = g->entries[node->first_entry].extents != NULL;
  for (int32_t i = 0; i < node->num_inputs; i++) is_sized = is_sized || g->entries[node->inputs[i]].extents != NULL;
  int status = arm_graph_check_alias(g, node, error);
  g->is_unplaced = g->is_unplaced || (is_sized && status != 0);
  return is_sized ? 0 : status;
}

static int bind_nodes(arm_graph *g, arm_error *error) {
  size_t widest = 0, total = 0;
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    if (node->kind != ARM_NODE_CALL) continue;
    const arm_function *f = arm_module_function(g->module, arm_module_find(g->module, node->function));
    total += (size_t)f->num_args;
    if ((size_t)f->num_args > widest) widest = (size_t)f->num_args;
  }
  g->slots = arm_zalloc(total, sizeof *g->slots);
  arm_tensor *args = arm_zalloc(widest, sizeof *args);
  int status = g->slots && args ? 0 : arm_fail(error, "graph: out of memory");
  for (int32_t i = 0; i < g->num_nodes && status == 0; i++) {
    if (g->nodes[i].kind == ARM_NODE_CALL) status = bind_node(g, i, args, error);
    if (g->nodes[i].kind == ARM_NODE_ALIAS) status = check_first_alias(g, &g->nodes[i], error);
  }
  free(args);
  return status;
}

int arm_graph_make_workspaces(arm_graph *g, arm_error *error) {
  arm_concurrent_plan(g);
  for (int32_t d = 0; d < g->num_devices; d++) {
    arm_graph_device *device = &g->devices[d];
    if (device->workspace != NULL && device->workspace_bytes <= device->workspace_room) continue;
    void *workspace = arm_memory_allocate(device->device, (size_t)device->workspace_bytes, error);
    if (workspace == NULL) return -1;
    arm_memory_release(device->device, device->workspace);
    g->memory += (size_t)(device->workspace_bytes - device->workspace_room);
    device->workspace = workspace;
    device->workspace_room = device->workspace_bytes;
  }
  arm_concurrent_place(g);
  return arm_graph_make_statuses(g, error);
}

int arm_graph_create(const char *json, size_t size, arm_module *module, arm_pool *pool, arm_graph **out, char *err,
                     size_t err_size) {
  return arm_graph_create_on(json, size, module, (arm_device){ARM_CPU, 0}, pool, out, err, err_size);
}

int32_t arm_graph_device_of(arm_graph *g, int32_t type, arm_error *error) {
  for (int32_t d = 0; d < g->num_devices; d++)
    if (g->devices[d].device.type == type) return d;
  if (g->num_devices == ARM_MAX_GRAPH_DEVICES)
    return arm_fail(error, "graph: values are on more than %d devices", ARM_MAX_GRAPH_DEVICES);
  arm_device first = {type, 0};
  if (arm_device_open(first, error->text, error->size) != 0) return -1;
  g->devices[g->num_devices].device = first;
  return g->num_devices++;
}

int arm_graph_create_on(const char *json, size_t size, arm_module *module, arm_device device, arm_pool *pool,
                        arm_graph **out, char *err, size_t err_size) {
  return arm_graph_create_over(json, size, module, &device, 1, pool, out, err, err_size);
}

int arm_graph_create_over(const char *json, size_t size, arm_module *module, const arm_device *devices, int num_devices,
                          arm_pool *pool, arm_graph **out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  *out = NULL;
  if (num_devices < 1 || num_devices > ARM_MAX_GRAPH_DEVICES)
    return arm_fail(&error, "graph: %d devices are given, 1 to %d are wanted", num_devices, ARM_MAX_GRAPH_DEVICES);
  arm_graph *g = arm_zalloc(1, sizeof *g);
  if (g == NULL) return arm_fail(&error, "graph: out of memory");
  arm_module_retain(module);
  g->module = module;
  for (; g->num_devices < num_devices; g->num_devices++) g->devices[g->num_devices].device = devices[g->num_devices];
  g->pool = pool;
  g->max_threads = pool ? arm_pool_threads(pool) : 1;
  if (arm_plan_read(g, json, size, &error) != 0 || arm_load_plan(g, &error) != 0 || arm_stages_plan(g, &error) != 0 ||
      arm_sizes_plan(g, &error) != 0 || arm_sizes_place(g, &error) != 0 ||
      allocate_storages(g, &error) != 0 ||
      bind_nodes(g, &error) != 0 || arm_graph_make_workspaces(g, &error) != 0) {
    arm_graph_destroy(g);
    return -1;
  }
  *out = g;
  return 0;
}

void arm_graph_destroy(arm_graph *g) {
  if (g == NULL) return;
  for (int32_t i = 0; i < g->num_nodes; i++) {
    arm_unbind(&g->nodes[i].bound);
    free(g->nodes[i].name);
    free(g->nodes[i].inputs);
    arm_equal_free(&g->nodes[i]);
  }
  for (int32_t s = 0; g->storages != NULL && s < g->num_storages; s++)
    arm_storage_drop(arm_storage_device(g, &g->storages[s]), &g->storages[s]);
  arm_variants_free(g);
  arm_stages_free(g);
  arm_sizes_free(g);
  for (int32_t d = 0; d < g->num_devices; d++) {
    arm_memory_release(g->devices[d].device, g->devices[d].arena);
    arm_memory_release(g->devices[d].device, g->devices[d].workspace);
    arm_memory_release(g->devices[d].device, g->devices[d].status);
  }
  free(g->nodes);
  free(g->entries);
  free(g->storages);
  free(g->slots);
  free(g->inputs);
  free(g->heads);
  free(g->copy_out);
  arm_module_release(g->module);
  free(g);
}

/* ---- questions ---- */
int arm_graph_num_inputs(const arm_graph *g) { return g->num_inputs; }
int arm_graph_num_outputs(const arm_graph *g) { return g->variants[g->active].num_heads; }
int arm_graph_num_nodes(const arm_graph *g) { return g->num_nodes; }
size_t arm_graph_memory(const arm_graph *g) { return g->memory; }

const char *arm_graph_input_name(const arm_graph *g, int index) {
  return index >= 0 && index < g->num_inputs ? g->nodes[g->inputs[index]].name : NULL;
}

int arm_graph_input_index(const arm_graph *g, const char *name) {
  for (int i = 0; i < g->num_inputs; i++)
    if (strcmp(g->nodes[g->inputs[i]].name, name) == 0 && arm_variants_uses(g, i)) return i;
  return -1;
}

const char *arm_graph_node_name(const arm_graph *g, int node) {
  return node >= 0 && node < g->num_nodes ? g->nodes[node].name : NULL;
}

const char *arm_graph_node_function(const arm_graph *g, int node) {
  return node >= 0 && node < g->num_nodes ? g->nodes[node].function : NULL;
}

int arm_graph_node_owner(const arm_graph *g, int node) {
  return node >= 0 && node < g->num_nodes ? g->nodes[node].owner : -1;
}

int arm_graph_node_is_load(const arm_graph *g, int node) {
  return node >= 0 && node < g->num_nodes ? g->nodes[node].is_load : -1;
}

int arm_graph_node_outputs(const arm_graph *g, int node) {
  return node >= 0 && node < g->num_nodes ? g->nodes[node].num_outputs : -1;
}

int32_t arm_graph_input_entry(const arm_graph *g, int index, arm_error *error) {
  if (index >= 0 && index < g->num_inputs) return g->nodes[g->inputs[index]].first_entry;
  return arm_fail(error, "the graph has %d inputs; there is no input %d", g->num_inputs, index);
}

int arm_graph_own(arm_graph *g, int32_t storage, arm_error *error) {
  arm_storage *s = &g->storages[storage];
  arm_device device = arm_storage_device(g, s);
  if (arm_storage_unshare(g, storage, 0, error) != 0) return -1;
  if (s->owned != NULL && s->room < s->bytes && g->sizes.count > 0 && !s->is_load) {
    void *larger = arm_storage_allocate(g, s, error);
    if (larger == NULL) return -1;
    arm_storage_drop(device, s);
    s->owned = larger;
    s->room = s->bytes;
  }
  if (s->owned == NULL) {
    s->owned = arm_storage_allocate(g, s, error);
    if (s->owned == NULL || arm_memory_clear(device, s->owned, (size_t)s->bytes, error) != 0) return -1;
    s->room = s->bytes;
  }
  if (s->data != s->owned) arm_graph_point(g, storage, s->owned);
  return 0;
}

/* Whether a library may have made something of its values; `forget`: have it made again. */
static int is_kept_by_library(const arm_graph *g, const arm_storage *s, int forget) {
  int found = 0;
  for (int32_t i = s->first_slot; i >= 0; i = g->slots[i].next) {
    arm_offload *call = g->nodes[g->slots[i].node].bound.offload;
    if (call == NULL || !arm_offload_keeps(call, g->slots[i].arg)) continue;
    found = 1;
    if (forget) arm_offload_stale(call);
  }
  return found;
}

void arm_graph_was_set(arm_graph *g, int32_t storage) {
  arm_storage *s = &g->storages[storage];
  s->is_set = 1;
  s->is_released = s->is_stored = 0;
  if (s->last_load >= 0) s->is_fresh = g->is_stale = 1;
  if (s->feeds_sized) g->has_new_sizes = 1;
  (void)is_kept_by_library(g, s, 1);
}

int arm_graph_input_info(const arm_graph *g, int index, arm_tensor *out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int32_t entry = arm_graph_input_entry(g, index, &error);
  if (entry < 0) return -1;
  *out = g->entries[entry].tensor;
  out->device = arm_storage_device(g, &g->storages[g->entries[entry].storage]);
  return 0;
}

int arm_graph_input(arm_graph *g, int index, arm_tensor *out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int32_t entry = arm_graph_input_entry(g, index, &error);
  if (entry < 0) return -1;
  int32_t storage = g->entries[entry].storage;
  if (g->storages[storage].is_released)
    return arm_fail(&error, "input %s was given back after loading: only its expanded form is kept",
                    arm_graph_input_name(g, index));
  if (arm_storage_unshare(g, storage, 1, &error) != 0) return -1;
  if (g->storages[storage].data == NULL && arm_graph_own(g, storage, &error) != 0) return -1;
  g->storages[storage].is_kept = 1; /* the caller has a view */
  arm_graph_was_set(g, storage);
  *out = arm_graph_entry_tensor(g, entry);
  return 0;
}

int arm_graph_output(arm_graph *g, int index, arm_tensor *out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  const arm_variant *v = &g->variants[g->active];
  if (index < 0 || index >= v->num_heads)
    return arm_fail(&error, "the graph has %d outputs; there is no output %d", v->num_heads, index);
  index += v->first_head;
  *out = arm_graph_entry_tensor(g, g->heads[index]);
  if (g->copy_out[index] != NULL) out->data = g->copy_out[index];
  return 0;
}

int arm_graph_node_output(arm_graph *g, int node, int index, arm_tensor *out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (node < 0 || node >= g->num_nodes || index < 0 || index >= g->nodes[node].num_outputs)
    return arm_fail(&error, "the graph has no output %d of node %d", index, node);
  *out = arm_graph_entry_tensor(g, g->nodes[node].first_entry + index);
  if (out->data == NULL && g->entries[g->nodes[node].first_entry + index].bytes > 0)
    return arm_fail(&error, "node %s: its value was never computed, or was given back after loading",
                    g->nodes[node].name);
  return 0;
}

/* ---- setting ---- */

int arm_graph_check_value(const arm_graph *g, const arm_entry *entry, const char *what, const arm_tensor *value,
                          arm_error *error) {
  char got[256], wanted[256];
  if (value->ndim < 0 || value->ndim > ARM_MAX_NDIM) return arm_fail(error, "%s: impossible number of dimensions", what);
  arm_shape_text(got, sizeof got, value->shape, value->ndim);
  arm_shape_text(wanted, sizeof wanted, entry->shape, entry->tensor.ndim);
  if (!arm_dtype_equal(value->dtype, entry->tensor.dtype))
    return arm_fail(error, "%s: dtype %s given, %s wanted", what, arm_dtype_name(value->dtype),
                    arm_dtype_name(entry->tensor.dtype));
  if (entry->extents != NULL && g->storages[entry->storage].is_input) {
    if (arm_sizes_check(g, entry, what, value, error) != 0) return -1;
  } else if (value->ndim != entry->tensor.ndim ||
      memcmp(value->shape, entry->shape, sizeof(int64_t) * (size_t)value->ndim) != 0)
    return arm_fail(error, "%s: shape %s given, %s wanted", what, got, wanted);
  return entry->bytes == 0 || value->data != NULL ? 0 : arm_fail(error, "%s: the tensor has no memory", what);
}

/* Rows [begin, end) of each plane. */
static int32_t copy_rows(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  int64_t planes = vars[0], rows = vars[1], row_bytes = vars[2];
  for (int64_t plane = 0; plane < planes; plane++) {
    int64_t at = (plane * rows + begin) * row_bytes;
    memcpy((char *)data[1] + at, (const char *)data[0] + at, (size_t)((end - begin) * row_bytes));
  }
  (void)thread;
  return 0;
}

/* A large contiguous input is copied by all threads, each the rows of an image that the first layer gives it: 600 KB take
 * 50 us on one. The workers are awake then when the first kernel starts. */
static int copy_input(arm_graph *g, int64_t bytes, const arm_tensor *from, const arm_tensor *to, arm_error *error) {
  void *const data[2] = {arm_tensor_data(from), arm_tensor_data(to)};
  uintptr_t source = (uintptr_t)data[0], target = (uintptr_t)data[1], size = (uintptr_t)bytes;
  int axis = 0;
  while (axis < from->ndim && from->shape[axis] < MIN_SHARED_ROWS) axis++;
  if (to->device.type != ARM_CPU || from->device.type != ARM_CPU || bytes < MIN_SHARED_BYTES || axis == from->ndim || !arm_tensor_dense(from) ||
      (source < target + size && target < source + size))
    return arm_tensor_copy(from, to, error->text, error->size);
  int64_t vars[3] = {1, from->shape[axis], bytes / from->shape[axis]};
  for (int i = 0; i < axis; i++) {
    vars[0] *= from->shape[i];
    vars[2] /= from->shape[i];
  }
  return arm_pool_run(g->pool, copy_rows, data, vars, vars[1], g->max_threads);
}

static int set_entry(arm_graph *g, int32_t entry, const char *what, const arm_tensor *value, arm_error *error) {
  int32_t storage = g->entries[entry].storage;
  if (arm_graph_check_value(g, &g->entries[entry], what, value, error) != 0) return -1;
  if (g->entries[entry].extents != NULL) arm_sizes_take(g, &g->entries[entry], value);
  if (arm_graph_own(g, storage, error) != 0) return -1;
  arm_tensor own = arm_graph_entry_tensor(g, entry);
  if (copy_input(g, g->entries[entry].bytes, value, &own, error) != 0) return -1;
  arm_graph_was_set(g, storage);
  return 0;
}

int arm_graph_set_input(arm_graph *g, int index, const arm_tensor *value, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int32_t entry = arm_graph_input_entry(g, index, &error);
  return entry < 0 ? -1 : set_entry(g, entry, arm_graph_input_name(g, index), value, &error);
}

int arm_graph_input_is_plain(const arm_graph *g, int index) {
  if (index < 0 || index >= g->num_inputs) return -1;
  const arm_entry *entry = &g->entries[g->nodes[g->inputs[index]].first_entry];
  const arm_storage *storage = &g->storages[entry->storage];
  int is_shared = entry->bytes >= MIN_SHARED_BYTES && g->max_threads > 1; /* copied by all threads */
  if (arm_storage_device(g, storage).type != ARM_CPU || entry->extents != NULL) return 0;
  return g->num_variants == 1 && !is_shared && storage->last_load < 0 && !storage->feeds_sized && storage->owned && !storage->users &&
         storage->data == storage->owned && !is_kept_by_library(g, storage, 0);
}

/* ---- running ---- */

static int check_inputs(arm_graph *g, arm_error *error) {
  for (int32_t i = 0; i < g->num_inputs; i++) {
    int32_t s = g->entries[g->nodes[g->inputs[i]].first_entry].storage;
    if (g->storages[s].is_set || !arm_variants_uses(g, i)) continue;
    if (!g->storages[s].is_state) return arm_fail(error, "input %s was never set", g->nodes[g->inputs[i]].name);
    if (arm_states_begin(g, s, error) != 0) return -1;
  }
  return 0;
}

int arm_graph_copy_alias(const arm_graph *g, const arm_node *node, arm_error *error) {
  const arm_entry *to = &g->entries[node->first_entry];
  char *place = g->storages[to->storage].data;
  arm_device here = arm_storage_device(g, &g->storages[to->storage]);
  for (int32_t i = 0; i < node->num_inputs; i++) {
    const arm_entry *from = &g->entries[node->inputs[i]];
    const arm_storage *source = &g->storages[from->storage];
    arm_device there = arm_storage_device(g, source);
    if (source->data != place && arm_memory_copy(here, place, there, source->data, (size_t)from->bytes, error) != 0)
      return -1;
    place += from->bytes;
  }
  return 0;
}

static int wait_for_all(const arm_graph *g, arm_error *error) {
  for (int32_t d = 0; d < g->num_devices; d++)
    if (arm_memory_synchronize(g->devices[d].device, error) != 0) return -1;
  return 0;
}

static int tick(const arm_graph *g, arm_clock *clock, int node, arm_error *error) {
  if (clock == NULL || clock->seconds == NULL) return 0;
  if (wait_for_all(g, error) != 0) return -1;
  double now = arm_now(), kernels;
  if (clock->is_watched) {
    if (arm_device_elapsed(g->devices[0].device, &kernels, error) != 0) return -1;
    now = clock->last + kernels;
  }
  if (node >= clock->begin && node < clock->end) clock->seconds[node - clock->begin] += now - clock->last;
  clock->last = now;
  return 0;
}

int arm_nodes_run(arm_graph *g, int begin, int end, int32_t owner, arm_clock *clock, arm_error *error) {
  for (int i = begin; i < end; i++) {
    const arm_node *node = &g->nodes[i];
    if (node->owner != owner || node->is_load || node->is_sized) continue; /* run by its branch or loop, or before */
    if (node->kind == ARM_NODE_CALL) {
      int is_timed = clock != NULL && clock->seconds != NULL;
      int is_alone = is_timed || node->is_concurrent || node->group_end > end;
      int32_t after = is_alone ? i + 1 : node->group_end;
      if (arm_concurrent_run(g, i, after, clock, error) != 0) return -1;
      i = after - 1;
    } else if (node->kind == ARM_NODE_ALIAS) {
      if (arm_graph_copy_alias(g, node, error) != 0) return -1;
    } else if (node->kind != ARM_NODE_INPUT && arm_control_run(g, i, clock, error) != 0) {
      return -1;
    }
    if (tick(g, clock, i, error) != 0) return -1;
  }
  return 0;
}

static int copy_heads(const arm_graph *g, arm_error *error) {
  const arm_variant *v = &g->variants[g->active];
  for (int32_t i = v->first_head; i < v->first_head + v->num_heads; i++) {
    const arm_entry *entry = &g->entries[g->heads[i]];
    const arm_storage *from = &g->storages[entry->storage];
    arm_device device = arm_storage_device(g, from);
    if (g->copy_out[i] != NULL &&
        arm_memory_copy(device, g->copy_out[i], device, from->data, (size_t)entry->bytes, error) != 0)
      return -1;
  }
  return 0;
}

static int run_range(arm_graph *g, int begin, int end, double *seconds, arm_trace *trace, arm_error *error) {
  if (begin < 0 || end > g->num_nodes || begin > end)
    return arm_fail(error, "nodes [%d, %d) are not a part of the graph's %d nodes", begin, end, g->num_nodes);
  if (atomic_exchange(&g->running, 1)) return arm_fail(error, "the graph is already running in another thread");
  int status = check_inputs(g, error);
  if (status == 0) status = arm_sizes_bind(g, error);
  if (status == 0 && g->is_unchecked) status = arm_places_check(g, error);
  g->has_new_sizes |= g->is_stale;
  if (status == 0 && g->is_stale) status = arm_load_expand(g, 1, error);
  int is_new = g->has_new_sizes;
  if (status == 0 && is_new) status = arm_sizes_run(g, error);
  if (seconds != NULL) memset(seconds, 0, sizeof *seconds * (size_t)(end - begin));
  arm_clock clock = {seconds, seconds || trace ? arm_now() : 0, begin, end, trace, 0};
  if (trace != NULL) trace->start = clock.last;
  arm_device device = g->devices[0].device; /* of several devices, times are the host's */
  if (seconds != NULL && device.type != ARM_CPU && g->num_devices == 1 && status == 0) {
    status = arm_device_watch(device, 1, error);
    clock.is_watched = status == 0;
  }
  const arm_variant *v = &g->variants[g->active];
  if (begin < v->begin) begin = v->begin;
  arm_clock *noting = seconds != NULL || trace != NULL ? &clock : NULL;
  arm_pool_enter(g->pool);
  if (status == 0) status = arm_nodes_run(g, begin, end < v->end ? end : v->end, -1, noting, error);
  arm_pool_leave(g->pool);
  if (clock.is_watched) (void)arm_device_watch(device, 0, error);
  status = arm_graph_end_run(g, status, error);
  if (status == 0 && is_new) g->has_new_sizes = 0;
  if (status == 0 && end >= v->end) status = copy_heads(g, error);
  atomic_store(&g->running, 0);
  return status;
}

int arm_graph_run_range(arm_graph *g, int begin, int end, double *seconds, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  return run_range(g, begin, end, seconds, NULL, &error);
}

int arm_graph_trace(arm_graph *g, arm_span *spans, int64_t capacity, int64_t *count, double *seconds, char *err,
                    size_t err_size) {
  arm_error error = {err, err_size};
  arm_trace trace;
  if (arm_trace_open(&trace, spans, capacity, g->pool == NULL ? 1 : arm_pool_threads(g->pool), &error) != 0) return -1;
  int status = run_range(g, 0, g->num_nodes, NULL, &trace, &error);
  *seconds = arm_now() - trace.start;
  *count = arm_trace_close(&trace);
  return status;
}

int arm_graph_run(arm_graph *g, char *err, size_t err_size) {
  return arm_graph_run_range(g, 0, g->num_nodes, NULL, err, err_size);
}

int arm_graph_time(arm_graph *g, int64_t number, double *seconds, char *err, size_t err_size) {
  double start = arm_now();
  for (int64_t i = 0; i < number; i++)
    if (arm_graph_run(g, err, err_size) != 0) return -1;
  arm_error error = {err, err_size};
  if (wait_for_all(g, &error) != 0) return -1;
  *seconds = arm_now() - start;
  return 0;
}
