/* Inputs and outputs in memory that users give.
 *
 * In: a tensor for an input or an output. Out: the pointers that refer to its storage point there, from now on; an output
 * whose memory other values use as well is copied there behind the run. Invariant: where users gave memory, no byte that a
 * run writes as an output is one of another output, of an input, or of what the graph has in its arena. An output is
 * checked when it is given. What an input brings is checked at the next run: its memory may be that of an output which
 * moves on first, as where two buffers take turns.
 */
#include "arm_graph.h"

static int check_direct(const arm_graph *g, const arm_entry *entry, const char *what, const arm_tensor *value,
                        arm_error *error) {
  arm_device device = arm_storage_device(g, &g->storages[entry->storage]);
  if (value->device.type != device.type || value->device.id != device.id)
    return arm_fail(error, "%s: the tensor is on a device of type %d; without copying it must be on the graph's, type %d",
                    what, value->device.type, device.type);
  if (!arm_tensor_dense(value)) return arm_fail(error, "%s: only a contiguous tensor can be used without copying", what);
  if ((uintptr_t)arm_tensor_data(value) % (uintptr_t)arm_dtype_bytes(value->dtype) != 0)
    return arm_fail(error, "%s: the tensor is not aligned to its element", what);
  return 0;
}

/* Where a value lies; whether that is a user's memory. */
typedef struct { const void *data; int64_t bytes; int is_users; int32_t storage; /* of the graph, or -1 */ } place;

static place place_of(const arm_graph *g, int32_t entry) {
  const arm_storage *s = &g->storages[g->entries[entry].storage];
  return (place){s->data, g->entries[entry].bytes, s->offset < 0 && s->data != s->owned, g->entries[entry].storage};
}

static place place_of_head(const arm_graph *g, int32_t head) {
  place found = place_of(g, g->heads[head]);
  if (g->copy_out[head] != NULL) found = (place){g->copy_out[head], found.bytes, 1, -1};
  return found;
}

static int meet(place a, place b) {
  int is_one_value = a.storage >= 0 && a.storage == b.storage;
  return (a.is_users || b.is_users) && !is_one_value && arm_overlap(a.data, a.bytes, b.data, b.bytes);
}

static int meets_arena(const arm_graph *g, place p) {
  for (int32_t d = 0; d < g->num_devices; d++)
    if (p.is_users && arm_overlap(p.data, p.bytes, g->devices[d].arena, g->devices[d].arena_bytes)) return 1;
  for (int32_t k = 1; k <= g->num_stages; k++)
    if (p.is_users && arm_overlap(p.data, p.bytes, g->stages[k].arena, g->stages[k].bytes)) return 1;
  return 0;
}

/* Whether output `head` of the present variant may be written to a place, as far as the outputs before it say: those
 * behind it may still lie where an earlier run wrote them, and get their places before the next one. */
static int check_output(const arm_graph *g, int32_t head, place p, arm_error *error) {
  const arm_variant *v = &g->variants[g->active];
  int index = head - v->first_head;
  for (int32_t i = v->first_head; i < head; i++)
    if (meet(p, place_of_head(g, i)))
      return arm_fail(error, "output %d lies over output %d: give each memory of its own", index, i - v->first_head);
  for (int32_t i = 0; i < g->num_inputs; i++)
    if (arm_variants_uses(g, i) && meet(p, place_of(g, g->nodes[g->inputs[i]].first_entry)))
      return arm_fail(error, "output %d lies over input %s, which a run reads: give each memory of its own", index,
                      arm_graph_input_name(g, i));
  if (!meets_arena(g, p)) return 0;
  return arm_fail(error, "output %d lies over other values of the graph: give it memory of its own", index);
}

int arm_places_check(arm_graph *g, arm_error *error) {
  const arm_variant *v = &g->variants[g->active];
  for (int32_t i = v->first_head; i < v->first_head + v->num_heads; i++) {
    const arm_storage *s = &g->storages[g->entries[g->heads[i]].storage];
    if (s->is_input && g->copy_out[i] == NULL) continue; /* nothing is written */
    if (check_output(g, i, place_of_head(g, i), error) != 0) return -1;
  }
  for (int32_t i = 0; i < g->num_inputs; i++)
    if (arm_variants_uses(g, i) && meets_arena(g, place_of(g, g->nodes[g->inputs[i]].first_entry)))
      return arm_fail(error, "input %s lies over other values of the graph: give it memory of its own",
                      arm_graph_input_name(g, i));
  g->is_unchecked = 0;
  return 0;
}

int arm_graph_set_input_zero_copy(arm_graph *g, int index, const arm_tensor *value, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int32_t entry = arm_graph_input_entry(g, index, &error);
  if (entry < 0) return -1;
  const char *name = arm_graph_input_name(g, index);
  if (arm_graph_check_value(g, &g->entries[entry], name, value, &error) != 0) return -1;
  if (check_direct(g, &g->entries[entry], name, value, &error) != 0) return -1;
  if (g->entries[entry].extents != NULL) arm_sizes_take(g, &g->entries[entry], value);
  g->is_unchecked = 1;
  arm_graph_point(g, g->entries[entry].storage, arm_tensor_data(value));
  arm_graph_was_set(g, g->entries[entry].storage);
  return 0;
}

int arm_graph_set_output_zero_copy(arm_graph *g, int index, const arm_tensor *value, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  const arm_variant *v = &g->variants[g->active];
  if (index < 0 || index >= v->num_heads)
    return arm_fail(&error, "the graph has %d outputs; there is no output %d", v->num_heads, index);
  index += v->first_head;
  const arm_entry *entry = &g->entries[g->heads[index]];
  if (entry->stage > 0) return arm_fail(&error, "output %d: its shape is known only after a run: copy it", index - v->first_head);
  if (arm_sizes_bind(g, &error) != 0) return -1;
  if (arm_graph_check_value(g, entry, "output", value, &error) != 0) return -1;
  if (check_direct(g, entry, "output", value, &error) != 0) return -1;
  void *data = arm_tensor_data(value);
  arm_storage *storage = &g->storages[entry->storage];
  if (!storage->is_input && data == place_of_head(g, index).data) return 0; /* it lies there already */
  if (check_output(g, index, (place){data, entry->bytes, 1, -1}, &error) != 0) return -1;
  g->is_unchecked = 1; /* against the outputs behind it, too */
  /* Memory that other values use as well cannot move to the user's buffer: the result is copied there after the run. */
  int exclusive = storage->offset < 0 && !storage->is_input && !storage->is_load && storage->heads == 1 &&
                  storage->bytes == entry->bytes;
  if (exclusive) arm_graph_point(g, entry->storage, data);
  else g->copy_out[index] = data;
  return 0;
}
