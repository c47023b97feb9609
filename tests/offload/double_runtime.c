/* A library on the graph's OpenCL device: y = 2 * x + constant, in the context and the queue that the runtime lends. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "arm_external.h"
#include "arm_opencl.h"

static const char *SOURCE =
    "__kernel void twice(__global const float *x, __global const float *c, __global float *y) {\n"
    "  int i = get_global_id(0); y[i] = 2 * x[i] + c[i]; }\n";

typedef struct { const arm_external_host *host; cl_program program; cl_kernel kernel; cl_mem constant; } state;

static arm_cl_api cl;

static int load(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW), *found;
#define FIND(result, name, args) if (!library || !(found = dlsym(library, #name))) return -1; *(void **)&cl.name = found;
  ARM_CL_FUNCTIONS(FIND)
  return 0;
}

static void destroy(void *handle) {
  state *s = handle;
  if (s->kernel) cl.clReleaseKernel(s->kernel);
  if (s->program) cl.clReleaseProgram(s->program);
  free(s);
}

static size_t bytes_of(const arm_tensor *t) {
  size_t bytes = 4;
  for (int k = 0; k < t->ndim; k++) bytes *= (size_t)t->shape[k];
  return bytes;
}

static int create(const arm_external_function *f, const arm_external_host *host, void **handle, char *err, size_t size) {
  cl_int code = -1;
  if (host->abi < 2 || host->cl_queue == NULL || f->num_constants != 1 || load() != 0) {
    snprintf(err, size, "no device was lent");
    return -1;
  }
  state *s = calloc(1, sizeof *s);
  s->host = host;
  s->program = cl.clCreateProgramWithSource(host->cl_context, 1, &SOURCE, NULL, &code);
  cl_device_id device = host->cl_device;
  if (code == 0) code = cl.clBuildProgram(s->program, 1, &device, "", NULL, NULL);
  if (code == 0) s->kernel = cl.clCreateKernel(s->program, "twice", &code);
  const arm_tensor *c = &f->constants[0];
  if (code == 0 && host->cl_memory(host, c->data, bytes_of(c), (void **)&s->constant, err, size) == 0) {
    *handle = s;
    return 0;
  }
  if (code != 0) snprintf(err, size, "error %d", code);
  destroy(s);
  return -1;
}

static int run(void *handle, const arm_tensor *in, int32_t ins, const arm_tensor *out, int32_t outs, char *err,
               size_t size) {
  state *s = handle;
  size_t bytes = bytes_of(in), count = bytes / 4;
  cl_mem x = NULL, y = NULL;
  if (ins != 1 || outs != 1) return -1;
  if (s->host->cl_memory(s->host, in->data, bytes, (void **)&x, err, size) != 0) return -1;
  if (s->host->cl_memory(s->host, out->data, bytes, (void **)&y, err, size) != 0) return -1;
  cl.clSetKernelArg(s->kernel, 0, sizeof x, &x);
  cl.clSetKernelArg(s->kernel, 1, sizeof s->constant, &s->constant);
  cl.clSetKernelArg(s->kernel, 2, sizeof y, &y);
  cl_int code = cl.clEnqueueNDRangeKernel(s->host->cl_queue, s->kernel, 1, NULL, &count, NULL, 0, NULL, NULL);
  if (code != 0) snprintf(err, size, "launch: error %d", code);
  return code == 0 ? 0 : -1;
}

const arm_external_api *armillary_external(void) {
  static const arm_external_api api = {ARM_EXTERNAL_ABI, "double", "1.0", create, run, destroy};
  return &api;
}
