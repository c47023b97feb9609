/* Variants: one graph's alternatives, each for inputs of certain shapes; they share parameters, kernels and the arena.
 *
 * In: `variants` of graph JSON: for each its nodes [begin, end), its inputs and its heads [first, count]. Without the key
 * the whole graph is the only variant. Out: which variant runs: the one that takes what was set last, input by input.
 * Invariant: ranges do not overlap, and a variant reads its own nodes, inputs, parameters and load-time results only; an
 * input of one name and shape is one node for all variants, so its value outlives a change of variant.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_graph.h"

#define MAX_VARIANTS 1024

/* Two integers of a list: a range that lies in [0, limit]. */
static int read_pair(const arm_json *json, int32_t row, const char *key, int64_t limit, int64_t out[2],
                     arm_error *error) {
  int32_t list = arm_json_need(json, row, key, ARM_LIST, "graph.variants", error);
  if (list < 0) return -1;
  int32_t first = json->values[list].first;
  if (json->values[list].count != 2 || arm_json_int(json, first, 0, limit, &out[0]) != 0 ||
      arm_json_int(json, json->values[first].next, 0, limit, &out[1]) != 0)
    return arm_fail(error, "graph.variants: %s is not a range of the graph", key);
  return 0;
}

static int read_inputs(arm_graph *g, const arm_json *json, int32_t row, arm_variant *v, arm_error *error) {
  int32_t list = arm_json_need(json, row, "inputs", ARM_LIST, "graph.variants", error);
  if (list < 0) return -1;
  v->inputs = arm_zalloc((size_t)json->values[list].count, sizeof *v->inputs);
  if (v->inputs == NULL) return arm_fail(error, "graph: out of memory");
  for (int32_t i = json->values[list].first; i >= 0; i = json->values[i].next) {
    int64_t index;
    if (arm_json_int(json, i, 0, g->num_inputs - 1, &index) != 0)
      return arm_fail(error, "graph.variants: an input is not one of the graph's %d", g->num_inputs);
    v->inputs[v->num_inputs++] = (int32_t)index;
    g->nodes[g->inputs[index]].is_choice = 1;
  }
  return 0;
}

static int read_variant(arm_graph *g, const arm_json *json, int32_t row, arm_variant *v, int64_t *used,
                        arm_error *error) {
  int64_t nodes[2], heads[2];
  if (json->values[row].kind != ARM_MAP) return arm_fail(error, "graph.variants: a row is not a map");
  if (read_pair(json, row, "nodes", g->num_nodes, nodes, error) != 0 ||
      read_pair(json, row, "heads", g->num_heads, heads, error) != 0)
    return -1;
  if (nodes[0] < *used || nodes[1] < nodes[0] || heads[1] > g->num_heads - heads[0])
    return arm_fail(error, "graph.variants: the parts of a variant overlap another's, or leave the graph");
  for (int64_t i = nodes[0]; i < nodes[1]; i++)
    if (g->nodes[i].owner >= 0 && g->nodes[i].owner < nodes[0])
      return arm_fail(error, "graph.variants: a variant begins inside a branch or loop");
  *used = v->end = (int32_t)nodes[1];
  v->begin = (int32_t)nodes[0];
  v->first_head = (int32_t)heads[0];
  v->num_heads = (int32_t)heads[1];
  return read_inputs(g, json, row, v, error);
}

int arm_variants_read(arm_graph *g, const arm_json *json, arm_error *error) {
  int32_t list = arm_json_get(json, 0, "variants");
  int32_t count = list < 0 ? 1 : json->values[list].count;
  if (list >= 0 && (json->values[list].kind != ARM_LIST || count < 1 || count > MAX_VARIANTS))
    return arm_fail(error, "graph.variants: not a list of 1 to %d variants", MAX_VARIANTS);
  g->variants = arm_zalloc((size_t)count, sizeof *g->variants);
  if (g->variants == NULL) return arm_fail(error, "graph: out of memory");
  g->num_variants = count;
  if (list < 0) {
    g->variants[0] = (arm_variant){.end = g->num_nodes, .num_heads = g->num_heads};
    return 0;
  }
  int64_t used = 0;
  int32_t index = 0;
  for (int32_t row = json->values[list].first; row >= 0; row = json->values[row].next)
    if (read_variant(g, json, row, &g->variants[index++], &used, error) != 0) return -1;
  return 0;
}

void arm_variants_free(arm_graph *g) {
  for (int32_t v = 0; g->variants != NULL && v < g->num_variants; v++) free(g->variants[v].inputs);
  free(g->variants);
}

/* Whether the input takes part in what runs: a parameter, or an input of the present variant. */
int arm_variants_uses(const arm_graph *g, int index) {
  const arm_variant *v = &g->variants[g->active];
  if (!g->nodes[g->inputs[index]].is_choice) return 1;
  for (int32_t i = 0; i < v->num_inputs; i++)
    if (v->inputs[i] == index) return 1;
  return 0;
}

/* ---- choosing ---- */

static const char *name_of(const arm_graph *g, int32_t index) { return g->nodes[g->inputs[index]].name; }

static int takes(const arm_graph *g, int32_t index, const char *name, const arm_tensor *value) {
  const arm_entry *entry = &g->entries[g->nodes[g->inputs[index]].first_entry];
  return strcmp(name_of(g, index), name) == 0 && entry->tensor.ndim == value->ndim &&
         memcmp(entry->shape, value->shape, sizeof(int64_t) * (size_t)value->ndim) == 0;
}

/* Whether no other input of that name was set later. */
static int is_latest(const arm_graph *g, int32_t index) {
  uint64_t stamp = g->nodes[g->inputs[index]].stamp;
  for (int32_t i = 0; i < g->num_inputs; i++)
    if (g->nodes[g->inputs[i]].stamp > stamp && strcmp(name_of(g, i), name_of(g, index)) == 0) return 0;
  return stamp > 0;
}

static int32_t score(const arm_graph *g, const arm_variant *v) {
  int32_t sum = 0;
  for (int32_t i = 0; i < v->num_inputs; i++) sum += is_latest(g, v->inputs[i]);
  return sum;
}

static int refuse(const arm_graph *g, const char *name, const arm_tensor *value, arm_error *error) {
  char got[256], shape[256], list[700] = "";
  size_t used = 0;
  for (int32_t i = 0; i < g->num_inputs && used < sizeof list - 1; i++) {
    const arm_entry *entry = &g->entries[g->nodes[g->inputs[i]].first_entry];
    if (strcmp(name_of(g, i), name) != 0) continue;
    arm_shape_text(shape, sizeof shape, entry->shape, entry->tensor.ndim);
    int written = snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", shape);
    used += written > 0 ? (size_t)written : 0;
  }
  if (used == 0) return arm_fail(error, "the model has no input %s", name);
  arm_shape_text(got, sizeof got, value->shape, value->ndim < ARM_MAX_NDIM ? value->ndim : 0);
  return arm_fail(error, "input %s: no variant is compiled for shape %s; there are: %s", name, got, list);
}

int arm_graph_pick(arm_graph *g, const char *name, const arm_tensor *value, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  int32_t found = -1, best = -1, best_score = -1;
  for (int32_t i = 0; i < g->num_inputs && found < 0; i++) {
    if (strcmp(name_of(g, i), name) == 0 && !g->nodes[g->inputs[i]].is_choice) return i; /* checked when it is set */
    if (takes(g, i, name, value)) found = i;
  }
  if (found < 0) return refuse(g, name, value, &error);
  if (atomic_load(&g->running)) return arm_fail(&error, "the graph is running in another thread");
  g->nodes[g->inputs[found]].stamp = ++g->stamps;
  for (int32_t k = 0; k < g->num_variants; k++) {
    int32_t v = (g->active + k) % g->num_variants; /* of equals, the present one */
    int takes_it = 0;
    for (int32_t i = 0; i < g->variants[v].num_inputs; i++) takes_it = takes_it || g->variants[v].inputs[i] == found;
    if (!takes_it || score(g, &g->variants[v]) <= best_score) continue;
    best = v;
    best_score = score(g, &g->variants[v]);
  }
  g->is_unchecked = g->is_unchecked || g->active != best;
  g->active = best;
  return found;
}

int arm_graph_num_variants(const arm_graph *g) { return g->num_variants; }
int arm_graph_variant(const arm_graph *g) { return g->active; }

int arm_graph_set_variant(arm_graph *g, int variant, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (variant < 0 || variant >= g->num_variants)
    return arm_fail(&error, "the graph has %d variants; there is no variant %d", g->num_variants, variant);
  g->is_unchecked = 1;
  g->active = variant;
  return 0;
}

int arm_graph_input_used(const arm_graph *g, int index) {
  return index >= 0 && index < g->num_inputs && arm_variants_uses(g, index);
}
