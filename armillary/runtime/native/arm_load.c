/* Load-time nodes: those that depend on parameters alone. They run when parameters are set, never in an inference.
 *
 * In: a graph whose nodes are read, some marked `load_time`; then parameters, in any order. Out: what the marked nodes
 * compute, in memory of its own. Invariant: a load-time node reads inputs and load-time results only; it runs again when
 * one of them was set again. What nothing else needs afterwards (a compact weight whose expanded form is there) is given
 * back at once, so loading one parameter after another never holds two forms of more than one.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "arm_graph.h"

static int is_writer(const arm_graph *g, int32_t i) {
  return g->nodes[i].kind != ARM_NODE_INPUT;
}

/* A load-time node may read only what is there before the first inference. */
static int check_node(const arm_graph *g, int32_t index, const char *by_load, arm_error *error) {
  const arm_node *node = &g->nodes[index];
  if ((node->kind != ARM_NODE_CALL && node->kind != ARM_NODE_ALIAS) || node->owner != -1)
    return arm_fail(error, "graph: node %s cannot run at load time", node->name);
  for (int32_t i = 0; i < node->num_inputs; i++) {
    int32_t storage = g->entries[node->inputs[i]].storage;
    if (!g->storages[storage].is_input && !by_load[storage])
      return arm_fail(error, "graph: load-time node %s reads a value of an inference", node->name);
  }
  return 0;
}

static int check_writers(const arm_graph *g, char *by_load, arm_error *error) {
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    if (!is_writer(g, i)) continue;
    if (node->is_load && check_node(g, i, by_load, error) != 0) return -1;
    for (int32_t k = 0; k < node->num_outputs; k++) {
      int32_t storage = g->entries[node->first_entry + k].storage;
      int is_view = node->kind == ARM_NODE_ALIAS && g->entries[node->inputs[0]].storage == storage;
      if (node->is_load && !is_view) by_load[storage] = 1;
    }
  }
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    if (!is_writer(g, i) || node->is_load) continue;
    for (int32_t k = 0; k < node->num_outputs; k++) {
      int32_t storage = g->entries[node->first_entry + k].storage;
      int is_view = node->kind == ARM_NODE_ALIAS && g->entries[node->inputs[0]].storage == storage;
      if (by_load[storage] && !is_view)
        return arm_fail(error, "graph: node %s overwrites what was computed at load time", node->name);
    }
  }
  return 0;
}

/* What may go after its last reader: read by load-time nodes of one input each, and by nothing else. */
static void find_readers(arm_graph *g) {
  for (int32_t s = 0; s < g->num_storages; s++) {
    g->storages[s].last_load = -1;
    g->storages[s].is_kept = g->storages[s].heads > 0;
  }
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    for (int32_t k = 0; k < node->num_inputs; k++) {
      arm_storage *storage = &g->storages[g->entries[node->inputs[k]].storage];
      if (node->is_load) storage->last_load = i;
      if (!node->is_load || node->num_inputs > 1) storage->is_kept = 1;
    }
  }
}

int arm_load_plan(arm_graph *g, arm_error *error) {
  for (int32_t i = 0; i < g->num_nodes; i++) g->num_load += g->nodes[i].is_load;
  if (g->num_load == 0) {
    for (int32_t s = 0; s < g->num_storages; s++) g->storages[s].last_load = -1;
    return 0;
  }
  char *by_load = arm_zalloc((size_t)g->num_storages, 1);
  if (by_load == NULL) return arm_fail(error, "graph: out of memory");
  int status = check_writers(g, by_load, error);
  for (int32_t s = 0; s < g->num_storages && status == 0; s++) {
    g->storages[s].is_load = by_load[s];
    if (by_load[s]) g->storages[s].offset = -1; /* keeps its value from run to run */
  }
  free(by_load);
  if (status == 0) find_readers(g);
  g->is_stale = 1;
  return status;
}

/* ---- running ---- */

typedef enum { NOT_READY, UP_TO_DATE, READY } readiness;

static readiness state_of(const arm_graph *g, const arm_node *node) {
  int is_fresh = 0;
  for (int32_t k = 0; k < node->num_outputs; k++) {
    const arm_storage *to = &g->storages[g->entries[node->first_entry + k].storage];
    if (to->is_load && !to->is_set) is_fresh = 1;
  }
  for (int32_t k = 0; k < node->num_inputs; k++) {
    const arm_storage *from = &g->storages[g->entries[node->inputs[k]].storage];
    if (!from->is_set) return NOT_READY;
    is_fresh = is_fresh || from->is_fresh;
  }
  return is_fresh ? READY : UP_TO_DATE;
}

int arm_node_failed(const arm_node *node, int32_t code, arm_error *error) {
  char text[900];
  (void)arm_bound_failed(&node->bound, code, error);
  snprintf(text, sizeof text, "%s", error->text == NULL ? "" : error->text);
  return arm_fail(error, "node %s: %s", node->name, text);
}

static int run_node(arm_graph *g, arm_node *node, arm_error *error) {
  for (int32_t k = 0; k < node->num_outputs; k++) {
    int32_t s = g->entries[node->first_entry + k].storage;
    arm_storage *to = &g->storages[s];
    if (!to->is_load) continue; /* a view of an input */
    if (arm_storage_unshare(g, s, 0, error) != 0) return -1;
    if (to->data == NULL) {
      to->owned = arm_storage_allocate(g, to, error);
      if (to->owned == NULL) return -1;
      g->memory += (size_t)to->bytes;
      arm_graph_point(g, s, to->owned);
    }
    to->is_set = to->is_fresh = 1;
    to->is_released = 0;
  }
  if (node->kind == ARM_NODE_ALIAS) {
    return arm_graph_copy_alias(g, node, error);
  }
  int32_t code = arm_bound_run(&node->bound, g->pool, g->max_threads);
  return code == 0 ? 0 : arm_node_failed(node, code, error);
}

/* Memory that is the caller's is only forgotten: is_released says so, and the caller lets go of it. */
static void release(arm_graph *g, int32_t s) {
  arm_storage *storage = &g->storages[s];
  if (storage->owned != NULL) {
    if (storage->is_load) g->memory -= (size_t)storage->bytes;
    arm_graph_point(g, s, NULL);
    arm_storage_drop(arm_storage_device(g, storage), storage);
  } else if (storage->is_input) {
    arm_graph_point(g, s, NULL);
  }
  storage->is_released = 1;
}

int arm_load_expand(arm_graph *g, int all, arm_error *error) {
  int is_complete = 1, is_checked = 0;
  for (int32_t i = 0; i < g->num_nodes; i++) {
    arm_node *node = &g->nodes[i];
    if (!node->is_load) continue;
    readiness state = state_of(g, node);
    if (state == NOT_READY) {
      if (all) return arm_fail(error, "node %s: a parameter that it reads was never set", node->name);
      is_complete = 0;
    }
    if (state == READY && run_node(g, node, error) != 0) return arm_graph_end_run(g, -1, error);
    if (state == READY && node->kind == ARM_NODE_CALL) is_checked |= arm_bound_is_checked(&node->bound);
    for (int32_t k = 0; k < node->num_inputs && state == READY; k++) {
      int32_t s = g->entries[node->inputs[k]].storage;
      const arm_storage *from = &g->storages[s];
      if (!from->is_kept && from->last_load == i && (from->is_load || from->is_stored)) release(g, s);
    }
  }
  if (is_checked && arm_graph_end_run(g, 0, error) != 0) return -1;
  /* A node that still waits for an input has no result yet, and runs for that reason. */
  for (int32_t s = 0; s < g->num_storages; s++) g->storages[s].is_fresh = 0;
  g->is_stale = !is_complete;
  return 0;
}

/* ---- parameters ---- */

typedef struct {
  arm_graph *graph;
  int32_t storage;
  int count, is_stored, is_embedded;
  const char *summed; /* of a blob in a library: up to where its CRC-32 is known */
  uint32_t crc;
  void *between; /* host memory that values of a device's graph come through */
} loading;

static void add_up_to(loading *l, const char *end) {
  if (end > l->summed) l->crc = arm_crc32(l->crc, l->summed, (size_t)(end - l->summed));
  if (end > l->summed) l->summed = end;
}

static int place(void *context, const char *name, const arm_tensor *value, void **where, arm_error *error) {
  loading *l = context;
  int index = arm_graph_input_index(l->graph, name);
  *where = NULL;
  l->storage = -1;
  if (index < 0) return 0;
  int32_t entry = l->graph->nodes[l->graph->inputs[index]].first_entry;
  l->storage = l->graph->entries[entry].storage;
  arm_tensor typed = *value;
  typed.data = l->graph; /* only has to be there: the values follow */
  if (arm_graph_check_value(l->graph, &l->graph->entries[entry], name, &typed, error) != 0) return -1;
  arm_storage *storage = &l->graph->storages[l->storage];
  if (arm_storage_unshare(l->graph, l->storage, 0, error) != 0) return -1;
  arm_device device = arm_storage_device(l->graph, storage);
  if (storage->owned == NULL) storage->owned = arm_storage_allocate(l->graph, storage, error);
  if (storage->owned == NULL) return -1;
  if (storage->data != storage->owned) arm_graph_point(l->graph, l->storage, storage->owned);
  *where = storage->owned;
  if (device.type == ARM_CPU) return 0;
  *where = l->between = arm_alloc((size_t)storage->bytes);
  return l->between != NULL ? 0 : arm_fail(error, "graph: out of memory: parameter %s", name);
}

static int carry_over(loading *l, arm_error *error) {
  const arm_storage *storage = &l->graph->storages[l->storage];
  arm_device host = {ARM_CPU, 0}, device = arm_storage_device(l->graph, storage);
  int status = arm_memory_copy(device, storage->owned, host, l->between, (size_t)storage->bytes, error);
  arm_free(l->between);
  l->between = NULL;
  return status;
}

static int placed(void *context, arm_error *error) {
  loading *l = context;
  if (l->storage < 0) return 0;
  if (l->between != NULL && carry_over(l, error) != 0) return -1;
  l->count++;
  arm_graph_was_set(l->graph, l->storage);
  l->graph->storages[l->storage].is_stored = l->is_stored;
  if (l->graph->storages[l->storage].last_load < 0) return 0;
  return arm_load_expand(l->graph, 0, error);
}

/* Let go of the pages of a file that lie inside [data, data + size); they are read again when somebody looks. */
static void drop_pages(const void *data, size_t size) {
#if defined(__linux__)
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t first = ((uintptr_t)data + page - 1) / page * page, last = ((uintptr_t)data + size) / page * page;
  if (last > first) (void)madvise((void *)first, last - first, MADV_DONTNEED);
#else
  (void)data;
  (void)size;
#endif
}

/* Copy out of a library: its pages go as the copy grows, else a parameter of 400 MB is there twice for a while. */
static void move_out(loading *l, char *to, const char *from, size_t size) {
  const size_t step = (size_t)4 << 20;
  for (size_t done = 0; done < size; done += step) {
    size_t part = size - done < step ? size - done : step;
    memcpy(to + done, from + done, part);
    add_up_to(l, from + done + part);
    drop_pages(from + done, part);
  }
}

static int copy_param(void *context, const char *name, const arm_tensor *value, arm_error *error) {
  loading *l = context;
  void *where;
  int64_t bytes = 0;
  if (place(context, name, value, &where, error) != 0) return -1;
  (void)arm_tensor_bytes(value->shape, value->ndim, value->dtype, &bytes);
  if (where != NULL && bytes > 0 && l->is_embedded) move_out(l, where, arm_tensor_data(value), (size_t)bytes);
  if (where != NULL && bytes > 0 && !l->is_embedded) memcpy(where, arm_tensor_data(value), (size_t)bytes);
  return placed(context, error);
}

int arm_graph_load_params(arm_graph *g, const void *blob, size_t size, int *count, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  loading l = {g, -1, 0, 0, 0, NULL, 0, NULL};
  int status = arm_params_read(blob, size, copy_param, &l, &error);
  arm_free(l.between);
  *count = l.count;
  return status;
}

int arm_graph_load_embedded(arm_graph *g, int *count, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  size_t size;
  const char *blob = arm_module_params(g->module, &size);
  loading l = {g, -1, 0, 1, 1, blob, 0, NULL};
  int status = blob == NULL ? 0 : arm_params_read(blob, size, copy_param, &l, &error);
  arm_free(l.between);
  add_up_to(&l, blob == NULL ? NULL : blob + size);
  if (arm_params_sum_check(arm_module_params_sum(g->module), l.crc, &error) != 0) status = -1;
  *count = l.count;
  return status;
}

int arm_graph_read_params(arm_graph *g, int file, int64_t offset, int64_t size, int *count, uint32_t *crc, char *err,
                          size_t err_size) {
  arm_error error = {err, err_size};
  loading l = {g, -1, 0, 1, 0, NULL, 0, NULL};
  *count = 0;
  *crc = 0;
  if (offset < 0 || size < 0) return arm_fail(&error, "params: a negative offset or size");
  int status = arm_params_stream(file, offset, (uint64_t)size, place, placed, &l, crc, &error);
  arm_free(l.between);
  *count = l.count;
  return status;
}

int arm_graph_load(arm_graph *g, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (!g->is_stale) return 0;
  if (atomic_exchange(&g->running, 1)) return arm_fail(&error, "the graph is already running in another thread");
  int status = arm_load_expand(g, 0, &error);
  atomic_store(&g->running, 0);
  return status;
}

int arm_graph_input_stored(arm_graph *g, int index) {
  if (index < 0 || index >= g->num_inputs) return -1;
  g->storages[g->entries[g->nodes[g->inputs[index]].first_entry].storage].is_stored = 1;
  return 0;
}

int arm_graph_input_released(const arm_graph *g, int index) {
  if (index < 0 || index >= g->num_inputs) return -1;
  const arm_storage *storage = &g->storages[g->entries[g->nodes[g->inputs[index]].first_entry].storage];
  return storage->is_released && storage->data == NULL;
}

int arm_graph_input_is_set(const arm_graph *g, int index) {
  if (index < 0 || index >= g->num_inputs) return -1;
  return g->storages[g->entries[g->nodes[g->inputs[index]].first_entry].storage].is_set;
}
