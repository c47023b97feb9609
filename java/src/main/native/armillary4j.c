/* The C side of armillary4j: Java's calls to the runtime.
 *
 * In: handles as numbers, direct buffers, types as arrays (code, bits, sizes). Out: values, or an ArmillaryException with the
 * runtime's message. Invariant: no pointer into Java's heap outlives a call; buffers that a graph uses without a copy are
 * held by the GraphModule that set them.
 */
#include <jni.h>
#include <pthread.h>
#include <stdlib.h>

#include "armillary_runtime.h"

#define NAME(method) Java_org_armillary_Native_##method
#define AS(type, handle) ((type *)(intptr_t)(handle))

static pthread_once_t once = PTHREAD_ONCE_INIT;
static arm_pool *pool; /* of the process, as long as it lives */
static char pool_error[256];

static void make_pool(void) { pool = arm_pool_create(arm_cpu_count(), 0, pool_error, sizeof pool_error); }

static void raise(JNIEnv *env, const char *message) {
  jclass kind = (*env)->FindClass(env, "org/armillary/ArmillaryException");
  if (kind != NULL) (*env)->ThrowNew(env, kind, message);
}

/* 1 when a call has failed; then an exception is pending. */
static int failed(JNIEnv *env, int status, const char *message) {
  if (status != 0) raise(env, message);
  return status != 0;
}

typedef struct { arm_tensor tensor; int64_t shape[ARM_MAX_NDIM]; } shaped;

/* A tensor over a direct buffer. */
static int read_tensor(JNIEnv *env, jobject buffer, jlongArray type, shaped *out) {
  jlong row[ARM_MAX_NDIM + 2];
  jsize length = (*env)->GetArrayLength(env, type);
  if (length < 2 || length > ARM_MAX_NDIM + 2) return raise(env, "an array has at most 32 axes"), -1;
  (*env)->GetLongArrayRegion(env, type, 0, length, row);
  for (jsize i = 2; i < length; i++) out->shape[i - 2] = row[i];
  arm_dtype dtype = {(uint8_t)row[0], (uint8_t)row[1], 1};
  out->tensor = (arm_tensor){(*env)->GetDirectBufferAddress(env, buffer), {1, 0}, length - 2, dtype, out->shape, NULL, 0};
  return 0;
}

static jlongArray type_of(JNIEnv *env, const arm_tensor *t) {
  jlong row[ARM_MAX_NDIM + 2] = {t->dtype.code, t->dtype.bits};
  for (int i = 0; i < t->ndim; i++) row[i + 2] = t->shape[i];
  jlongArray made = (*env)->NewLongArray(env, t->ndim + 2);
  if (made != NULL) (*env)->SetLongArrayRegion(env, made, 0, t->ndim + 2, row);
  return made;
}

JNIEXPORT jstring JNICALL NAME(version)(JNIEnv *env, jclass self) {
  (void)self;
  return (*env)->NewStringUTF(env, arm_version());
}

JNIEXPORT jlong JNICALL NAME(address)(JNIEnv *env, jclass self, jobject buffer) {
  (void)self;
  return (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

JNIEXPORT jlong JNICALL NAME(openPackage)(JNIEnv *env, jclass self, jstring path) {
  char err[1024];
  arm_package *package = NULL;
  (void)self;
  const char *text = (*env)->GetStringUTFChars(env, path, NULL);
  if (text == NULL) return 0;
  int status = arm_package_open(text, &package, err, sizeof err);
  (*env)->ReleaseStringUTFChars(env, path, text);
  return failed(env, status, err) ? 0 : (jlong)(intptr_t)package;
}

JNIEXPORT void JNICALL NAME(closePackage)(JNIEnv *env, jclass self, jlong handle) {
  (void)env, (void)self;
  arm_package_close(AS(arm_package, handle));
}

static jstring new_text(JNIEnv *env, const char *text, size_t size) {
  char *copy = malloc(size + 1);
  if (copy == NULL) return raise(env, "out of memory"), NULL;
  for (size_t i = 0; i < size; i++) copy[i] = text[i];
  copy[size] = 0;
  jstring made = (*env)->NewStringUTF(env, copy);
  free(copy);
  return made;
}

JNIEXPORT jstring JNICALL NAME(graphJson)(JNIEnv *env, jclass self, jlong handle) {
  size_t size;
  const char *json = arm_package_graph_json(AS(arm_package, handle), &size);
  (void)self;
  if (json == NULL) return raise(env, "the package holds functions and no graph"), NULL;
  return new_text(env, json, size);
}

JNIEXPORT jstring JNICALL NAME(target)(JNIEnv *env, jclass self, jlong handle) {
  (void)self;
  return (*env)->NewStringUTF(env, arm_module_target(arm_package_module(AS(arm_package, handle))));
}

JNIEXPORT jlong JNICALL NAME(createGraph)(JNIEnv *env, jclass self, jlong handle, jstring json, jint type, jint id) {
  char err[1024];
  arm_package *package = AS(arm_package, handle);
  arm_device device = {type, id};
  arm_graph *graph = NULL;
  int status;
  (void)self;
  pthread_once(&once, make_pool);
  if (pool == NULL) return raise(env, pool_error), 0;
  if (json == NULL) {
    status = arm_package_create_graph(package, &device, 1, pool, &graph, err, sizeof err);
  } else {
    const char *text = (*env)->GetStringUTFChars(env, json, NULL);
    if (text == NULL) return 0;
    size_t size = (size_t)(*env)->GetStringUTFLength(env, json);
    status = arm_graph_create_on(text, size, arm_package_module(package), device, pool, &graph, err, sizeof err);
    (*env)->ReleaseStringUTFChars(env, json, text);
  }
  return failed(env, status, err) ? 0 : (jlong)(intptr_t)graph;
}

JNIEXPORT void JNICALL NAME(destroyGraph)(JNIEnv *env, jclass self, jlong graph) {
  (void)env, (void)self;
  arm_graph_destroy(AS(arm_graph, graph));
}

JNIEXPORT jint JNICALL NAME(numInputs)(JNIEnv *env, jclass self, jlong graph) {
  (void)env, (void)self;
  return arm_graph_num_inputs(AS(arm_graph, graph));
}

JNIEXPORT jint JNICALL NAME(numOutputs)(JNIEnv *env, jclass self, jlong graph) {
  (void)env, (void)self;
  return arm_graph_num_outputs(AS(arm_graph, graph));
}

JNIEXPORT jint JNICALL NAME(numNodes)(JNIEnv *env, jclass self, jlong graph) {
  (void)env, (void)self;
  return arm_graph_num_nodes(AS(arm_graph, graph));
}

JNIEXPORT jstring JNICALL NAME(inputName)(JNIEnv *env, jclass self, jlong graph, jint index) {
  const char *name = arm_graph_input_name(AS(arm_graph, graph), index);
  (void)self;
  return name == NULL ? (raise(env, "there is no such input"), NULL) : (*env)->NewStringUTF(env, name);
}

JNIEXPORT jint JNICALL NAME(inputIndex)(JNIEnv *env, jclass self, jlong graph, jstring name) {
  (void)self;
  const char *text = (*env)->GetStringUTFChars(env, name, NULL);
  if (text == NULL) return -1;
  int index = arm_graph_input_index(AS(arm_graph, graph), text);
  (*env)->ReleaseStringUTFChars(env, name, text);
  return index;
}

JNIEXPORT jstring JNICALL NAME(nodeName)(JNIEnv *env, jclass self, jlong graph, jint index) {
  const char *name = arm_graph_node_name(AS(arm_graph, graph), index);
  (void)self;
  return name == NULL ? (raise(env, "there is no such node"), NULL) : (*env)->NewStringUTF(env, name);
}

JNIEXPORT jlongArray JNICALL NAME(inputType)(JNIEnv *env, jclass self, jlong graph, jint index) {
  char err[1024];
  arm_tensor tensor;
  (void)self;
  if (failed(env, arm_graph_input_info(AS(arm_graph, graph), index, &tensor, err, sizeof err), err)) return NULL;
  return type_of(env, &tensor);
}

JNIEXPORT jlongArray JNICALL NAME(outputType)(JNIEnv *env, jclass self, jlong graph, jint index) {
  char err[1024];
  arm_tensor tensor;
  (void)self;
  if (failed(env, arm_graph_output(AS(arm_graph, graph), index, &tensor, err, sizeof err), err)) return NULL;
  return type_of(env, &tensor);
}

JNIEXPORT void JNICALL NAME(setInput)(JNIEnv *env, jclass self, jlong handle, jint index, jstring name, jobject buffer,
                                      jlongArray type) {
  char err[1024];
  shaped value;
  arm_graph *graph = AS(arm_graph, handle);
  (void)self;
  if (read_tensor(env, buffer, type, &value) != 0) return;
  if (name != NULL) {
    const char *text = (*env)->GetStringUTFChars(env, name, NULL);
    if (text == NULL) return;
    index = arm_graph_pick(graph, text, &value.tensor, err, sizeof err);
    (*env)->ReleaseStringUTFChars(env, name, text);
    if (failed(env, index < 0, err)) return;
  }
  (void)failed(env, arm_graph_set_input(graph, index, &value.tensor, err, sizeof err), err);
}

JNIEXPORT void JNICALL NAME(setZeroCopy)(JNIEnv *env, jclass self, jlong handle, jboolean is_output, jint index,
                                         jobject buffer, jlongArray type) {
  char err[1024];
  shaped value;
  arm_graph *graph = AS(arm_graph, handle);
  (void)self;
  if (read_tensor(env, buffer, type, &value) != 0) return;
  int status = is_output ? arm_graph_set_output_zero_copy(graph, index, &value.tensor, err, sizeof err)
                         : arm_graph_set_input_zero_copy(graph, index, &value.tensor, err, sizeof err);
  (void)failed(env, status, err);
}

JNIEXPORT void JNICALL NAME(copyOut)(JNIEnv *env, jclass self, jlong handle, jboolean is_output, jint index,
                                     jobject buffer, jlongArray type) {
  char err[1024];
  shaped target;
  arm_tensor source;
  arm_graph *graph = AS(arm_graph, handle);
  (void)self;
  if (read_tensor(env, buffer, type, &target) != 0) return;
  int status = is_output ? arm_graph_output(graph, index, &source, err, sizeof err)
                         : arm_graph_input(graph, index, &source, err, sizeof err);
  if (status == 0) status = arm_tensor_copy(&source, &target.tensor, err, sizeof err);
  (void)failed(env, status, err);
}

JNIEXPORT jint JNICALL NAME(loadParams)(JNIEnv *env, jclass self, jlong graph, jbyteArray blob) {
  char err[1024];
  int count = 0;
  (void)self;
  jsize size = (*env)->GetArrayLength(env, blob);
  jbyte *bytes = (*env)->GetByteArrayElements(env, blob, NULL);
  if (bytes == NULL) return 0;
  int status = arm_graph_load_params(AS(arm_graph, graph), bytes, (size_t)size, &count, err, sizeof err);
  (*env)->ReleaseByteArrayElements(env, blob, bytes, JNI_ABORT);
  return failed(env, status, err) ? 0 : count;
}

JNIEXPORT void JNICALL NAME(run)(JNIEnv *env, jclass self, jlong graph) {
  char err[1024];
  (void)self;
  (void)failed(env, arm_graph_run(AS(arm_graph, graph), err, sizeof err), err);
}

JNIEXPORT jdouble JNICALL NAME(time)(JNIEnv *env, jclass self, jlong graph, jlong number) {
  char err[1024];
  double seconds = 0;
  (void)self;
  (void)failed(env, arm_graph_time(AS(arm_graph, graph), number, &seconds, err, sizeof err), err);
  return seconds;
}

/* -1 for what is no call of a compiled function in a run. */
JNIEXPORT jdoubleArray JNICALL NAME(profile)(JNIEnv *env, jclass self, jlong handle) {
  char err[1024];
  arm_graph *graph = AS(arm_graph, handle);
  int nodes = arm_graph_num_nodes(graph);
  (void)self;
  double *seconds = calloc((size_t)nodes + 1, sizeof *seconds);
  if (seconds == NULL) return raise(env, "out of memory"), NULL;
  int status = arm_graph_run_range(graph, 0, nodes, seconds, err, sizeof err);
  jdoubleArray made = failed(env, status, err) ? NULL : (*env)->NewDoubleArray(env, nodes);
  for (int i = 0; i < nodes && made != NULL; i++) {
    const char *function = arm_graph_node_function(graph, i);
    if (*function == 0 || *function == '_' || arm_graph_node_is_load(graph, i) == 1) seconds[i] = -1;
  }
  if (made != NULL) (*env)->SetDoubleArrayRegion(env, made, 0, nodes, seconds);
  free(seconds);
  return made;
}
