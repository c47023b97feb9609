/* Sizes of a graph: axes whose lengths are known when inputs are set.
 *
 * In: `sizes` of graph JSON (name, low, high, step), entries whose shapes are expressions over them, and for each storage
 * the first and the last step in which it is alive (`lifetime`). Out: before a run, shapes, places in the arena and bound
 * calls for the values that the inputs give. Invariant: nothing runs with sizes outside their bounds, or with two inputs
 * that disagree; while sizes keep their values nothing is done and nothing is allocated; memory only grows.
 * The places: greedy by size, largest first, each at the lowest offset that is free while it is alive, as
 * program/arena.py does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_graph.h"

#define MAX_SIZES 1024

/* ---- reading ---- */

static int read_size(arm_graph *g, const arm_json *json, int32_t row, arm_size *size, arm_error *error) {
  int32_t name = arm_json_need(json, row, "name", ARM_TEXT, "graph.sizes", error);
  if (name < 0) return -1;
  if (arm_json_int(json, arm_json_get(json, row, "low"), 0, INT32_MAX, &size->low) != 0 ||
      arm_json_int(json, arm_json_get(json, row, "high"), size->low, INT32_MAX, &size->high) != 0 ||
      arm_json_int(json, arm_json_get(json, row, "step"), 1, INT32_MAX, &size->step) != 0)
    return arm_fail(error, "graph.sizes: %s has no bounds 0 <= low <= high and step", json->values[name].text);
  int32_t index = g->sizes.count;
  g->sizes.names[index] = arm_strdup(json->values[name].text, strlen(json->values[name].text));
  if (g->sizes.names[index] == NULL) return arm_fail(error, "graph: out of memory");
  int64_t first = size->low > 0 ? size->low : 1;
  int32_t typical = arm_json_get(json, row, "typical");
  if (typical >= 0 && arm_json_int(json, typical, 0, INT32_MAX, &first) != 0)
    return arm_fail(error, "graph.sizes: %s has no whole number as its typical value", json->values[name].text);
  if (first < size->low || first == 0) first = size->low > 0 ? size->low : 1; /* 0: not said */
  first = (first + size->step - 1) / size->step * size->step;
  g->sizes.values[index] = first > size->high ? size->high : first; /* until inputs are set */
  g->sizes.count++;
  return 0;
}

int arm_sizes_read(arm_graph *g, const arm_json *json, arm_error *error) {
  int32_t list = arm_json_get(json, 0, "sizes");
  if (list < 0) return 0;
  int32_t count = json->values[list].count;
  if (json->values[list].kind != ARM_LIST || count < 1 || count > MAX_SIZES)
    return arm_fail(error, "graph.sizes: not a list of 1 to %d sizes", MAX_SIZES);
  g->bounds = arm_zalloc((size_t)count, sizeof *g->bounds);
  g->sizes.names = arm_zalloc((size_t)count, sizeof *g->sizes.names);
  g->sizes.values = arm_zalloc((size_t)count, sizeof *g->sizes.values);
  g->new_sizes = arm_zalloc((size_t)count, sizeof *g->new_sizes);
  if (g->bounds == NULL || g->sizes.names == NULL || g->sizes.values == NULL || g->new_sizes == NULL)
    return arm_fail(error, "graph: out of memory");
  for (int32_t v = json->values[list].first; v >= 0; v = json->values[v].next)
    if (read_size(g, json, v, &g->bounds[g->sizes.count], error) != 0) return -1;
  g->is_resized = 1; /* they have values when inputs are set */
  return 0;
}

/* A dimension that is a text: `entry` gets an extent for each axis. */
int arm_sizes_read_dim(const arm_graph *g, const char *text, arm_entry *entry, int axis, arm_error *error) {
  if (entry->extents == NULL) entry->extents = arm_zalloc(ARM_MAX_NDIM, sizeof *entry->extents);
  if (entry->extents == NULL) return arm_fail(error, "graph: out of memory");
  if (arm_extent_parse(text, g->sizes.names, g->sizes.count, &entry->extents[axis], error) != 0) return -1;
  entry->shape[axis] = arm_extent_value(&entry->extents[axis], g->sizes.values);
  return entry->shape[axis] >= 0 ? 0 : arm_fail(error, "graph.attrs.shape: \"%.80s\" is negative", text);
}

int arm_sizes_read_lifetimes(arm_graph *g, const arm_json *json, int32_t list, arm_error *error) {
  if (json->values[list].count != 2 * g->num_storages)
    return arm_fail(error, "graph.attrs.lifetime: %d numbers for %d storage ids", json->values[list].count,
                    g->num_storages);
  int32_t value = json->values[list].first;
  for (int32_t s = 0; s < g->num_storages; s++) {
    int64_t first, last;
    if (arm_json_int(json, value, -1, ARM_MAX_ITEMS, &first) != 0) return arm_fail(error, "graph.attrs.lifetime: no step");
    value = json->values[value].next;
    if (arm_json_int(json, value, first, ARM_MAX_ITEMS, &last) != 0) return arm_fail(error, "graph.attrs.lifetime: no step");
    value = json->values[value].next;
    g->storages[s].first = (int32_t)first;
    g->storages[s].last = (int32_t)last;
    g->storages[s].offset = first < 0 ? -1 : 0;
  }
  return 0;
}

void arm_sizes_free(arm_graph *g) {
  for (int32_t i = 0; i < g->sizes.count; i++) free(g->sizes.names[i]);
  for (int32_t i = 0; g->entries != NULL && i < g->num_entries; i++) {
    for (int axis = 0; g->entries[i].extents != NULL && axis < ARM_MAX_NDIM; axis++)
      arm_extent_free(&g->entries[i].extents[axis]);
    free(g->entries[i].extents);
  }
  free(g->sizes.names);
  free(g->sizes.values);
  free(g->new_sizes);
  free(g->bounds);
}

/* ---- inputs ---- */

/* The size that an axis is, if it is nothing else. */
static int32_t size_of_axis(const arm_entry *entry, int axis) {
  const arm_extent *extent = &entry->extents[axis];
  return extent->count == 2 && extent->code[0] == 1 ? (int32_t)extent->code[1] : -1;
}

static int check_axis(const arm_graph *g, const arm_entry *entry, int axis, int64_t got, const char *what,
                      arm_error *error) {
  if (entry->extents[axis].count == 0)
    return got == entry->shape[axis] ? 0 : arm_fail(error, "%s: axis %d has %lld elements given, %lld wanted", what, axis,
                                                    (long long)got, (long long)entry->shape[axis]);
  int32_t s = size_of_axis(entry, axis);
  if (s < 0) return 0; /* compared when all sizes are known */
  const arm_size *size = &g->bounds[s];
  if (got < size->low || got > size->high)
    return arm_fail(error, "%s: axis %d is %s = %lld, which lies outside its bounds %lld to %lld", what, axis,
                    g->sizes.names[s], (long long)got, (long long)size->low, (long long)size->high);
  if (got % size->step != 0)
    return arm_fail(error, "%s: axis %d is %s = %lld, which is no multiple of %lld", what, axis, g->sizes.names[s],
                    (long long)got, (long long)size->step);
  return 0;
}

int arm_sizes_check(const arm_graph *g, const arm_entry *entry, const char *what, const arm_tensor *value,
                    arm_error *error) {
  if (value->ndim != entry->tensor.ndim)
    return arm_fail(error, "%s: %d axes given, %d wanted", what, value->ndim, entry->tensor.ndim);
  for (int axis = 0; axis < value->ndim; axis++)
    if (check_axis(g, entry, axis, value->shape[axis], what, error) != 0) return -1;
  int64_t bytes;
  return arm_tensor_bytes(value->shape, value->ndim, value->dtype, &bytes) == 0
             ? 0
             : arm_fail(error, "%s: an impossible shape", what);
}

void arm_sizes_take(arm_graph *g, arm_entry *entry, const arm_tensor *value) {
  if (memcmp(entry->shape, value->shape, sizeof(int64_t) * (size_t)value->ndim) != 0) g->is_resized = 1;
  memcpy(entry->shape, value->shape, sizeof(int64_t) * (size_t)value->ndim);
  (void)arm_tensor_bytes(entry->shape, entry->tensor.ndim, entry->tensor.dtype, &entry->bytes); /* checked */
  g->storages[entry->storage].bytes = entry->bytes;
}

/* ---- values of sizes ---- */

static const char *input_name(const arm_graph *g, int32_t i) { return g->nodes[g->inputs[i]].name; }

static arm_entry *input_entry(const arm_graph *g, int32_t i) { return &g->entries[g->nodes[g->inputs[i]].first_entry]; }

static int take_input(arm_graph *g, int32_t i, int32_t *from, arm_error *error) {
  const arm_entry *entry = input_entry(g, i);
  for (int axis = 0; entry->extents != NULL && axis < entry->tensor.ndim; axis++) {
    int32_t s = size_of_axis(entry, axis);
    if (s < 0) continue;
    if (from[s] >= 0 && g->new_sizes[s] != entry->shape[axis])
      return arm_fail(error, "inputs %s and %s disagree on the size %s: %lld and %lld", input_name(g, from[s]),
                      input_name(g, i), g->sizes.names[s], (long long)g->new_sizes[s], (long long)entry->shape[axis]);
    from[s] = i;
    g->new_sizes[s] = entry->shape[axis];
  }
  return 0;
}

/* Axes of inputs that are expressions. */
static int check_input(const arm_graph *g, int32_t i, arm_error *error) {
  const arm_entry *entry = input_entry(g, i);
  for (int axis = 0; entry->extents != NULL && axis < entry->tensor.ndim; axis++) {
    if (entry->extents[axis].count == 0) continue;
    int64_t wanted = arm_extent_value(&entry->extents[axis], g->new_sizes);
    if (wanted != entry->shape[axis])
      return arm_fail(error, "input %s: axis %d has %lld elements given; the other inputs' sizes want %lld",
                      input_name(g, i), axis, (long long)entry->shape[axis], (long long)wanted);
  }
  return 0;
}

static int new_values(arm_graph *g, arm_error *error) {
  int32_t *from = malloc(sizeof *from * (size_t)g->sizes.count);
  if (from == NULL) return arm_fail(error, "graph: out of memory");
  for (int32_t s = 0; s < g->sizes.count; s++) from[s] = -1;
  memcpy(g->new_sizes, g->sizes.values, sizeof *g->new_sizes * (size_t)g->sizes.count);
  int status = 0;
  for (int32_t i = 0; i < g->num_inputs && status == 0; i++) status = take_input(g, i, from, error);
  for (int32_t i = 0; i < g->num_inputs && status == 0; i++) status = check_input(g, i, error);
  free(from);
  return status;
}

/* ---- shapes and places ---- */

static int resize_entries(arm_graph *g, int32_t stage, arm_error *error) {
  for (int32_t i = 0; i < g->num_entries; i++) {
    arm_entry *entry = &g->entries[i];
    if (entry->extents == NULL || entry->stage != stage) continue; /* inputs have theirs already, but not views of them */
    for (int axis = 0; axis < entry->tensor.ndim; axis++)
      if (entry->extents[axis].count > 0) entry->shape[axis] = arm_extent_value(&entry->extents[axis], g->sizes.values);
    int64_t bytes = -1;
    int is_absurd = 0;
    for (int axis = 0; axis < entry->tensor.ndim; axis++) is_absurd = is_absurd || entry->shape[axis] < 0;
    if (is_absurd || arm_tensor_bytes(entry->shape, entry->tensor.ndim, entry->tensor.dtype, &bytes) != 0 ||
        bytes / arm_dtype_bytes(entry->tensor.dtype) > INT32_MAX)
      return arm_fail(error, "graph: a tensor has no size that can be, or more than 2^31 elements, for these inputs");
    entry->bytes = bytes;
  }
  for (int32_t s = 0; s < g->num_storages; s++)
    if (!g->storages[s].is_input && !g->storages[s].is_load && g->storages[s].stage == stage) g->storages[s].bytes = 0;
  for (int32_t i = 0; i < g->num_entries; i++) {
    arm_storage *storage = &g->storages[g->entries[i].storage];
    if (storage->is_input || storage->is_load || storage->stage != stage || g->entries[i].stage > stage) continue;
    if (g->entries[i].bytes > storage->bytes) storage->bytes = g->entries[i].bytes;
  }
  return 0;
}

static int64_t aligned(const arm_graph *g, const arm_storage *s) {
  int64_t align = arm_storage_device(g, s).type == ARM_CPU ? ARM_ALIGN : ARM_DEVICE_ALIGN;
  return s->bytes < align ? align : (s->bytes + align - 1) / align * align;
}

typedef struct { int64_t bytes, start; int32_t first, last, storage; } place;

static int by_size(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->storage < y->storage ? -1 : x->storage > y->storage;
}

static int by_start(const void *a, const void *b) {
  const place *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start;
}

/* The lowest offset at which `item` meets none of the `count` placed ones; `beside` has room for all. */
static int64_t lowest_gap(const place *placed, int32_t count, const place *item, place *beside) {
  int32_t found = 0;
  for (int32_t i = 0; i < count; i++)
    if (placed[i].first <= item->last && item->first <= placed[i].last) beside[found++] = placed[i];
  qsort(beside, (size_t)found, sizeof *beside, by_start);
  int64_t at = 0;
  for (int32_t i = 0; i < found; i++) {
    if (beside[i].start - at >= item->bytes) return at;
    if (beside[i].start + beside[i].bytes > at) at = beside[i].start + beside[i].bytes;
  }
  return at;
}

static int place_storages(arm_graph *g, int32_t stage, int32_t device, place *rows, place *beside, int64_t *total) {
  int32_t count = 0;
  for (int32_t s = 0; s < g->num_storages; s++) {
    const arm_storage *storage = &g->storages[s];
    if (storage->offset >= 0 && storage->device == device && storage->stage == stage)
      rows[count++] = (place){aligned(g, storage), 0, storage->first, storage->last, s};
  }
  qsort(rows, (size_t)count, sizeof *rows, by_size);
  *total = 0;
  for (int32_t i = 0; i < count; i++) {
    rows[i].start = lowest_gap(rows, i, &rows[i], beside);
    g->storages[rows[i].storage].offset = rows[i].start;
    if (rows[i].start + rows[i].bytes > *total) *total = rows[i].start + rows[i].bytes;
  }
  return *total <= ARM_MAX_BYTES ? 0 : -1;
}

/* Data says sizes on the first device only. */
static int reserve(arm_graph *g, arm_stage *stage, int64_t bytes, arm_error *error) {
  if (bytes <= stage->bytes) return 0;
  void *arena = arm_memory_allocate(g->devices[0].device, (size_t)bytes, error);
  if (arena == NULL) return -1;
  arm_memory_release(g->devices[0].device, stage->arena);
  g->memory += (size_t)(bytes - stage->bytes);
  stage->arena = arena;
  stage->bytes = bytes;
  return 0;
}

/* Places in the arenas, which grow where they must. */
static int place_all(arm_graph *g, int32_t stage, arm_error *error) {
  place *rows = malloc(2 * sizeof *rows * (size_t)(g->num_storages + 1));
  if (rows == NULL) return arm_fail(error, "graph: out of memory");
  int status = 0;
  for (int32_t d = 0; d < g->num_devices && status == 0; d++) {
    int64_t total;
    if (place_storages(g, stage, d, rows, rows + g->num_storages, &total) != 0)
      status = arm_fail(error, "graph: its tensors take more than %lld bytes", (long long)ARM_MAX_BYTES);
    else status = stage == 0 ? arm_graph_reserve(g, d, total, error) : reserve(g, &g->stages[stage], total, error);
  }
  free(rows);
  return status;
}

int arm_sizes_place(arm_graph *g, arm_error *error) {
  for (int32_t stage = 0; g->sizes.count > 0 && stage <= g->num_stages; stage++)
    if (resize_entries(g, stage, error) != 0 || place_all(g, stage, error) != 0) return -1;
  return 0;
}

/* Results, and what else owns its memory. */
static int point_all(arm_graph *g, int32_t stage, arm_error *error) {
  for (int32_t s = 0; s < g->num_storages; s++) {
    arm_storage *storage = &g->storages[s];
    if (storage->is_input || storage->is_load || storage->stage != stage) continue;
    if (storage->offset >= 0) arm_graph_point(g, s, arm_arena_of(g, storage) + storage->offset);
    else if (arm_graph_own(g, s, error) != 0) return -1;
  }
  for (int32_t i = 0; i < g->num_heads; i++) /* memory of a user's may be too small now */
    if (g->storages[g->entries[g->heads[i]].storage].stage == stage) g->copy_out[i] = NULL;
  return 0;
}

/* Devices release the parts of memory that earlier sizes had. */
static int divide_anew(arm_graph *g, int32_t stage, arm_error *error) {
  if (stage > 0) return arm_memory_divide_anew(g->devices[0].device, g->stages[stage].arena, error);
  for (int32_t d = 0; d < g->num_devices; d++)
    if (arm_memory_divide_anew(g->devices[d].device, g->devices[d].arena, error) != 0 ||
        arm_memory_divide_anew(g->devices[d].device, g->devices[d].workspace, error) != 0)
      return -1;
  return 0;
}

int arm_sizes_place_stage(arm_graph *g, int32_t stage, arm_error *error) {
  return arm_equal_check_stage(g, stage, error) != 0 || resize_entries(g, stage, error) != 0 ||
                 place_all(g, stage, error) != 0 || arm_control_check(g, stage, error) != 0 ||
                 divide_anew(g, stage, error) != 0 ||
                 point_all(g, stage, error) != 0 || arm_graph_resize_calls(g, stage, error) != 0
             ? -1
             : 0;
}

int arm_sizes_bind(arm_graph *g, arm_error *error) {
  if (!g->is_resized) return 0;
  if (new_values(g, error) != 0) return -1;
  size_t bytes = sizeof *g->new_sizes * (size_t)g->sizes.count;
  if (!g->is_unplaced && memcmp(g->new_sizes, g->sizes.values, bytes) == 0) {
    if (arm_equal_check_stage(g, 0, error) != 0) return -1; /* the first run's sizes may be those that are typical */
    g->is_resized = 0;
    return 0;
  }
  memcpy(g->sizes.values, g->new_sizes, bytes);
  g->is_unplaced = 1; /* until all of it has succeeded */
  arm_stages_stale(g, 0);
  if (arm_sizes_place_stage(g, 0, error) != 0) return -1;
  g->is_resized = g->is_unplaced = 0;
  g->has_new_sizes = 1;
  g->is_unchecked = 1; /* places are others now */
  return 0;
}

/* ---- what depends on sizes alone ---- */

/* Its results stay from run to run, so nothing else may write them. */
static int plan_sized(arm_graph *g, const arm_node *node, const char *is_written, arm_error *error) {
  if (node->kind != ARM_NODE_CALL || node->owner >= 0 || node->stage > 0)
    return arm_fail(error, "graph: node %s: only a call outside branches, of sizes of inputs, has size_time", node->name);
  for (int32_t k = 0; k < node->num_outputs; k++) {
    int32_t s = g->entries[node->first_entry + k].storage;
    if (g->storages[s].offset >= 0 || g->storages[s].is_input || is_written[s])
      return arm_fail(error, "graph: node %s has size_time, and its result no memory of its own", node->name);
  }
  for (int32_t k = 0; k < node->num_inputs; k++) {
    int32_t s = g->entries[node->inputs[k]].storage;
    if (is_written[s]) return arm_fail(error, "graph: node %s has size_time, and reads what a run computes", node->name);
    g->storages[s].feeds_sized = 1;
  }
  g->has_new_sizes = 1;
  return 0;
}

int arm_sizes_plan(arm_graph *g, arm_error *error) {
  char *is_written = arm_zalloc((size_t)g->num_storages + 1, 1);
  if (is_written == NULL) return arm_fail(error, "graph: out of memory");
  for (int32_t i = 0; i < g->num_nodes; i++)
    for (int32_t k = 0; k < g->nodes[i].num_outputs; k++) {
      const arm_node *node = &g->nodes[i];
      int is_view = node->kind == ARM_NODE_ALIAS && node->num_inputs == 1 &&
                    g->entries[node->inputs[0]].storage == g->entries[node->first_entry].storage;
      if (node->kind != ARM_NODE_INPUT && !node->is_load && !node->is_sized && !is_view)
        is_written[g->entries[node->first_entry + k].storage] = 1;
    }
  int status = 0;
  for (int32_t i = 0; i < g->num_nodes && status == 0; i++)
    if (g->nodes[i].is_sized) status = plan_sized(g, &g->nodes[i], is_written, error);
  free(is_written);
  return status;
}

int arm_sizes_run(arm_graph *g, arm_error *error) {
  for (int32_t i = 0; i < g->num_nodes; i++) {
    arm_node *node = &g->nodes[i];
    int32_t code = node->is_sized ? arm_bound_run(&node->bound, g->pool, g->max_threads) : 0;
    if (code != 0) return arm_node_failed(node, code, error);
  }
  return 0;
}

int arm_graph_num_sizes(const arm_graph *g) { return g->sizes.count; }

const char *arm_graph_size_name(const arm_graph *g, int index) {
  return index >= 0 && index < g->sizes.count ? g->sizes.names[index] : NULL;
}
