/* What kernels of a device say of values that they refuse: positions outside of an axis, divisors of 0.
 *
 * In: calls whose functions have asserts and launches; runs of them. Out: an error of the run, as the CPU has it. Invariant:
 * a kernel goes on behind a value that it refuses, as nobody can stop it, and says so in 16 bytes of the device that its graph
 * (or call) has for that: the first to refuse is heard. They are read once a run, at its end, which waits for the device;
 * graphs without such calls have none, and do not wait. Who writes: codegen/opencl/checks.py.
 */
#include "arm_graph.h"

int arm_bound_is_checked(const arm_bound *bound) {
  return bound->function != NULL && bound->function->code != NULL && bound->function->num_asserts > 0;
}

void arm_bound_set_status(const arm_bound *bound, void *status, int64_t call) {
  bound->data[bound->function->num_args + 1] = status;
  bound->vars[bound->function->num_vars] = call;
}

void *arm_status_make(arm_device device, arm_error *error) {
  void *made = arm_memory_allocate(device, ARM_STATUS_BYTES, error);
  if (made == NULL || arm_memory_clear(device, made, ARM_STATUS_BYTES, error) == 0) return made;
  arm_memory_release(device, made);
  return NULL;
}

int arm_status_take(arm_device device, void *status, arm_status *out, arm_error *error) {
  int32_t said[4];
  arm_device host = {ARM_CPU, 0};
  if (arm_memory_copy(host, said, device, status, sizeof said, error) != 0) return -1;
  *out = (arm_status){said[0], said[1], (int64_t)((uint64_t)(uint32_t)said[3] << 32 | (uint32_t)said[2])};
  return out->code == 0 ? 0 : arm_memory_clear(device, status, sizeof said, error);
}

/* ---- graphs ---- */

int arm_graph_make_statuses(arm_graph *g, arm_error *error) {
  for (int32_t i = 0; i < g->num_nodes; i++) {
    const arm_node *node = &g->nodes[i];
    if (node->kind != ARM_NODE_CALL || !arm_bound_is_checked(&node->bound)) continue;
    arm_graph_device *place = &g->devices[node->device];
    if (place->status == NULL) place->status = arm_status_make(place->device, error);
    if (place->status == NULL) return -1;
    arm_bound_set_status(&node->bound, place->status, i);
  }
  return 0;
}

static int refused(arm_graph *g, const arm_status *said, arm_error *error) {
  arm_node *node = said->call >= 0 && said->call < g->num_nodes ? &g->nodes[said->call] : NULL;
  if (node == NULL || !arm_bound_is_checked(&node->bound)) return arm_fail(error, "graph: a kernel refused a value");
  node->bound.refused = said->value;
  return arm_node_failed(node, said->code, error);
}

int arm_graph_end_run(arm_graph *g, int status, arm_error *error) {
  for (int32_t d = 0; d < g->num_devices; d++) {
    arm_graph_device *place = &g->devices[d];
    arm_status said = {0, 0, 0};
    char text[64];
    arm_error unheard = {text, sizeof text}; /* the run has its error */
    if (place->status == NULL) continue;
    int taken = arm_status_take(place->device, place->status, &said, status == 0 ? error : &unheard);
    if (status != 0) continue;
    status = taken != 0 ? -1 : said.code == 0 ? 0 : refused(g, &said, error);
  }
  return status;
}
