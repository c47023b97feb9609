// The runtime of functions offloaded to Arm Compute Library: the JSON of a function becomes a row of the library's functions.
//
// In: JSON as offload/acl/codegen.py writes it, constants, then inputs and outputs at each run. Out: results. Invariant:
// every function is validated before it is configured, so what the library refuses is a message; weights are prepared once;
// what functions need while they run is one workspace of the runtime's memory that they share (acl_memory.hpp);
// memory of the caller is used in place wherever the library wants no padding around a tensor, and copied where it does.
// An operator is one row of `kernels` below. The interface: arm_external.h.
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "acl_memory.hpp"
#include "acl_scheduler.hpp"
#include "arm_compute/core/Version.h"
#include "arm_compute/runtime/NEON/NEFunctions.h"
#include "arm_external.h"
#include "external_program.hpp"
#include "offload_json.hpp"

namespace acl {
using namespace arm_compute;
using offload::Reader;
using offload::Value;

enum class Role { kInput, kConstant, kInner };

struct Entry {
  std::unique_ptr<Tensor> tensor;
  Role role = Role::kInner;
  int32_t index = 0;   // among the inputs, constants
  int32_t output = -1;  // among the outputs
  const arm_tensor *constant = nullptr;
};

struct Node {
  const Value *json;
  std::string name;
  std::vector<Entry *> inputs;
  std::vector<Entry *> outputs;
  std::shared_ptr<IMemoryManager> workspace;

  const Value &attr(const char *key) const { return (*json)["attrs"][key][0]; }
  bool has(const char *key) const { return (*json)["attrs"].has(key); }
  long number(const char *key, size_t k = 0) const { return attr(key)[k].number(); }
  Tensor *in(size_t k) const {
    if (k >= inputs.size()) throw std::runtime_error(name + ": too few inputs");
    return inputs[k]->tensor.get();
  }
  Tensor *out() const { return outputs[0]->tensor.get(); }
};

DataType data_type(const std::string &name) {
  if (name == "float32") return DataType::F32;
  if (name == "uint8") return DataType::QASYMM8;
  if (name == "int8") return DataType::QASYMM8_SIGNED;
  if (name == "int32") return DataType::S32;
  throw std::runtime_error("dtype " + name + " is unknown here");
}

std::unique_ptr<Tensor> make_tensor(const Value &shape, const std::string &dtype) {
  TensorShape dims;
  size_t ndim = shape.items.size();
  if (ndim > TensorShape::num_max_dimensions) throw std::runtime_error("a tensor has more than 6 dimensions");
  if (ndim == 0) dims.set(0, 1);
  for (size_t k = 0; k < ndim; k++) dims.set(k, static_cast<size_t>(shape[ndim - 1 - k].number()));
  TensorInfo info(dims, 1, data_type(dtype));
  info.set_data_layout(DataLayout::NHWC);
  auto tensor = std::make_unique<Tensor>();
  tensor->allocator()->init(info);
  return tensor;
}

// One scale and one zero point, which are constants of the function.
void set_quantization(Node &node, size_t tensor_at, bool is_output, size_t scale_at, size_t zero_at) {
  const arm_tensor *scale = node.inputs.at(scale_at)->constant, *zero = node.inputs.at(zero_at)->constant;
  if (scale == nullptr || zero == nullptr) throw std::runtime_error(node.name + ": scale and zero point are no constants");
  float s;
  int32_t z;
  std::memcpy(&s, scale->data, sizeof s);
  std::memcpy(&z, zero->data, sizeof z);
  Tensor *tensor = is_output ? node.out() : node.in(tensor_at);
  tensor->info()->set_quantization_info(QuantizationInfo(s, z));
}

// Kernels of int8 around 0, with a scale for each channel of the result.
void set_channel_scales(Node &node, size_t tensor_at, size_t scale_at) {
  const arm_tensor *scales = node.inputs.at(scale_at)->constant;
  if (scales == nullptr) throw std::runtime_error(node.name + ": scales are no constants");
  const float *first = static_cast<const float *>(scales->data);
  node.in(tensor_at)->info()->set_data_type(DataType::QSYMM8_PER_CHANNEL);
  node.in(tensor_at)->info()->set_quantization_info(QuantizationInfo(std::vector<float>(first, first + scales->shape[0])));
}

// padding is top, left, bottom, right; strides are down, across.
PadStrideInfo pad_stride(const Node &node, bool is_ceil) {
  auto p = [&](size_t k) { return static_cast<unsigned int>(node.number("padding", k)); };
  return PadStrideInfo(static_cast<unsigned int>(node.number("strides", 1)),
                       static_cast<unsigned int>(node.number("strides", 0)), p(1), p(3), p(0), p(2),
                       is_ceil ? DimensionRoundingType::CEIL : DimensionRoundingType::FLOOR);
}

Size2D size(const Node &node, const char *key) {
  return Size2D(static_cast<size_t>(node.number(key, 1)), static_cast<size_t>(node.number(key, 0)));
}

ActivationLayerInfo activation(const Node &node) {
  if (!node.has("activation_type")) return ActivationLayerInfo();
  if (node.attr("activation_type")[0].text == "relu") return ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU);
  throw std::runtime_error(node.name + ": activation " + node.attr("activation_type")[0].text + " is unknown here");
}

void check(const Node &node, const Status &status) {
  if (!bool(status)) throw std::runtime_error(node.name + " is refused: " + status.error_description());
}

using Function = std::unique_ptr<IFunction>;

// data, weight [, bias], or data, weight, four scales and zero points [, bias], scale and zero point of the result.
const Tensor *contraction_bias(Node &node) {
  size_t count = node.inputs.size();
  if (node.name.compare(0, 4, "qnn.") != 0) return count == 3 ? node.in(2) : nullptr;
  if (count != 8 && count != 9) throw std::runtime_error(node.name + ": 8 or 9 inputs are wanted");
  set_quantization(node, 0, false, 4, 2);
  const arm_tensor *scale = node.inputs.at(5)->constant;
  if (scale != nullptr && scale->ndim == 1) set_channel_scales(node, 1, 5);
  else set_quantization(node, 1, false, 5, 3);
  set_quantization(node, 0, true, count - 2, count - 1);
  return count == 9 ? node.in(6) : nullptr;
}

const ITensorInfo *info_of(const Tensor *tensor) { return tensor ? tensor->info() : nullptr; }

Function conv2d(Node &node) {
  const Tensor *bias = contraction_bias(node);
  auto f = std::make_unique<NEConvolutionLayer>(node.workspace);
  auto places = pad_stride(node, false);
  auto act = activation(node);
  check(node, NEConvolutionLayer::validate(node.in(0)->info(), node.in(1)->info(), info_of(bias), node.out()->info(), places,
                                           WeightsInfo(), size(node, "dilation"), act));
  f->configure(node.in(0), node.in(1), bias, node.out(), places, WeightsInfo(), size(node, "dilation"), act);
  return f;
}

Function depthwise(Node &node) {
  const Tensor *bias = contraction_bias(node);
  auto f = std::make_unique<NEDepthwiseConvolutionLayer>(node.workspace);
  auto places = pad_stride(node, false);
  auto act = activation(node);
  check(node, NEDepthwiseConvolutionLayer::validate(node.in(0)->info(), node.in(1)->info(), info_of(bias), node.out()->info(),
                                                    places, 1, act, size(node, "dilation")));
  f->configure(node.in(0), node.in(1), bias, node.out(), places, 1, act, size(node, "dilation"));
  return f;
}

Function dense(Node &node) {
  const Tensor *bias = contraction_bias(node);
  auto f = std::make_unique<NEFullyConnectedLayer>(node.workspace);
  FullyConnectedLayerInfo how;
  how.set_weights_trained_layout(DataLayout::NHWC);
  check(node, NEFullyConnectedLayer::validate(node.in(0)->info(), node.in(1)->info(), info_of(bias), node.out()->info(), how));
  f->configure(node.in(0), node.in(1), bias, node.out(), how);
  return f;
}

Function pooling(Node &node, const PoolingLayerInfo &how) {
  auto f = std::make_unique<NEPoolingLayer>();
  check(node, NEPoolingLayer::validate(node.in(0)->info(), node.out()->info(), how));
  f->configure(node.in(0), node.out(), how);
  return f;
}

Function local_pool(Node &node, PoolingType type) {
  bool excludes = node.has("count_include_pad") && node.number("count_include_pad") == 0;
  auto places = pad_stride(node, node.number("ceil_mode") != 0);
  return pooling(node, PoolingLayerInfo(type, size(node, "pool_size"), DataLayout::NHWC, places, excludes));
}

Function global_pool(Node &node, PoolingType type) { return pooling(node, PoolingLayerInfo(type, DataLayout::NHWC)); }

Function reshape(Node &node) {
  auto f = std::make_unique<NEReshapeLayer>();
  check(node, NEReshapeLayer::validate(node.in(0)->info(), node.out()->info()));
  f->configure(node.in(0), node.out());
  return f;
}

Function maximum(Node &node) {
  auto f = std::make_unique<NEElementwiseMax>();
  check(node, NEElementwiseMax::validate(node.in(0)->info(), node.in(1)->info(), node.out()->info()));
  f->configure(node.in(0), node.in(1), node.out());
  return f;
}

Function add(Node &node) {
  if (node.name == "qnn.add") {
    set_quantization(node, 0, false, 2, 3);
    set_quantization(node, 1, false, 4, 5);
    set_quantization(node, 0, true, 6, 7);
  }
  auto f = std::make_unique<NEArithmeticAddition>();
  check(node, NEArithmeticAddition::validate(node.in(0)->info(), node.in(1)->info(), node.out()->info(), ConvertPolicy::SATURATE));
  f->configure(node.in(0), node.in(1), node.out(), ConvertPolicy::SATURATE);
  return f;
}

Function concatenate(Node &node) {
  auto f = std::make_unique<NEConcatenateLayer>();
  std::vector<const ITensor *> parts;
  std::vector<const ITensorInfo *> infos;
  for (size_t k = 0; k < node.inputs.size(); k++) {
    parts.push_back(node.in(k));
    infos.push_back(node.in(k)->info());
  }
  long ndim = static_cast<long>((*node.json)["attrs"]["shape"][0][0].items.size()), axis = node.number("axis");
  size_t from_last = static_cast<size_t>(axis < 0 ? -axis - 1 : ndim - axis - 1);
  check(node, NEConcatenateLayer::validate(infos, node.out()->info(), from_last));
  f->configure(parts, node.out(), from_last);
  return f;
}

const std::map<std::string, std::function<Function(Node &)>> kernels = {
    {"nn.conv2d", conv2d},
    {"qnn.conv2d", conv2d},
    {"nn.depthwise_conv2d", depthwise},
    {"qnn.depthwise_conv2d", depthwise},
    {"nn.dense", dense},
    {"qnn.dense", dense},
    {"nn.max_pool2d", [](Node &n) { return local_pool(n, PoolingType::MAX); }},
    {"nn.avg_pool2d", [](Node &n) { return local_pool(n, PoolingType::AVG); }},
    {"nn.l2_pool2d", [](Node &n) { return local_pool(n, PoolingType::L2); }},
    {"nn.global_max_pool2d", [](Node &n) { return global_pool(n, PoolingType::MAX); }},
    {"nn.global_avg_pool2d", [](Node &n) { return global_pool(n, PoolingType::AVG); }},
    {"reshape", reshape},
    {"maximum", maximum},
    {"add", add},
    {"qnn.add", add},
    {"concatenate", concatenate},
};

// Rows of a tensor one after another, which in the library's own memory may have padding between them.
void copy(Tensor &tensor, char *dense, bool to_dense) {
  Window window;
  window.use_tensor_dimensions(tensor.info()->tensor_shape());
  size_t row = tensor.info()->dimension(0) * tensor.info()->element_size();
  window.set(Window::DimX, Window::Dimension(0, 1, 1));
  execute_window_loop(window, [&](const Coordinates &at) {
    uint8_t *place = tensor.ptr_to_element(at);
    if (to_dense) std::memcpy(dense, place, row);
    else std::memcpy(place, dense, row);
    dense += row;
  });
}

void check_memory(const Status &status) {
  if (!bool(status)) throw std::runtime_error("memory is refused: " + status.error_description());
}

class Program {
 public:
  Program(const arm_external_function &function, const arm_external_host *host) : host_(host), json_(Reader(function.source).read()), workspace_(host) {
    HostScheduler::Use use(host_);
    for (const Value &node : json_["nodes"].items) add_node(node, function);
    int32_t output = 0;
    for (const Value &head : json_["heads"].items) entry(head).output = output++;
    num_outputs_ = output;
    for (Node &node : nodes_) {
      auto found = kernels.find(node.name);
      if (found == kernels.end()) throw std::runtime_error("there is no kernel " + node.name);
      functions_.push_back(found->second(node));
    }
    for (auto &row : entries_)
      for (Entry &e : row) place(e);
    workspace_.populate();
    for (auto &f : functions_) f->prepare();
  }

  void run(const arm_tensor *inputs, int32_t num_inputs, const arm_tensor *outputs, int32_t num_outputs) {
    if (num_inputs != num_inputs_ || num_outputs != num_outputs_) throw std::runtime_error("inputs or outputs are missing");
    HostScheduler::Use use(host_);
    for (auto &row : entries_)
      for (Entry &e : row) {
        if (e.role == Role::kInput) give(e, inputs[e.index].data);
        if (e.output >= 0 && e.role == Role::kInner && !is_padded(e)) give(e, outputs[e.output].data);
      }
    for (auto &f : functions_) f->run();
    for (auto &row : entries_)
      for (Entry &e : row)
        if (e.output >= 0 && is_padded(e)) copy(*e.tensor, static_cast<char *>(outputs[e.output].data), true);
  }

 private:
  static bool is_padded(const Entry &e) { return e.tensor->info()->has_padding(); }

  Entry &entry(const Value &edge) {
    auto &row = entries_.at(static_cast<size_t>(edge[0].number()));
    return row.at(static_cast<size_t>(edge[1].number()));
  }

  void add_node(const Value &json, const arm_external_function &function) {
    const Value &shapes = json["attrs"]["shape"][0], &dtypes = json["attrs"]["dtype"][0];
    std::vector<Entry> row;
    for (size_t k = 0; k < shapes.items.size(); k++) {
      Entry e;
      e.tensor = make_tensor(shapes[k], dtypes[k].text);
      row.push_back(std::move(e));
    }
    const std::string &op = json["op"].text;
    if (op == "input") {
      row.at(0).role = Role::kInput;
      row[0].index = num_inputs_++;
    } else if (op == "const") {
      row.at(0).role = Role::kConstant;
      row[0].index = num_constants_++;
      if (row[0].index >= function.num_constants) throw std::runtime_error("constants are missing");
      row[0].constant = &function.constants[row[0].index];
    }
    entries_.push_back(std::move(row));
    if (op != "kernel") return;
    Node node{&json, json["name"].text, {}, {}, workspace_.manager()};
    for (const Value &edge : json["inputs"].items) node.inputs.push_back(&entry(edge));
    for (Entry &e : entries_.back()) node.outputs.push_back(&e);
    nodes_.push_back(node);
  }

  // After everything is configured, a tensor's padding is known.
  static void place(Entry &e) {
    bool given = e.role == Role::kInput || (e.output >= 0 && e.role == Role::kInner);
    if (e.role == Role::kConstant && !is_padded(e)) {
      check_memory(e.tensor->allocator()->import_memory(e.constant->data));
    } else if (!given || is_padded(e)) {
      e.tensor->allocator()->allocate();
      if (e.role == Role::kConstant) copy(*e.tensor, static_cast<char *>(e.constant->data), false);
    }
  }

  static void give(Entry &e, void *memory) {
    if (is_padded(e)) copy(*e.tensor, static_cast<char *>(memory), false);
    else check_memory(e.tensor->allocator()->import_memory(memory));
  }

  const arm_external_host *host_;
  Value json_;
  Workspace workspace_;
  std::vector<std::vector<Entry>> entries_;
  std::vector<Node> nodes_;
  std::vector<Function> functions_;
  int32_t num_inputs_ = 0, num_constants_ = 0, num_outputs_ = 0;
};

using External = offload::External<Program>;
const char *version();

int create(const arm_external_function *function, const arm_external_host *host, void **handle, char *err, size_t size) {
#ifdef ARMILLARY_ACL_VERSION
  int code = offload::guarded(err, size, [] {
    if (std::strcmp(version(), "v" ARMILLARY_ACL_VERSION) != 0)  // classes differ in size: nothing of it may run
      throw std::runtime_error("the runtime was built against v" ARMILLARY_ACL_VERSION
                               ", which is not this library's version; build it again: armc build-external arm_compute_lib");
  });
  if (code != 0) return code;
#endif
  return External::create(function, host, handle, err, size);
}

// "v20.08" of the library's build information.
const char *version() {
  static const std::string text = [] {
    std::string all = build_information(), key = "arm_compute_version=";
    size_t at = all.find(key);
    return at == std::string::npos ? std::string("of unknown version") : all.substr(at + key.size(), all.find(' ', at) - at - key.size());
  }();
  return text.c_str();
}

}  // namespace acl

extern "C" __attribute__((visibility("default"))) const arm_external_api *armillary_external(void) {
  static const arm_external_api api = {ARM_EXTERNAL_ABI, "arm_compute_lib", acl::version(), acl::create, acl::External::run,
                                       acl::External::destroy};
  return &api;
}
