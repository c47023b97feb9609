// An application of the Relay era, written against c_runtime_api: prints the outputs of a package by both ways of old.
#include <tvm/runtime/c_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#define CHECK(call)                                   \
  if ((call) != 0) {                                  \
    std::printf("error: %s\n", TVMGetLastError());    \
    std::exit(1);                                     \
  }

static std::string read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

static TVMFunctionHandle get(TVMModuleHandle mod, const char *name) {
  TVMFunctionHandle func;
  CHECK(TVMModGetFunction(mod, name, 0, &func));
  if (func == nullptr) std::printf("no function %s\n", name), std::exit(1);
  return func;
}

static TVMValue call(TVMFunctionHandle func, std::vector<TVMValue> values, std::vector<int> codes) {
  TVMValue result;
  int code;
  CHECK(TVMFuncCall(func, values.data(), codes.data(), static_cast<int>(values.size()), &result, &code));
  TVMFuncFree(func);
  return result;
}

static TVMValue text(const char *value) { return TVMValue{.v_str = value}; }

static void show(TVMModuleHandle graph, DLTensor *x) {
  call(get(graph, "set_input"), {text("x"), TVMValue{.v_handle = x}}, {kTVMStr, kTVMDLTensorHandle});
  call(get(graph, "run"), {}, {});
  DLTensor *y;
  const int64_t shape[] = {48};
  CHECK(TVMArrayAlloc(shape, 1, kDLFloat, 32, 1, kDLCPU, 0, &y));
  call(get(graph, "get_output"), {TVMValue{.v_int64 = 0}, TVMValue{.v_handle = y}}, {kTVMArgInt, kTVMDLTensorHandle});
  std::vector<float> values(48);
  CHECK(TVMArrayCopyToBytes(y, values.data(), 192));
  CHECK(TVMArrayFree(y));
  auto *view = static_cast<DLTensor *>(call(get(graph, "get_output"), {TVMValue{.v_int64 = 0}}, {kTVMArgInt}).v_handle);
  for (int i = 0; i < 48; i++) {
    if (static_cast<float *>(view->data)[i] != values[static_cast<size_t>(i)]) std::puts("the view differs");
    std::printf("%.7g ", static_cast<double>(values[static_cast<size_t>(i)]));
  }
  CHECK(TVMArrayFree(view));
  std::printf("\n%lld inputs\n", static_cast<long long>(call(get(graph, "get_num_inputs"), {}, {}).v_int64));
}

int main(int, char **argv) {
  const std::string folder = argv[1], json = read(folder + "/mod.json"), params = read(folder + "/mod.params");
  std::string x_bytes = read(argv[2]);
  DLTensor *x;
  const int64_t shape[] = {6, 8};
  CHECK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, kDLCPU, 0, &x));
  CHECK(TVMArrayCopyFromBytes(x, x_bytes.data(), x_bytes.size()));

  TVMModuleHandle mod;
  CHECK(TVMModLoadFromFile((folder + "/mod.so").c_str(), "so", &mod));
  TVMFunctionHandle create;
  CHECK(TVMFuncGetGlobal("tvm.graph_executor.create", &create));
  TVMModuleHandle graph = call(create, {text(json.c_str()), TVMValue{.v_handle = mod}, TVMValue{.v_int64 = kDLCPU}, TVMValue{.v_int64 = 0}},
                               {kTVMStr, kTVMModuleHandle, kTVMArgInt, kTVMArgInt}).v_handle;
  TVMByteArray blob{params.data(), params.size()};
  call(get(graph, "load_params"), {TVMValue{.v_handle = &blob}}, {kTVMBytes});
  CHECK(TVMModFree(mod));
  show(graph, x);
  CHECK(TVMModFree(graph));

  CHECK(TVMModLoadFromFile(folder.c_str(), "", &mod));
  TVMValue device;
  device.v_device = DLDevice{kDLCPU, 0};
  graph = call(get(mod, "default"), {device}, {kDLDevice}).v_handle;
  CHECK(TVMModFree(mod));
  show(graph, x);

  TVMFunctionHandle none = graph, set = get(graph, "set_input");
  CHECK(TVMModGetFunction(graph, "no_such_function", 0, &none));
  std::puts(none == nullptr ? "NULL" : "a function");
  TVMValue wrong[] = {text("x"), text("y")}, result;
  int codes[] = {kTVMStr, kTVMStr}, code;
  if (TVMFuncCall(set, wrong, codes, 2, &result, &code) != 0) std::puts(TVMGetLastError());
  if (TVMFuncCall(set, wrong, codes, 1, &result, &code) != 0) std::puts(TVMGetLastError());
  TVMFuncFree(set);
  if (TVMModLoadFromFile("/nowhere.so", "so", &mod) != 0) std::puts(TVMGetLastError());
  CHECK(TVMModFree(graph));
  CHECK(TVMArrayFree(x));
  return 0;
}
