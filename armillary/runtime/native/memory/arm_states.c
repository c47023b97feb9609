/* States: inputs that a run writes. They are zero until somebody sets them or a run does, and stay from run to run.
 *
 * In: graph.attrs.state, the nodes of such inputs. Out: storages that are marked, of which copies and calls that change
 * them in place are taken. Invariant: a state has fixed sizes, and memory of its own unless a user gave it some.
 */
#include "../arm_graph.h"

static arm_storage *storage_of(const arm_graph *g, int index) {
  return &g->storages[g->entries[g->nodes[g->inputs[index]].first_entry].storage];
}

int arm_states_read(arm_graph *g, const arm_json *json, int32_t list, arm_error *error) {
  for (int32_t v = json->values[list].first; v >= 0; v = json->values[v].next) {
    int64_t node;
    if (arm_json_int(json, v, 0, g->num_nodes - 1, &node) != 0 || g->nodes[node].kind != ARM_NODE_INPUT)
      return arm_fail(error, "graph.attrs.state: a row is no input of the graph");
    const arm_entry *entry = &g->entries[g->nodes[node].first_entry];
    if (entry->extents != NULL || g->storages[entry->storage].width > 0)
      return arm_fail(error, "graph.attrs.state: %s has open sizes or lies in an image", g->nodes[node].name);
    g->storages[entry->storage].is_state = 1;
  }
  return 0;
}

int arm_states_begin(arm_graph *g, int32_t storage, arm_error *error) {
  if (arm_graph_own(g, storage, error) != 0) return -1;
  arm_graph_was_set(g, storage);
  return 0;
}

int arm_graph_input_is_state(const arm_graph *g, int index) {
  return index < 0 || index >= g->num_inputs ? -1 : storage_of(g, index)->is_state;
}

int arm_graph_reset_states(arm_graph *g, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  for (int i = 0; i < g->num_inputs; i++) {
    arm_storage *s = storage_of(g, i);
    if (!s->is_state || s->data == NULL) continue;
    if (arm_memory_clear(arm_storage_device(g, s), s->data, (size_t)s->bytes, &error) != 0) return -1;
    s->is_set = 1;
  }
  return 0;
}
