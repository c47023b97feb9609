/* Reading graph JSON into the flat tables of arm_graph.
 *
 * In: Relay-era graph JSON with our `arena_offset`. Out: nodes, entries, storages, inputs, heads.
 * Invariant: every index is in range, edges point backwards, sizes are bounded; the JSON is not needed afterwards.
 */
#include <stdlib.h>
#include <string.h>

#include "arm_graph.h"

typedef struct { arm_graph *graph; arm_json json; arm_error *error; int32_t nodes; } reader;

#define KIND(r, v) ((r)->json.values[v].kind)

static int64_t decimal(const char *text) {
  int64_t number = 0;
  if (*text == 0) return -1;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || number > ARM_MAX_ITEMS) return -1;
    number = number * 10 + (*text - '0');
  }
  return number;
}

static int read_edge(reader *r, int32_t value, int32_t limit, int32_t *entry) {
  int64_t node, output = 0;
  const arm_json_value *v = &r->json.values[value];
  if (v->kind != ARM_LIST || v->count < 2 || v->count > 3 || arm_json_int(&r->json, v->first, 0, limit - 1, &node) != 0)
    return arm_fail(r->error, "graph: an edge is not [node, output, version] of an earlier node");
  const arm_node *source = &r->graph->nodes[node];
  if (arm_json_int(&r->json, r->json.values[v->first].next, 0, source->num_outputs - 1, &output) != 0)
    return arm_fail(r->error, "graph: an edge refers to an output that node %d does not have", (int)node);
  *entry = source->first_entry + (int32_t)output;
  return 0;
}

/* The size that a `__bind` gives its value. */
static int read_size_of(reader *r, int32_t attrs, arm_node *node, int32_t index) {
  int32_t size = arm_json_need(&r->json, attrs, "size", ARM_TEXT, "graph.nodes.attrs", r->error);
  if (size < 0) return -1;
  const arm_size_values *sizes = &r->graph->sizes;
  for (node->size = 0; node->size < sizes->count; node->size++)
    if (strcmp(sizes->names[node->size], r->json.values[size].text) == 0) break;
  if (node->size == sizes->count || node->num_inputs != 1 || node->num_outputs != 0)
    return arm_fail(r->error, "graph: node %d: a __bind reads one value, gives none, and names a size of the graph", index);
  return 0;
}

static int read_call(reader *r, int32_t row, arm_node *node, int32_t index) {
  int32_t attrs = arm_json_need(&r->json, row, "attrs", ARM_MAP, "graph.nodes", r->error);
  if (attrs < 0) return -1;
  int32_t function = arm_json_need(&r->json, attrs, "func_name", ARM_TEXT, "graph.nodes.attrs", r->error);
  int32_t outputs = arm_json_need(&r->json, attrs, "num_outputs", ARM_TEXT, "graph.nodes.attrs", r->error);
  if (function < 0 || outputs < 0) return -1;
  int64_t count = decimal(r->json.values[outputs].text);
  if (count < 0 || count > ARM_MAX_ITEMS || count + node->first_entry > ARM_MAX_ITEMS)
    return arm_fail(r->error, "graph: node %d has a bad num_outputs", index);
  node->num_outputs = (int32_t)count;
  const char *name = r->json.values[function].text;
  int32_t load = arm_json_get(&r->json, attrs, "load_time");
  node->is_load = load >= 0 && KIND(r, load) == ARM_TEXT && strcmp(r->json.values[load].text, "1") == 0;
  int32_t sized = arm_json_get(&r->json, attrs, "size_time");
  node->is_sized = !node->is_load && sized >= 0 && KIND(r, sized) == ARM_TEXT;
  int is_copy = strcmp(name, "__copy") == 0; /* from one device to another, or into a place of its own */
  if (is_copy || strcmp(name, "__nop") == 0) {
    node->kind = ARM_NODE_ALIAS;
    node->function = is_copy ? "__copy" : "__nop";
    if (node->num_inputs < 1 || count != 1)
      return arm_fail(r->error, "graph: a %s has inputs and one output", node->function);
    return 0;
  }
  if (strcmp(name, "__bind") == 0) {
    node->kind = ARM_NODE_BIND;
    node->function = "__bind";
    return read_size_of(r, attrs, node, index);
  }
  if (strcmp(name, "__equal") == 0) {
    node->kind = ARM_NODE_EQUAL;
    node->function = "__equal";
    return arm_equal_read(r->graph, &r->json, attrs, node, r->error);
  }
  if (arm_control_kind(name, &node->kind)) {
    node->function = node->kind == ARM_NODE_IF ? "__if" : node->kind == ARM_NODE_LOOP ? "__loop" : "__yield";
    return arm_control_read(&r->json, attrs, node, r->error);
  }
  const arm_function *f = arm_module_function(r->graph->module, arm_module_find(r->graph->module, name));
  if (f == NULL) return arm_fail(r->error, "graph: node %d calls %.80s, which the library does not have", index, name);
  node->kind = ARM_NODE_CALL;
  node->function = f->name;
  return 0;
}

static int read_node(reader *r, int32_t row, int32_t index) {
  arm_node *node = &r->graph->nodes[index];
  int32_t op = arm_json_need(&r->json, row, "op", ARM_TEXT, "graph.nodes", r->error);
  int32_t name = arm_json_need(&r->json, row, "name", ARM_TEXT, "graph.nodes", r->error);
  int32_t inputs = arm_json_need(&r->json, row, "inputs", ARM_LIST, "graph.nodes", r->error);
  if (op < 0 || name < 0 || inputs < 0) return -1;
  node->function = "";
  node->first_entry = r->graph->num_entries;
  node->name = arm_strdup(r->json.values[name].text, strlen(r->json.values[name].text));
  node->inputs = arm_zalloc((size_t)r->json.values[inputs].count, sizeof *node->inputs);
  if (node->name == NULL || node->inputs == NULL) return arm_fail(r->error, "graph: out of memory");
  for (int32_t v = r->json.values[inputs].first; v >= 0; v = r->json.values[v].next)
    if (read_edge(r, v, index, &node->inputs[node->num_inputs++]) != 0) return -1;
  if (strcmp(r->json.values[op].text, "null") == 0) {
    if (node->num_inputs != 0) return arm_fail(r->error, "graph: node %d is an input and has inputs", index);
    node->num_outputs = 1;
  } else if (strcmp(r->json.values[op].text, "tvm_op") == 0) {
    if (read_call(r, row, node, index) != 0) return -1;
  } else {
    return arm_fail(r->error, "graph: node %d has an unknown op \"%.40s\"", index, r->json.values[op].text);
  }
  r->graph->num_entries += node->num_outputs;
  return r->graph->num_entries <= ARM_MAX_ITEMS ? 0 : arm_fail(r->error, "graph: too many outputs of nodes");
}

static int read_nodes(reader *r) {
  arm_graph *g = r->graph;
  int32_t list = arm_json_need(&r->json, 0, "nodes", ARM_LIST, "graph", r->error);
  if (list < 0) return -1;
  if (r->json.values[list].count > ARM_MAX_ITEMS) return arm_fail(r->error, "graph: too many nodes");
  g->nodes = arm_zalloc((size_t)r->json.values[list].count, sizeof *g->nodes);
  if (g->nodes == NULL) return arm_fail(r->error, "graph: out of memory");
  for (int32_t v = r->json.values[list].first; v >= 0; v = r->json.values[v].next) {
    int32_t index = g->num_nodes++;
    if (read_node(r, v, index) != 0) return -1;
  }
  return 0;
}

/* The list of `attrs.key`, which is stored as [tag, list] and has one row per entry (unless `count` < 0). */
static int32_t tagged(reader *r, int32_t attrs, const char *key, const char *tag, int32_t count) {
  int32_t pair = arm_json_need(&r->json, attrs, key, ARM_LIST, "graph.attrs", r->error);
  if (pair < 0) return -1;
  const arm_json_value *values = r->json.values;
  int32_t first = values[pair].first;
  if (values[pair].count != 2 || values[first].kind != ARM_TEXT || strcmp(values[first].text, tag) != 0 ||
      KIND(r, values[first].next) != ARM_LIST)
    return arm_fail(r->error, "graph.attrs.%s: [\"%s\", [...]] is expected", key, tag);
  int32_t list = values[first].next;
  if (count >= 0 && values[list].count != count)
    return arm_fail(r->error, "graph.attrs.%s: %d rows for %d outputs of nodes", key, values[list].count, count);
  return list;
}

static int read_shape(reader *r, int32_t value, arm_entry *entry) {
  if (KIND(r, value) != ARM_LIST || r->json.values[value].count > ARM_MAX_NDIM)
    return arm_fail(r->error, "graph.attrs.shape: a row is not a list of at most %d sizes", ARM_MAX_NDIM);
  for (int32_t v = r->json.values[value].first; v >= 0; v = r->json.values[v].next) {
    int axis = entry->tensor.ndim++;
    if (KIND(r, v) == ARM_TEXT) {
      if (arm_sizes_read_dim(r->graph, r->json.values[v].text, entry, axis, r->error) != 0) return -1;
    } else if (arm_json_int(&r->json, v, 0, ARM_MAX_BYTES, &entry->shape[axis]) != 0) {
      return arm_fail(r->error, "graph.attrs.shape: a size is not an integer in range");
    }
  }
  return 0;
}

static int read_entries(reader *r, int32_t attrs) {
  arm_graph *g = r->graph;
  int32_t shape = tagged(r, attrs, "shape", "list_shape", g->num_entries);
  int32_t dtype = tagged(r, attrs, "dltype", "list_str", g->num_entries);
  int32_t storage = tagged(r, attrs, "storage_id", "list_int", g->num_entries);
  if (shape < 0 || dtype < 0 || storage < 0) return -1;
  g->entries = arm_zalloc((size_t)g->num_entries, sizeof *g->entries);
  if (g->entries == NULL) return arm_fail(r->error, "graph: out of memory");
  const arm_json_value *values = r->json.values;
  shape = values[shape].first;
  dtype = values[dtype].first;
  storage = values[storage].first;
  for (int32_t i = 0; i < g->num_entries; i++) {
    arm_entry *entry = &g->entries[i];
    int64_t id;
    entry->tensor = (arm_tensor){NULL, {1, 0}, 0, {0, 0, 0}, entry->shape, NULL, 0};
    if (read_shape(r, shape, entry) != 0) return -1;
    if (KIND(r, dtype) != ARM_TEXT || arm_dtype_parse(values[dtype].text, &entry->tensor.dtype) != 0)
      return arm_fail(r->error, "graph.attrs.dltype: row %d is not a known dtype", i);
    if (arm_json_int(&r->json, storage, 0, ARM_MAX_ITEMS, &id) != 0)
      return arm_fail(r->error, "graph.attrs.storage_id: row %d is not an id", i);
    if (arm_tensor_bytes(entry->shape, entry->tensor.ndim, entry->tensor.dtype, &entry->bytes) != 0)
      return arm_fail(r->error, "graph: output %d is too large", i);
    entry->storage = (int32_t)id;
    if (id >= g->num_storages) g->num_storages = (int32_t)id + 1;
    shape = values[shape].next;
    dtype = values[dtype].next;
    storage = values[storage].next;
  }
  return 0;
}

/* "image_width": for each storage id the width of the image that holds it, or 0. */
static int read_images(reader *r, int32_t attrs) {
  arm_graph *g = r->graph;
  if (arm_json_get(&r->json, attrs, "image_width") < 0) return 0;
  int32_t list = tagged(r, attrs, "image_width", "list_int", g->num_storages);
  if (list < 0) return -1;
  int32_t value = r->json.values[list].first;
  for (int32_t s = 0; s < g->num_storages; s++, value = r->json.values[value].next)
    if (arm_json_int(&r->json, value, 0, ARM_MAX_ITEMS, &g->storages[s].width) != 0)
      return arm_fail(r->error, "graph.attrs.image_width: row %d is not a width", s);
  for (int32_t i = 0; i < g->num_entries; i++) {
    arm_storage *storage = &g->storages[g->entries[i].storage];
    if (storage->width == 0) continue;
    int32_t bits = g->entries[i].tensor.dtype.bits;
    if ((bits != 16 && bits != 32) || (storage->bits != 0 && storage->bits != bits))
      return arm_fail(r->error, "graph.attrs.image_width: output %d is of no type that images hold", i);
    if (g->entries[i].bytes % (storage->width * bits / 2) != 0)
      return arm_fail(r->error, "graph.attrs.image_width: output %d is no whole rows of its image", i);
    storage->bits = bits;
  }
  return 0;
}

/* `device_index`: for each entry the type of the device that it lies on. Without it, all are on the first. */
static int read_devices(reader *r, int32_t attrs) {
  arm_graph *g = r->graph;
  if (arm_json_get(&r->json, attrs, "device_index") < 0)
    return g->num_devices == 1 ? 0 : arm_fail(r->error, "graph: %d devices are given, but it was built for one",
                                              g->num_devices);
  int32_t list = tagged(r, attrs, "device_index", "list_int", g->num_entries);
  if (list < 0) return -1;
  for (int32_t s = 0; s < g->num_storages; s++) g->storages[s].device = -1;
  int32_t value = r->json.values[list].first;
  for (int32_t i = 0; i < g->num_entries; i++, value = r->json.values[value].next) {
    arm_storage *storage = &g->storages[g->entries[i].storage];
    int64_t type;
    if (arm_json_int(&r->json, value, 1, 255, &type) != 0)
      return arm_fail(r->error, "graph.attrs.device_index: row %d is no type of a device", i);
    int32_t device = arm_graph_device_of(g, (int32_t)type, r->error);
    if (device < 0) return -1;
    if (storage->device >= 0 && storage->device != device)
      return arm_fail(r->error, "graph.attrs.device_index: row %d shares storage with a value of another device", i);
    storage->device = device;
  }
  for (int32_t s = 0; s < g->num_storages; s++)
    if (g->storages[s].device < 0) g->storages[s].device = 0; /* of no entry */
  return 0;
}

static int read_storages(reader *r, int32_t attrs) {
  arm_graph *g = r->graph;
  g->storages = arm_zalloc((size_t)g->num_storages, sizeof *g->storages);
  if (g->storages == NULL) return arm_fail(r->error, "graph: out of memory");
  for (int32_t s = 0; s < g->num_storages; s++) g->storages[s].offset = g->storages[s].first_slot = -1;
  for (int32_t i = 0; i < g->num_entries; i++) {
    arm_storage *storage = &g->storages[g->entries[i].storage];
    if (g->entries[i].bytes > storage->bytes) storage->bytes = g->entries[i].bytes;
  }
  if (read_images(r, attrs) != 0 || read_devices(r, attrs) != 0) return -1;
  if (g->sizes.count > 0) {
    int32_t lifetimes = tagged(r, attrs, "lifetime", "list_int", -1);
    return lifetimes < 0 ? -1 : arm_sizes_read_lifetimes(g, &r->json, lifetimes, r->error);
  }
  if (arm_json_get(&r->json, attrs, "arena_offset") < 0) return 0;
  int32_t list = tagged(r, attrs, "arena_offset", "list_int", -1);
  if (list < 0) return -1;
  if (r->json.values[list].count < g->num_storages)
    return arm_fail(r->error, "graph.attrs.arena_offset: %d rows for %d storage ids", r->json.values[list].count,
                    g->num_storages);
  int32_t value = r->json.values[list].first;
  for (int32_t s = 0; s < g->num_storages; s++, value = r->json.values[value].next)
    if (arm_json_int(&r->json, value, -1, ARM_MAX_BYTES, &g->storages[s].offset) != 0)
      return arm_fail(r->error, "graph.attrs.arena_offset: row %d is not an offset", s);
  return 0;
}

static int read_inputs(reader *r) {
  arm_graph *g = r->graph;
  int32_t list = arm_json_need(&r->json, 0, "arg_nodes", ARM_LIST, "graph", r->error), expected = 0;
  if (list < 0) return -1;
  for (int32_t i = 0; i < g->num_nodes; i++) expected += g->nodes[i].kind == ARM_NODE_INPUT;
  if (r->json.values[list].count != expected)
    return arm_fail(r->error, "graph: arg_nodes lists %d of %d inputs", r->json.values[list].count, expected);
  g->inputs = arm_zalloc((size_t)expected, sizeof *g->inputs);
  if (g->inputs == NULL) return arm_fail(r->error, "graph: out of memory");
  for (int32_t v = r->json.values[list].first; v >= 0; v = r->json.values[v].next) {
    int64_t node;
    if (arm_json_int(&r->json, v, 0, g->num_nodes - 1, &node) != 0 || g->nodes[node].kind != ARM_NODE_INPUT)
      return arm_fail(r->error, "graph: arg_nodes lists something that is not an input");
    arm_storage *storage = &g->storages[g->entries[g->nodes[node].first_entry].storage];
    if (storage->is_input) return arm_fail(r->error, "graph: two inputs share a storage id");
    storage->is_input = 1;
    storage->offset = -1; /* an input keeps its value from run to run, so the arena may not reuse its place */
    g->inputs[g->num_inputs++] = (int32_t)node;
  }
  return 0;
}

/* "state": the nodes of inputs that a run writes. */
static int read_states(reader *r, int32_t attrs) {
  if (arm_json_get(&r->json, attrs, "state") < 0) return 0;
  int32_t list = tagged(r, attrs, "state", "list_int", -1);
  return list < 0 ? -1 : arm_states_read(r->graph, &r->json, list, r->error);
}

static int read_heads(reader *r) {
  arm_graph *g = r->graph;
  int32_t list = arm_json_need(&r->json, 0, "heads", ARM_LIST, "graph", r->error);
  if (list < 0) return -1;
  g->heads = arm_zalloc((size_t)r->json.values[list].count, sizeof *g->heads);
  g->copy_out = arm_zalloc((size_t)r->json.values[list].count, sizeof *g->copy_out);
  if (g->heads == NULL || g->copy_out == NULL) return arm_fail(r->error, "graph: out of memory");
  for (int32_t v = r->json.values[list].first; v >= 0; v = r->json.values[v].next) {
    if (read_edge(r, v, g->num_nodes, &g->heads[g->num_heads]) != 0) return -1;
    g->storages[g->entries[g->heads[g->num_heads++]].storage].heads++;
  }
  return 0;
}

int arm_plan_read(arm_graph *graph, const char *text, size_t size, arm_error *error) {
  reader r = {graph, {NULL, 0, 0, NULL}, error, 0};
  if (arm_json_parse(text, size, &r.json, error) != 0) return -1;
  int status = arm_sizes_read(graph, &r.json, error);
  if (status == 0) status = read_nodes(&r);
  if (status == 0) {
    int32_t attrs = arm_json_need(&r.json, 0, "attrs", ARM_MAP, "graph", error);
    status = attrs < 0 ? -1 : read_entries(&r, attrs);
    if (status == 0) status = read_storages(&r, attrs);
    if (status == 0) status = read_states(&r, attrs);
  }
  if (status == 0) status = read_inputs(&r);
  if (status == 0) status = read_heads(&r);
  if (status == 0) status = arm_control_check(graph, -1, error);
  if (status == 0) status = arm_variants_read(graph, &r.json, error);
  arm_json_free(&r.json);
  return status;
}
