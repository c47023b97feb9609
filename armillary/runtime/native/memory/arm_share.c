/* Loaded parameters that several graphs use.
 *
 * In: a graph that has its parameters, and what its load-time nodes made of them. Out: a set of that memory, which other
 * graphs of the same JSON take instead of loading their own. Invariant: memory that has users is never written to: a graph
 * that sets a parameter, hands out a view of it or computes it anew takes memory of its own first. The last user frees.
 * Threads: taking and letting go of a set is safe from any; a graph is still one thread's at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "arm_graph.h"

struct arm_weights {
  int32_t count;
  arm_graph_device devices[ARM_MAX_GRAPH_DEVICES];
  arm_storage *rows; /* per storage of the graph; only those with `users` hold memory */
};

void arm_storage_drop(arm_device device, arm_storage *storage) {
  if (storage->users == NULL) {
    arm_memory_release(device, storage->owned);
  } else if (atomic_fetch_sub(storage->users, 1) == 1) {
    arm_memory_release(device, storage->owned);
    free((void *)storage->users);
  }
  storage->owned = NULL;
  storage->users = NULL;
}

int arm_storage_unshare(arm_graph *g, int32_t s, int copy, arm_error *error) {
  arm_storage *storage = &g->storages[s];
  if (storage->users == NULL) return 0;
  if (atomic_load(storage->users) == 1) { /* nobody is left who could give it to others */
    free((void *)storage->users);
    storage->users = NULL;
    return 0;
  }
  arm_device device = arm_storage_device(g, storage);
  arm_storage old = *storage;
  int is_used = storage->data == storage->owned, status = 0;
  storage->users = NULL;
  storage->owned = NULL;
  if (is_used) arm_graph_point(g, s, NULL);
  if (is_used && copy) {
    storage->owned = arm_storage_allocate(g, storage, error);
    if (storage->owned == NULL) status = -1;
    else status = arm_memory_copy(device, storage->owned, device, old.owned, (size_t)storage->bytes, error);
    if (status == 0) arm_graph_point(g, s, storage->owned);
  }
  arm_storage_drop(device, &old);
  return status;
}

static int is_parameter(const arm_storage *storage) {
  return storage->is_set && (storage->is_load || storage->is_stored || storage->is_released);
}

/* A row of a set: the storage with one user more, if its memory is the graph's. */
static int publish_row(arm_storage *storage, arm_storage *row) {
  int is_own = storage->owned != NULL && storage->data == storage->owned;
  if (is_own && storage->users == NULL) {
    storage->users = malloc(sizeof *storage->users);
    if (storage->users == NULL) return -1;
    atomic_init(storage->users, 1);
  }
  *row = *storage;
  if (is_own) atomic_fetch_add(storage->users, 1);
  else row->users = NULL;
  return 0;
}

arm_weights *arm_graph_publish(arm_graph *g) {
  arm_weights *made = g->is_stale ? NULL : arm_zalloc(1, sizeof *made);
  if (made == NULL) return NULL;
  memcpy(made->devices, g->devices, sizeof made->devices);
  made->rows = arm_zalloc((size_t)g->num_storages, sizeof *made->rows);
  int status = made->rows == NULL ? -1 : 0;
  for (int32_t s = 0; s < g->num_storages && status == 0; s++) {
    made->count = s + 1;
    if (is_parameter(&g->storages[s])) status = publish_row(&g->storages[s], &made->rows[s]);
  }
  if (status == 0) return made;
  arm_weights_release(made);
  return NULL;
}

void arm_weights_release(arm_weights *weights) {
  if (weights == NULL) return;
  for (int32_t s = 0; s < weights->count; s++)
    if (weights->rows[s].users != NULL)
      arm_storage_drop(weights->devices[weights->rows[s].device].device, &weights->rows[s]);
  free(weights->rows);
  free(weights);
}

/* Whether two graphs put storages of one number on one device. */
static int is_alike(const arm_graph_device *one, const arm_graph *g) {
  for (int32_t d = 0; d < g->num_devices; d++)
    if (one[d].device.type != g->devices[d].device.type || one[d].device.id != g->devices[d].device.id) return 0;
  return 1;
}

int arm_graph_adopt(arm_graph *g, const arm_weights *weights, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (weights->count != g->num_storages || !is_alike(weights->devices, g))
    return arm_fail(&error, "the shared parameters are of another graph");
  for (int32_t s = 0; s < g->num_storages; s++) {
    const arm_storage *row = &weights->rows[s];
    arm_storage *storage = &g->storages[s];
    if (row->bytes != 0 && row->bytes != storage->bytes)
      return arm_fail(&error, "the shared parameters are of another graph");
    if (row->users != NULL) {
      arm_storage_drop(arm_storage_device(g, storage), storage);
      atomic_fetch_add(row->users, 1);
      storage->owned = row->owned;
      storage->users = row->users;
      arm_graph_point(g, s, storage->owned);
    } else if (!row->is_released) {
      continue;
    }
    storage->is_set = 1;
    storage->is_released = row->is_released;
    storage->is_stored = row->is_stored;
  }
  for (int32_t s = 0; s < g->num_storages; s++) g->storages[s].is_fresh = 0;
  g->is_stale = 0; /* all that depends on parameters is there */
  return 0;
}
