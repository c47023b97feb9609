/* The C functions that applications of the Relay era call, over Armillary's runtime: what runs a compiled network.
 *
 * In: packages that Armillary compiled, and DLTensors. Out: results; 0, or -1 and TVMGetLastError. Such an application is
 * compiled with this folder and linked with -larmillary_runtime. Modules give "default" (device -> graph module) and their
 * kernels by name; "tvm.graph_executor.create" makes a graph module of JSON, module, device type and number. Graph modules
 * give set_input, set_input_zero_copy, get_input, get_output, get_num_inputs, get_num_outputs, get_input_index,
 * load_params, run. What is not here (registering functions, exceptions of C++, RPC) has no counterpart.
 */
#ifndef ARM_C_RUNTIME_API_H
#define ARM_C_RUNTIME_API_H

#include "../../dlpack/dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TVM_DLL __attribute__((visibility("default")))
#else
#define TVM_DLL
#endif

typedef int64_t tvm_index_t;
typedef DLDevice TVMContext; /* its name before 0.8 */
typedef enum {
  kTVMArgInt = kDLInt,
  kTVMArgFloat = kDLFloat,
  kTVMOpaqueHandle = 3,
  kTVMNullptr = 4,
  kTVMDataType = 5,
  kDLDevice = 6,
  kTVMDLTensorHandle = 7,
  kTVMObjectHandle = 8,
  kTVMModuleHandle = 9,
  kTVMPackedFuncHandle = 10,
  kTVMStr = 11,
  kTVMBytes = 12,
  kTVMNDArrayHandle = 13
} TVMArgTypeCode;

typedef DLTensor *TVMArrayHandle;
typedef union {
  int64_t v_int64;
  double v_float64;
  void *v_handle;
  const char *v_str;
  DLDataType v_type;
  DLDevice v_device;
} TVMValue;
typedef struct {
  const char *data;
  size_t size;
} TVMByteArray;
typedef void *TVMModuleHandle;
typedef void *TVMFunctionHandle;
typedef void *TVMStreamHandle;

TVM_DLL const char *TVMGetLastError(void); /* of this thread */
TVM_DLL void TVMAPISetLastError(const char *message);

TVM_DLL int TVMModLoadFromFile(const char *file_name, const char *format, TVMModuleHandle *out);
TVM_DLL int TVMModGetFunction(TVMModuleHandle mod, const char *func_name, int query_imports, TVMFunctionHandle *out);
TVM_DLL int TVMModFree(TVMModuleHandle mod);

TVM_DLL int TVMFuncGetGlobal(const char *name, TVMFunctionHandle *out); /* *out is NULL where there is none */
TVM_DLL int TVMFuncListGlobalNames(int *out_size, const char ***out_array);
TVM_DLL int TVMFuncCall(TVMFunctionHandle func, TVMValue *arg_values, int *type_codes, int num_args, TVMValue *ret_val,
                        int *ret_type_code);
TVM_DLL int TVMFuncFree(TVMFunctionHandle func);

TVM_DLL int TVMArrayAlloc(const tvm_index_t *shape, int ndim, int dtype_code, int dtype_bits, int dtype_lanes,
                          int device_type, int device_id, TVMArrayHandle *out);
TVM_DLL int TVMArrayFree(TVMArrayHandle handle);
TVM_DLL int TVMArrayCopyFromBytes(TVMArrayHandle handle, void *data, size_t nbytes);
TVM_DLL int TVMArrayCopyToBytes(TVMArrayHandle handle, void *data, size_t nbytes);
TVM_DLL int TVMArrayCopyFromTo(TVMArrayHandle from, TVMArrayHandle to, TVMStreamHandle stream);
TVM_DLL int TVMSynchronize(int device_type, int device_id, TVMStreamHandle stream);

#ifdef __cplusplus
}
#endif

#endif
