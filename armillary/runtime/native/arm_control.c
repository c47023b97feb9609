/* Control flow of graphs: branches and loops as ranges of the graph's own nodes.
 *
 * In: nodes that call `__if`, `__loop` or `__yield`. Out: their fields, checked; and a run of one of them.
 * The nodes right after an `__if` are its first, then its second region; those after a `__loop` are its body. A region
 * ends with a `__yield`, whose inputs become the outputs of the node that owns the region. Values from outside are read
 * as any other: edges point backwards, and the memory plan keeps what a body reads until the loop ends.
 *
 *   __if     inputs: condition                 outputs: results
 *   __loop   inputs: limit, going, states...   outputs: states..., scans..., iterations done, going
 *   __yield  in a branch: results              in a loop: going, states..., parts (one row of each scan)
 *
 * Invariant: regions nest, lie inside the graph and are entered through their owner only; sizes in bytes agree; a loop
 * never writes more rows than its scans have. Running allocates nothing. Where to look next: arm_graph.c.
 */
#include <stdlib.h>
#include <string.h>

#include "arm_graph.h"

#define MAX_NESTING 64

int arm_control_kind(const char *function, arm_node_kind *kind) {
  static const struct { const char *name; arm_node_kind kind; } table[] = {
    {"__if", ARM_NODE_IF}, {"__loop", ARM_NODE_LOOP}, {"__yield", ARM_NODE_YIELD}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(function, table[i].name) != 0) continue;
    *kind = table[i].kind;
    return 1;
  }
  return 0;
}

/* ---- reading ---- */

static int read_count(const arm_json *json, int32_t attrs, const char *key, int64_t *out, arm_error *error) {
  int32_t value = arm_json_need(json, attrs, key, ARM_TEXT, "graph.nodes.attrs", error);
  if (value < 0) return -1;
  const char *text = json->values[value].text;
  char *end;
  long long number = strtoll(text, &end, 10);
  if (*text == 0 || *end != 0 || number < -1 || number > ARM_MAX_BYTES)
    return arm_fail(error, "graph: %s \"%.40s\" is not a count", key, text);
  *out = number;
  return 0;
}

static int read_small(const arm_json *json, int32_t attrs, const char *key, int32_t *out, arm_error *error) {
  int64_t number;
  if (read_count(json, attrs, key, &number, error) != 0) return -1;
  if (number < 0 || number > ARM_MAX_ITEMS) return arm_fail(error, "graph: %s is out of range", key);
  *out = (int32_t)number;
  return 0;
}

int arm_control_read(const arm_json *json, int32_t attrs, arm_node *node, arm_error *error) {
  arm_control *c = &node->control;
  int yields = node->kind == ARM_NODE_YIELD;
  if (yields) return node->num_outputs == 0 ? 0 : arm_fail(error, "graph: a __yield has no outputs");
  if (read_small(json, attrs, "first_nodes", &c->first, error) != 0 ||
      read_small(json, attrs, "second_nodes", &c->second, error) != 0)
    return -1;
  if (node->kind == ARM_NODE_IF) return 0;
  if (read_small(json, attrs, "states", &c->states, error) != 0 ||
      read_small(json, attrs, "scans", &c->scans, error) != 0 ||
      read_count(json, attrs, "trips", &c->trips, error) != 0)
    return -1;
  return 0;
}

/* ---- checking ---- */

static const arm_entry *input_of(const arm_graph *g, const arm_node *node, int32_t index) {
  return &g->entries[node->inputs[index]];
}

static const arm_entry *output_of(const arm_graph *g, const arm_node *node, int32_t index) {
  return &g->entries[node->first_entry + index];
}

/* How often a loop runs at most: without `trips`, as often as its scans have rows. -1: no bound. */
static int64_t trips_of(const arm_graph *g, const arm_node *node) {
  const arm_control *c = &node->control;
  return c->trips >= 0 || c->scans == 0 ? c->trips : output_of(g, node, c->states)->shape[0];
}

static int is_scalar(const arm_entry *entry, uint8_t bits) {
  static const arm_dtype number = {0, 64, 1};
  if (entry->tensor.ndim != 0) return 0;
  if (bits == 64) return arm_dtype_equal(entry->tensor.dtype, number);
  return entry->bytes == 1 && arm_dtype_equal(entry->tensor.dtype, (arm_dtype){6, 8, 1});
}

/* Whether the sizes of both are known when those of a stage are: of fixed shapes always. */
static int is_comparable(const arm_entry *a, const arm_entry *b, int32_t stage) {
  return (a->extents == NULL && b->extents == NULL) || stage == (a->stage > b->stage ? a->stage : b->stage);
}

static int check_owner(const arm_graph *g, const arm_node *node, int32_t stage, arm_error *error) {
  const arm_control *c = &node->control;
  int is_if = node->kind == ARM_NODE_IF;
  int fits = is_if ? node->num_inputs == 1 && c->first > 0 && c->second > 0 && is_scalar(input_of(g, node, 0), 1)
                   : node->num_inputs == 2 + c->states && c->first > 0 && c->second == 0 &&
                         node->num_outputs == c->states + c->scans + 2 && is_scalar(input_of(g, node, 0), 64) &&
                         is_scalar(input_of(g, node, 1), 1) &&
                         is_scalar(output_of(g, node, c->states + c->scans), 64) &&
                         is_scalar(output_of(g, node, c->states + c->scans + 1), 1);
  if (!fits) return arm_fail(error, "graph: node %.80s: its inputs and outputs are not those of a %s", node->name,
                             node->function);
  for (int32_t k = 0; k < node->num_outputs; k++)
    if (g->storages[output_of(g, node, k)->storage].is_input)
      return arm_fail(error, "graph: node %.80s overwrites an input of the graph", node->name);
  if (!is_if && c->trips < 0 && c->scans > 0 && output_of(g, node, c->states)->tensor.ndim == 0)
    return arm_fail(error, "graph: loop %.80s has scans and no trips", node->name);
  for (int32_t k = 0; !is_if && k < c->states; k++)
    if (is_comparable(input_of(g, node, 2 + k), output_of(g, node, k), stage) &&
        input_of(g, node, 2 + k)->bytes != output_of(g, node, k)->bytes)
      return arm_fail(error, "graph: loop %.80s: state %d changes its size in bytes", node->name, k);
  return 0;
}

static int check_yield(const arm_graph *g, const arm_node *yield, const arm_node *owner, int32_t stage, arm_error *error) {
  const arm_control *c = &owner->control;
  int is_if = owner->kind == ARM_NODE_IF;
  if (yield->num_inputs != (is_if ? owner->num_outputs : 1 + c->states + c->scans))
    return arm_fail(error, "graph: node %.80s yields a wrong number of values", owner->name);
  if (!is_if && !is_scalar(input_of(g, yield, 0), 1))
    return arm_fail(error, "graph: loop %.80s does not yield a condition", owner->name);
  int64_t trips = is_if ? 0 : trips_of(g, owner);
  for (int32_t k = is_if ? 0 : 1; k < yield->num_inputs; k++) {
    int32_t out = is_if ? k : k - 1;
    int64_t bytes = input_of(g, yield, k)->bytes, wanted = output_of(g, owner, out)->bytes;
    int is_row = !is_if && out >= c->states;
    if (!is_comparable(input_of(g, yield, k), output_of(g, owner, out), stage)) continue;
    if (is_row ? bytes * trips != wanted : bytes != wanted)
      return arm_fail(error, "graph: node %.80s yields a value of another size", owner->name);
  }
  return 0;
}

typedef struct { int32_t owner, end; } open_region;

/* Close the regions that end at `index`; open what the node there owns. */
int arm_control_check(arm_graph *g, int32_t stage, arm_error *error) {
  open_region stack[MAX_NESTING];
  int depth = 0;
  for (int32_t i = 0; i < g->num_nodes; i++) {
    arm_node *node = &g->nodes[i];
    while (depth > 0 && stack[depth - 1].end == i) depth--;
    node->owner = depth > 0 ? stack[depth - 1].owner : -1;
    int last = depth > 0 && stack[depth - 1].end == i + 1;
    if ((node->kind == ARM_NODE_YIELD) != last) return arm_fail(error, "graph: node %d: a region ends with a __yield", i);
    if (last && check_yield(g, node, &g->nodes[node->owner], stage, error) != 0) return -1;
    if (node->kind != ARM_NODE_IF && node->kind != ARM_NODE_LOOP) continue;
    int32_t room = (depth > 0 ? stack[depth - 1].end - 1 : g->num_nodes) - i - 1; /* a region's last is its __yield */
    const arm_control *c = &node->control;
    if (c->first > room || c->second > room - c->first)
      return arm_fail(error, "graph: node %d: its regions leave the graph or the region around it", i);
    if (check_owner(g, node, stage, error) != 0) return -1;
    g->is_unplaced = g->is_unplaced || stage < 0; /* its sizes are compared when they are bound */
    if (depth + 2 > MAX_NESTING) return arm_fail(error, "graph: control flow is nested too deep");
    if (c->second > 0) stack[depth++] = (open_region){i, i + 1 + c->first + c->second};
    stack[depth++] = (open_region){i, i + 1 + c->first};
  }
  return 0;
}

/* ---- running ---- */

static void *place(const arm_graph *g, const arm_entry *entry) { return g->storages[entry->storage].data; }

static arm_device device_of(const arm_graph *g, const arm_entry *entry) {
  return arm_storage_device(g, &g->storages[entry->storage]);
}

static int move(const arm_graph *g, const arm_entry *from, void *to, int64_t bytes, arm_error *error) {
  const void *source = place(g, from);
  arm_device device = device_of(g, from); /* the rules of arm_control_check: all of a branch or loop is on one */
  return source == to ? 0 : arm_memory_copy(device, to, device, source, (size_t)bytes, error);
}

/* What steers a run is read by the host, wherever it lies. */
static int look(const arm_graph *g, const arm_entry *from, void *out, size_t bytes, arm_error *error) {
  return arm_memory_copy((arm_device){ARM_CPU, 0}, out, device_of(g, from), place(g, from), bytes, error);
}

static int tell(const arm_graph *g, const arm_entry *to, const void *value, size_t bytes, arm_error *error) {
  return arm_memory_copy(device_of(g, to), place(g, to), (arm_device){ARM_CPU, 0}, value, bytes, error);
}

static int run_branch(arm_graph *g, int32_t index, arm_clock *clock, arm_error *error) {
  const arm_node *node = &g->nodes[index];
  uint8_t flag;
  if (look(g, input_of(g, node, 0), &flag, sizeof flag, error) != 0) return -1;
  int taken = flag != 0;
  int32_t begin = index + 1 + (taken ? 0 : node->control.first);
  int32_t end = begin + (taken ? node->control.first : node->control.second);
  if (arm_nodes_run(g, begin, end, index, clock, error) != 0) return -1;
  const arm_node *yield = &g->nodes[end - 1];
  for (int32_t k = 0; k < node->num_outputs; k++) {
    const arm_entry *out = output_of(g, node, k);
    if (move(g, input_of(g, yield, k), place(g, out), out->bytes, error) != 0) return -1;
  }
  return 0;
}

/* Scan rows first: they may show a state as it was before this iteration. */
static int take_yield(const arm_graph *g, const arm_node *node, const arm_node *yield, int64_t step, arm_error *error) {
  const arm_control *c = &node->control;
  for (int32_t k = c->states; k < c->states + c->scans; k++) {
    const arm_entry *row = input_of(g, yield, 1 + k);
    char *to = (char *)place(g, output_of(g, node, k)) + step * row->bytes;
    if (move(g, row, to, row->bytes, error) != 0) return -1;
  }
  for (int32_t k = 0; k < c->states; k++) {
    const arm_entry *state = output_of(g, node, k);
    if (move(g, input_of(g, yield, 1 + k), place(g, state), state->bytes, error) != 0) return -1;
  }
  return 0;
}

/* Rows of the scans that no iteration wrote are zeros. */
static int clear_rest(const arm_graph *g, const arm_node *node, int64_t count, arm_error *error) {
  const arm_control *c = &node->control;
  int64_t trips = trips_of(g, node);
  for (int32_t k = c->states; k < c->states + c->scans; k++) {
    const arm_entry *out = output_of(g, node, k);
    int64_t done = count * (trips > 0 ? out->bytes / trips : 0);
    char *rest = (char *)place(g, out) + done;
    if (arm_memory_clear(device_of(g, out), rest, (size_t)(out->bytes - done), error) != 0) return -1;
  }
  return 0;
}

static int run_loop(arm_graph *g, int32_t index, arm_clock *clock, arm_error *error) {
  const arm_node *node = &g->nodes[index];
  const arm_control *c = &node->control;
  const arm_node *yield = &g->nodes[index + c->first];
  const arm_entry *count_out = output_of(g, node, c->states + c->scans);
  const arm_entry *going_out = output_of(g, node, c->states + c->scans + 1);
  int64_t limit, count = 0, trips = trips_of(g, node);
  uint8_t going;
  if (look(g, input_of(g, node, 0), &limit, sizeof limit, error) != 0) return -1;
  if (trips >= 0 && limit > trips) limit = trips;
  for (int32_t k = 0; k < c->states; k++)
    if (move(g, input_of(g, node, 2 + k), place(g, output_of(g, node, k)), output_of(g, node, k)->bytes, error) != 0)
      return -1;
  if (look(g, input_of(g, node, 1), &going, sizeof going, error) != 0) return -1;
  going = going != 0;
  while (1) {
    if (tell(g, count_out, &count, sizeof count, error) != 0 || tell(g, going_out, &going, sizeof going, error) != 0)
      return -1;
    if (!going || count >= limit) return clear_rest(g, node, count, error);
    if (arm_nodes_run(g, index + 1, index + 1 + c->first, index, clock, error) != 0) return -1;
    uint8_t again;
    if (look(g, input_of(g, yield, 0), &again, sizeof again, error) != 0) return -1;
    if (take_yield(g, node, yield, count++, error) != 0) return -1;
    going = again != 0;
  }
}

int arm_control_run(arm_graph *g, int32_t index, arm_clock *clock, arm_error *error) {
  switch (g->nodes[index].kind) {
    case ARM_NODE_IF: return run_branch(g, index, clock, error);
    case ARM_NODE_LOOP: return run_loop(g, index, clock, error);
    case ARM_NODE_BIND: return arm_stages_run(g, index, error);
    case ARM_NODE_EQUAL: return g->nodes[index].owner == -1 ? 0 : arm_equal_check(g, &g->nodes[index], error);
    default: return 0;
  }
}
