/* Extents that must be equal: what operators of a network take for granted, compared before anything reads.
 *
 * In: nodes that call `__equal`, with two extents (`a`, `b`) and whose axes they are (`of_a`, `of_b`). Out: an error that
 * names both with their values, where these differ. Invariant: those that lie in no branch or loop are compared when the
 * sizes of their stage are bound, and cost a run with the same sizes nothing; others when they are reached. A graph of
 * fixed shapes has none.
 */
#include <stdlib.h>
#include <string.h>

#include "../arm_graph.h"

static int read_side(const arm_graph *g, const arm_json *json, int32_t attrs, const char *key, const char *of,
                     arm_side *side, arm_error *error) {
  int32_t extent = arm_json_need(json, attrs, key, ARM_TEXT, "graph.nodes.attrs", error);
  int32_t name = arm_json_need(json, attrs, of, ARM_TEXT, "graph.nodes.attrs", error);
  if (extent < 0 || name < 0) return -1;
  const char *text = json->values[extent].text, *label = json->values[name].text;
  side->text = arm_strdup(text, strlen(text));
  side->of = arm_strdup(label, strlen(label));
  if (side->text == NULL || side->of == NULL) return arm_fail(error, "graph: out of memory");
  return arm_extent_parse(text, g->sizes.names, g->sizes.count, &side->extent, error);
}

int arm_equal_read(const arm_graph *g, const arm_json *json, int32_t attrs, arm_node *node, arm_error *error) {
  if (node->num_inputs != 0 || node->num_outputs != 0)
    return arm_fail(error, "graph: node %s: an __equal reads and gives nothing", node->name);
  node->sides = arm_zalloc(2, sizeof *node->sides);
  if (node->sides == NULL) return arm_fail(error, "graph: out of memory");
  return read_side(g, json, attrs, "a", "of_a", &node->sides[0], error) != 0 ||
                 read_side(g, json, attrs, "b", "of_b", &node->sides[1], error) != 0
             ? -1
             : 0;
}

void arm_equal_free(arm_node *node) {
  for (int k = 0; node->sides != NULL && k < 2; k++) {
    arm_extent_free(&node->sides[k].extent);
    free(node->sides[k].text);
    free(node->sides[k].of);
  }
  free(node->sides);
}

int arm_equal_check(const arm_graph *g, const arm_node *node, arm_error *error) {
  const arm_side *a = &node->sides[0], *b = &node->sides[1];
  int64_t left = arm_extent_value(&a->extent, g->sizes.values), right = arm_extent_value(&b->extent, g->sizes.values);
  if (left == right && left >= 0) return 0;
  return arm_fail(error, "%s: %s is %s = %lld, but %s is %s = %lld: they must be equal", node->name, a->of, a->text,
                  (long long)left, b->of, b->text, (long long)right);
}

int arm_equal_check_stage(const arm_graph *g, int32_t stage, arm_error *error) {
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    if (node->kind == ARM_NODE_EQUAL && node->owner == -1 && node->stage == stage && arm_equal_check(g, node, error) != 0)
      return -1;
  }
  return 0;
}
