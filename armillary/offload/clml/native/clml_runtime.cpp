// The runtime of functions offloaded to OpenCLML: the JSON of a function becomes a row of the library's operators.
//
// In: JSON as offload/clml writes it, constants, then inputs and outputs at each run, all in OpenCL memory of the graph.
// Out: results. Invariant: everything is done in the context and the queue of the graph, in order, so nothing waits; values
// between operators stay in the library's own layout; what the library refuses is a message with the operator and the code.
// An operator is one row of `kernels` below. Types, functions and numbers of the library come from the header of the SDK that
// the user has; none is repeated here. The interface: arm_external.h.
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <CL/cl_qcom_ml_ops.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <type_traits>

#include "arm_external.h"
#include "external_program.hpp"
#include "memory_plan.hpp"
#include "offload_json.hpp"
#include "recording.hpp"
#include "tuned_records.hpp"

namespace clml {
using offload::Reader;
using offload::Value;

#define CLML_NAME(version) clGetMLInterfaceV##version##QCOM
#define CLML_GETTER(version) CLML_NAME(version)
using Library = std::remove_pointer_t<decltype(CLML_GETTER(CL_QCOM_ML_OPS_H_MAJOR_VERSION)(0))>;

void check(cl_int code, const std::string &what) {
  if (code != CL_SUCCESS) throw std::runtime_error(what + " is refused: error " + std::to_string(code));
}

std::string extensions_of(cl_device_id device) {
  size_t size = 0;
  check(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, nullptr, &size), "asking for extensions");
  std::string extensions(size, ' ');
  check(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, size, &extensions[0], nullptr), "asking for extensions");
  return extensions.c_str();  // without the zero behind it
}

// The functions of the library, of the version that this file was compiled for.
const Library *find_library(const std::string &extensions) {
  if (extensions.find("cl_qcom_ml_ops") == std::string::npos)
    throw std::runtime_error("the device has no extension cl_qcom_ml_ops; build the model without clml");
  cl_uint count = 0;
  check(clQueryMLInterfaceVersionsQCOM(nullptr, nullptr, 0, &count), "asking for versions");
  std::vector<cl_int> major(count), minor(count);
  check(clQueryMLInterfaceVersionsQCOM(major.data(), minor.data(), count, nullptr), "asking for versions");
  std::string known;
  for (cl_int version : major) {
    if (version == CL_QCOM_ML_OPS_H_MAJOR_VERSION) return CLML_GETTER(CL_QCOM_ML_OPS_H_MAJOR_VERSION)(0);
    known += (known.empty() ? "" : ", ") + std::to_string(version);
  }
  throw std::runtime_error("this runtime was built with an SDK of version " + std::to_string(CL_QCOM_ML_OPS_H_MAJOR_VERSION) +
                           ", the driver has " + known + "; build it again with an SDK of one of these");
}

struct Shape { cl_uint n, c, h, w; };

Shape shape_of(const Value &dims) {
  cl_uint all[4] = {1, 1, 1, 1};
  for (size_t k = 0; k < dims.items.size() && k < 4; k++) all[k] = static_cast<cl_uint>(dims[k].number());
  return {all[0], all[1], all[2], all[3]};
}

struct Entry {
  cl_ml_tensor_qcom tensor = nullptr, outside = nullptr;  // in the library's layout, and as the graph has it
  cl_mem memory = nullptr;  // of a block that other values use before and after
  long first = -1, last = -1;  // the operators that write it and read it last
  Shape shape{1, 1, 1, 1};
  cl_channel_type type = CL_FLOAT;
  int32_t input = -1, output = -1, constant = -1;
  size_t bytes() const { return size_t(shape.n) * shape.c * shape.h * shape.w * (type == CL_FLOAT ? 4 : 2); }
};

class Program;

struct Node {
  const Value *json;
  std::string name;
  std::vector<Entry *> inputs;
  Entry *out;
  Program *program;

  bool has(const char *key) const { return (*json)["attrs"].has(key); }
  const std::string &text(const char *key, size_t k = 0) const { return (*json)["attrs"][key][0][k].text; }
  cl_uint number(const char *key, size_t k = 0) const { return static_cast<cl_uint>(std::stol(text(key, k))); }
  float real(const char *key) const { return std::stof(text(key)); }
  cl_ml_tensor_qcom in(size_t k) const { return inputs.at(k)->tensor; }
  cl_arithmetic_mode_qcom arithmetic() const {
    if (out->type == CL_FLOAT) return CL_ARITHMETIC_MODE_FP32_QCOM;
    return has("acc_dtype") ? CL_ARITHMETIC_MODE_FP16_ACC32_QCOM : CL_ARITHMETIC_MODE_FP16_QCOM;
  }
};

class Program {
 public:
  Program(const arm_external_function &function, const arm_external_host *host);
  ~Program();
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  void run(const arm_tensor *inputs, int32_t num_inputs, const arm_tensor *outputs, int32_t num_outputs);

  const Library *ml = nullptr;
  cl_context context = nullptr;
  cl_ml_tuningcache_qcom tuned = nullptr;
  cl_ml_tensor_qcom unused();
  void add(cl_ml_op_qcom op) { ops_.push_back(op); }

 private:
  void add_node(const Value &json);
  cl_ml_tensor_qcom make(const Entry &entry, cl_ml_tensor_layout_qcom layout);
  void place();
  void copy(cl_ml_tensor_qcom from, cl_mem from_memory, cl_ml_tensor_qcom to, cl_mem to_memory);
  cl_mem memory_of(const arm_tensor &tensor, size_t bytes);
  void load_cache(const std::string &symbol);
  void tune(const std::string &symbol);

  const arm_external_host *host_;
  cl_command_queue queue_ = nullptr;
  Value json_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Node> nodes_;
  std::vector<cl_ml_op_qcom> ops_;
  std::vector<cl_ml_tensor_memory_desc_qcom> places_;
  std::vector<cl_mem> blocks_;
  cl_ml_tensor_mem_desc_set_qcom set_{};
  Recording recording_;
  bool has_set_ = false;
  cl_ml_tensor_qcom unused_ = nullptr;
  int32_t num_inputs_ = 0, num_constants_ = 0, num_outputs_ = 0;
};

using Kernel = std::function<void(Node &)>;

void keep(Node &node, cl_int code, cl_ml_op_qcom op) {
  check(code, node.name);
  node.program->add(op);
}

cl_activation_function_qcom activation_of(const Node &node, const std::string &name) {
  if (name == "relu") return CL_ACTIVATION_RELU;
  if (name == "relu6") return CL_ACTIVATION_RELU6;
  throw std::runtime_error(node.name + ": activation " + name + " is unknown here");
}

// data, weight [, bias] [, scale, shift, mean, variance]; padding is top, left, bottom, right.
void convolution(Node &node, cl_convolution_mode_qcom mode) {
  Program &p = *node.program;
  bool has_norm = node.has("batchnorm"), has_act = node.has("activation_type");
  size_t count = node.inputs.size(), first = count - (has_norm ? 4 : 0);
  if (first != 2 && first != 3) throw std::runtime_error(node.name + ": too few or too many inputs");
  cl_ml_tensor_qcom bias = first == 3 ? node.in(2) : p.unused(), x = node.in(0), w = node.in(1), y = node.out->tensor;
  auto pair = [&](const char *key, size_t k, cl_uint *out) { out[0] = node.number(key, k), out[1] = node.number(key, k + 1); };
  cl_uint before[2], after[2], strides[2], dilation[2];
  pair("padding", 0, before), pair("padding", 2, after), pair("strides", 0, strides), pair("dilation", 0, dilation);
  cl_ml_op_convolution_desc_qcom conv{mode, 1, 4, {before[0], before[1]}, {after[0], after[1]}, {strides[0], strides[1]},
                                      {dilation[0], dilation[1]}, 0, node.arithmetic()};
  cl_ml_op_activation_desc_qcom act{has_act ? activation_of(node, node.text("activation_type")) : CL_ACTIVATION_RELU,
                                    CL_PROPAGATE_NAN_QCOM, node.arithmetic()};
  cl_ml_op_batchnorm_desc_qcom norm{CL_BATCHNORM_MODE_SPATIAL_QCOM, node.arithmetic()};
  cl_ml_op_property_qcom epsilon[] = {CL_ML_BATCH_NORM_OP_EPSILON_QCOM, 0, CL_ML_OP_PROPERTY_LIST_END_QCOM};
  cl_ml_op_qcom op = nullptr;
  cl_int code;
  if (!has_norm && !has_act) {
    code = p.ml->clCreateMLOpConvolutionForwardQCOM(p.context, nullptr, &conv, x, w, bias, y, &op, p.tuned);
  } else if (!has_norm) {
    code = p.ml->clCreateMLOpFusedConvolutionActivationForwardQCOM(p.context, nullptr, &conv, &act, x, w, bias, nullptr, y,
                                                                  &op, p.tuned);
  } else {
    float value = std::stof(node.text("batchnorm", 1));
    std::memcpy(&epsilon[1], &value, sizeof value);
    auto scale = node.in(first), shift = node.in(first + 1), mean = node.in(first + 2), variance = node.in(first + 3);
    code = has_act ? p.ml->clCreateMLOpFusedConvolutionBatchNormActivationForwardQCOM(
                         p.context, epsilon, &conv, &norm, &act, x, w, bias, y, nullptr, mean, variance, scale, shift, &op,
                         p.tuned)
                   : p.ml->clCreateMLOpFusedConvolutionBatchNormForwardQCOM(p.context, epsilon, &conv, &norm, x, w, bias, y,
                                                                           mean, variance, scale, shift, &op, p.tuned);
  }
  keep(node, code, op);
}

void activation(Node &node, const char *name) {
  Program &p = *node.program;
  cl_ml_op_activation_desc_qcom how{activation_of(node, name), CL_PROPAGATE_NAN_QCOM, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpActivationForwardQCOM(p.context, nullptr, &how, node.in(0), p.unused(), node.out->tensor, &op,
                                                     p.tuned), op);
}

// data, scale, shift, mean, variance
void batch_norm(Node &node) {
  Program &p = *node.program;
  cl_ml_op_batchnorm_desc_qcom how{CL_BATCHNORM_MODE_SPATIAL_QCOM, node.arithmetic()};
  cl_ml_op_property_qcom epsilon[] = {CL_ML_BATCH_NORM_OP_EPSILON_QCOM, 0, CL_ML_OP_PROPERTY_LIST_END_QCOM};
  float value = node.real("epsilon");
  std::memcpy(&epsilon[1], &value, sizeof value);
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpBatchNormForwardQCOM(p.context, epsilon, &how, node.in(0), node.in(3), node.in(4), node.in(1),
                                                    node.in(2), node.out->tensor, &op, p.tuned), op);
}

void pooling(Node &node, cl_pooling_mode_qcom mode, bool is_global) {
  Program &p = *node.program;
  const Shape &data = node.inputs.at(0)->shape;
  cl_uint pads[4] = {0, 0, 0, 0}, strides[2] = {1, 1}, window[2] = {data.h, data.w};
  for (size_t k = 0; !is_global && k < 4; k++) pads[k] = node.number("padding", k);
  for (size_t k = 0; !is_global && k < 2; k++) {
    strides[k] = node.number("strides", k);
    window[k] = node.number("pool_size", k);
  }
  cl_ml_op_pooling_desc_qcom how{mode, 4, {pads[0], pads[1]}, {pads[2], pads[3]}, {strides[0], strides[1]},
                                 {window[0], window[1]}, CL_PROPAGATE_NAN_QCOM, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpPoolingForwardQCOM(p.context, nullptr, &how, node.in(0), p.unused(), node.out->tensor, &op,
                                                  p.tuned), op);
}

void softmax(Node &node) {
  Program &p = *node.program;
  bool is_vector = node.out->shape.h == 1 && node.out->shape.w == 1;
  cl_ml_op_softmax_desc_qcom how{CL_SOFTMAX_ALGORITHM_ACCURATE_QCOM,
                                 is_vector ? CL_SOFTMAX_MODE_INSTANCE_QCOM : CL_SOFTMAX_MODE_SPATIAL_QCOM, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpSoftmaxQCOM(p.context, nullptr, &how, node.in(0), node.out->tensor, &op, p.tuned), op);
}

void pad(Node &node) {
  Program &p = *node.program;
  const std::string &mode = node.text("pad_mode");
  cl_pad_mode_qcom kind = mode == "edge"      ? CL_PAD_MODE_SYMMETRIC_QCOM
                          : mode == "reflect" ? CL_PAD_MODE_REFLECT_QCOM
                                              : CL_PAD_MODE_CONSTANT_QCOM;
  auto at = [&](size_t k) { return node.number("pad_width", k); };
  cl_ml_op_pad_desc_qcom how{kind, {0, 0}, {at(0), at(1), at(2), at(3), 0, 0, 0, 0}, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpPadQCOM(p.context, nullptr, &how, node.in(0), node.out->tensor, &op, p.tuned), op);
}

void reshape(Node &node) {
  Program &p = *node.program;
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpReshapeQCOM(p.context, nullptr, node.in(0), node.out->tensor, &op, p.tuned), op);
}

void concatenate(Node &node) {
  Program &p = *node.program;
  std::vector<cl_ml_tensor_qcom> parts;
  for (Entry *entry : node.inputs) parts.push_back(entry->tensor);
  cl_ml_op_concat_desc_qcom how{1, static_cast<cl_uint>(parts.size()), node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpConcatQCOM(p.context, nullptr, &how, parts.data(), node.out->tensor, &op, p.tuned), op);
}

void binary(Node &node, cl_binary_op_qcom kind) {
  Program &p = *node.program;
  cl_ml_op_binary_desc_qcom how{kind, {{1.0}, CL_FLOAT}, {{1.0}, CL_FLOAT}, {{0.0}, CL_FLOAT}, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpBinaryQCOM(p.context, nullptr, &how, node.in(0), node.in(1), node.out->tensor, &op, p.tuned), op);
}

// One row of data is a 1x1 convolution, with its bias; several rows are a product of matrices.
void dense(Node &node) {
  Program &p = *node.program;
  const Shape &x = node.inputs.at(0)->shape, &w = node.inputs.at(1)->shape;
  bool has_bias = node.inputs.size() == 3;
  cl_ml_op_qcom op = nullptr;
  if (x.n == 1) {
    cl_ml_op_convolution_desc_qcom how{CL_CONVOLUTION_MODE_CONVOLUTION_QCOM, 1, 4, {0, 0}, {0, 0}, {1, 1}, {1, 1}, 0,
                                       node.arithmetic()};
    keep(node, p.ml->clCreateMLOpConvolutionForwardQCOM(p.context, nullptr, &how, node.in(0), node.in(1),
                                                        has_bias ? node.in(2) : p.unused(), node.out->tensor, &op, p.tuned), op);
    return;
  }
  if (has_bias) throw std::runtime_error(node.name + ": a bias for several rows is unknown here");
  cl_ml_op_gemm_desc_qcom how{x.n, w.n, w.c, CL_GEMM_TRANSFORM_NONE_QCOM, CL_GEMM_TRANSFORM_TRANSPOSE_QCOM,
                              {{1.0}, CL_FLOAT}, {{0.0}, CL_FLOAT}, node.arithmetic()};
  keep(node, p.ml->clCreateMLOpGemmQCOM(p.context, nullptr, &how, node.in(0), node.in(1), node.out->tensor, &op, p.tuned), op);
}

// Both operands have a batch of one: (1, rows, terms) times (1, columns, terms), or (1, terms, columns).
void batch_matmul(Node &node) {
  Program &p = *node.program;
  bool turned = node.number("transpose_b") != 0;
  const Shape &a = node.inputs.at(0)->shape, &y = node.out->shape;
  cl_ml_op_gemm_desc_qcom how{a.c, y.h, a.h, CL_GEMM_TRANSFORM_NONE_QCOM,
                              turned ? CL_GEMM_TRANSFORM_TRANSPOSE_QCOM : CL_GEMM_TRANSFORM_NONE_QCOM,
                              {{1.0}, CL_FLOAT}, {{0.0}, CL_FLOAT}, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpGemmQCOM(p.context, nullptr, &how, node.in(0), node.in(1), node.out->tensor, &op, p.tuned), op);
}

void clip(Node &node) {
  Program &p = *node.program;
  cl_ml_op_clip_desc_qcom how{CL_CLIP_BY_VALUE_QCOM, {{node.real("a_max")}, CL_FLOAT}, {{node.real("a_min")}, CL_FLOAT},
                              node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpClipQCOM(p.context, nullptr, &how, node.in(0), node.out->tensor, &op, p.tuned), op);
}

void depth_to_space(Node &node) {
  Program &p = *node.program;
  cl_ml_op_depthtospace_desc_qcom how{node.number("block_size"), node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpDepthToSpaceQCOM(p.context, nullptr, &how, node.in(0), node.out->tensor, &op, p.tuned), op);
}

void upsampling(Node &node) {
  Program &p = *node.program;
  cl_ml_op_resize_bilinear_desc_qcom how{static_cast<cl_bool>(node.number("align_corners")), false, node.arithmetic()};
  cl_ml_op_qcom op = nullptr;
  keep(node, p.ml->clCreateMLOpResizeBilinearQCOM(p.context, nullptr, &how, node.in(0), node.out->tensor, &op, p.tuned), op);
}

const std::map<std::string, Kernel> kernels = {
    {"nn.conv2d", [](Node &n) { convolution(n, CL_CONVOLUTION_MODE_CONVOLUTION_QCOM); }},
    {"nn.depthwise_conv2d", [](Node &n) { convolution(n, CL_CONVOLUTION_MODE_DEPTHWISE_QCOM); }},
    {"nn.conv2d_transpose", [](Node &n) { convolution(n, CL_CONVOLUTION_MODE_TRANSPOSE_QCOM); }},
    {"nn.dense", dense},
    {"nn.batch_matmul", batch_matmul},
    {"nn.batch_norm", batch_norm},
    {"nn.relu", [](Node &n) { activation(n, "relu"); }},
    {"nn.relu6", [](Node &n) { activation(n, "relu6"); }},
    {"nn.max_pool2d", [](Node &n) { pooling(n, CL_POOLING_MODE_MAX_QCOM, false); }},
    {"nn.avg_pool2d", [](Node &n) { pooling(n, CL_POOLING_MODE_AVERAGE_EXCLUDE_PADDING_QCOM, false); }},
    {"nn.global_max_pool2d", [](Node &n) { pooling(n, CL_POOLING_MODE_MAX_QCOM, true); }},
    {"nn.global_avg_pool2d", [](Node &n) { pooling(n, CL_POOLING_MODE_AVERAGE_EXCLUDE_PADDING_QCOM, true); }},
    {"nn.softmax", softmax},
    {"nn.pad", pad},
    {"nn.batch_flatten", reshape},
    {"reshape", reshape},
    {"concatenate", concatenate},
    {"clip", clip},
    {"add", [](Node &n) { binary(n, CL_TENSOR_OP_ADD_QCOM); }},
    {"subtract", [](Node &n) { binary(n, CL_TENSOR_OP_SUB_QCOM); }},
    {"multiply", [](Node &n) { binary(n, CL_TENSOR_OP_MUL_QCOM); }},
    {"divide", [](Node &n) { binary(n, CL_TENSOR_OP_DIV_QCOM); }},
    {"minimum", [](Node &n) { binary(n, CL_TENSOR_OP_MIN_QCOM); }},
    {"maximum", [](Node &n) { binary(n, CL_TENSOR_OP_MAX_QCOM); }},
    {"nn.depth_to_space", depth_to_space},
    {"nn.upsampling", upsampling},
};

// ---- a function ----

Program::Program(const arm_external_function &function, const arm_external_host *host)
    : host_(host), json_(Reader(function.source).read()) {
  if (host->abi < 2 || host->cl_queue == nullptr) throw std::runtime_error("the runtime lends no OpenCL device");
  context = static_cast<cl_context>(host->cl_context);
  queue_ = static_cast<cl_command_queue>(host->cl_queue);
  auto device = static_cast<cl_device_id>(host->cl_device);
  std::string extensions = extensions_of(device);
  ml = find_library(extensions);
  check(ml->clCreateMLTuningCacheQCOM(&tuned), "a tuning cache");
  load_cache(function.symbol);
  for (const Value &node : json_["nodes"].items) add_node(node);
  for (const Value &head : json_["heads"].items) entries_.at(static_cast<size_t>(head[0].number()))->output = num_outputs_++;
  if (num_constants_ != function.num_constants) throw std::runtime_error("constants are missing");
  for (Node &node : nodes_) {
    auto found = kernels.find(node.name);
    if (found == kernels.end()) throw std::runtime_error("there is no kernel " + node.name);
    found->second(node);
  }
  place();
  check(ml->clCreateMLTensorMemoryDescriptorSetQCOM(&set_), "a set of tensors");
  has_set_ = true;
  check(ml->clUpdateMLTensorMemoryDescriptorSetQCOM(set_, static_cast<cl_uint>(places_.size()), places_.data()),
        "a set of tensors");
  for (auto &entry : entries_)
    if (entry->constant >= 0)
      copy(entry->outside, memory_of(function.constants[entry->constant], entry->bytes()), entry->tensor, entry->memory);
  tune(function.symbol);
  if (has_extension(extensions, "cl_qcom_recordable_queues")) recording_.record(*ml, context, device, ops_, set_);
}

Program::~Program() {
  clFinish(queue_);
  recording_.drop();
  for (cl_ml_op_qcom op : ops_) ml->clReleaseMLOpQCOM(op);
  for (auto &entry : entries_) {
    if (entry->tensor) ml->clReleaseMLTensorQCOM(entry->tensor);
    if (entry->outside) ml->clReleaseMLTensorQCOM(entry->outside);
  }
  for (cl_mem block : blocks_)
    if (block) clReleaseMemObject(block);
  if (unused_) ml->clReleaseMLTensorQCOM(unused_);
  if (has_set_) ml->clReleaseMLTensorMemoryDescriptorSetQCOM(set_);
  if (tuned) ml->clReleaseMLTuningCacheQCOM(tuned);
}

cl_ml_tensor_qcom Program::unused() {
  if (unused_ != nullptr) return unused_;
  cl_ml_tensor_desc_qcom none = {};
  none.num_dimensions = CL_TENSOR_UNUSED_QCOM;
  check(ml->clCreateMLTensorQCOM(context, nullptr, &none, &unused_), "an empty tensor");
  return unused_;
}

cl_ml_tensor_qcom Program::make(const Entry &e, cl_ml_tensor_layout_qcom layout) {
  cl_ml_tensor_desc_qcom how = {e.type, layout, e.shape.n, e.shape.c, e.shape.h, e.shape.w, 0, CL_TENSOR_DIMENSIONS_4D_QCOM, {0}};
  cl_ml_tensor_qcom made = nullptr;
  check(ml->clCreateMLTensorQCOM(context, nullptr, &how, &made), "a tensor");
  return made;
}

void Program::add_node(const Value &json) {
  auto entry = std::make_unique<Entry>();
  const std::string &op = json["op"].text, &dtype = json["attrs"]["dtype"][0][0].text;
  if (dtype != "float32" && dtype != "float16") throw std::runtime_error("dtype " + dtype + " is unknown here");
  entry->shape = shape_of(json["attrs"]["shape"][0][0]);
  entry->type = dtype == "float32" ? CL_FLOAT : CL_HALF_FLOAT;
  entry->tensor = make(*entry, CL_TENSOR_LAYOUT_OPTIMAL_QCOM);
  entry->outside = make(*entry, CL_TENSOR_LAYOUT_NCHW_QCOM);
  if (op == "input") entry->input = num_inputs_++;
  if (op == "const") entry->constant = num_constants_++;
  Entry *out = entry.get();
  entries_.push_back(std::move(entry));
  if (op != "kernel") return;
  Node node{&json, json["name"].text, {}, out, this};
  out->first = static_cast<long>(nodes_.size());
  for (const Value &edge : json["inputs"].items) {
    Entry *read = entries_.at(static_cast<size_t>(edge[0].number())).get();
    read->last = out->first;
    node.inputs.push_back(read);
  }
  nodes_.push_back(node);
}

// Memory for the values, shared by those that are never needed at once: the queue is in order. Constants keep theirs.
void Program::place() {
  std::vector<offload::Life> lives;
  long end = static_cast<long>(nodes_.size());
  for (auto &entry : entries_) {
    cl_uint size = 0;
    check(ml->clGetMLTensorMemorySizeQCOM(context, entry->tensor, &size), "asking for the size of a tensor");
    lives.push_back({size, entry->first, entry->constant >= 0 || entry->output >= 0 ? end : entry->last});
  }
  offload::MemoryPlan plan = offload::plan_memory(lives);
  for (size_t bytes : plan.bytes) {
    cl_int code = CL_SUCCESS;
    blocks_.push_back(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &code));
    check(code, "memory of " + std::to_string(bytes) + " bytes");
  }
  for (size_t k = 0; k < entries_.size(); k++) {
    entries_[k]->memory = blocks_[plan.block_of[k]];
    places_.push_back({entries_[k]->tensor, entries_[k]->memory});
  }
}

cl_mem Program::memory_of(const arm_tensor &tensor, size_t bytes) {
  char text[256] = "";
  void *found = nullptr;
  const char *address = static_cast<const char *>(tensor.data) + tensor.byte_offset;
  if (host_->cl_memory(host_, address, bytes, &found, text, sizeof text) != 0) throw std::runtime_error(text);
  return static_cast<cl_mem>(found);
}

void Program::copy(cl_ml_tensor_qcom from, cl_mem from_memory, cl_ml_tensor_qcom to, cl_mem to_memory) {
  check(ml->clEnqueueCopyMLTensorDataQCOM(queue_, from, from_memory, to, to_memory, 0, nullptr, nullptr), "a copy");
}

void Program::load_cache(const std::string &symbol) {
  const char *path = std::getenv("CLML_TUNING_CACHE");
  std::string bytes = path && *path ? tuned_of(path, symbol) : std::string();
  if (!bytes.empty())
    check(ml->clLoadMLTuningCacheQCOM(tuned, bytes.size(), reinterpret_cast<unsigned char *>(&bytes[0])), "the tuning cache");
}

// CLML_IS_TUNING_RUN=1 with CLML_TUNING_CACHE=<file> tunes each operator here and adds what was found to the file.
void Program::tune(const std::string &symbol) {
  const char *path = std::getenv("CLML_TUNING_CACHE"), *asked = std::getenv("CLML_IS_TUNING_RUN");
  if (!path || !*path || !asked || std::strcmp(asked, "1") != 0) return;
  for (cl_ml_op_qcom op : ops_) check(ml->clTuneMLOpQCOM(queue_, op, set_, tuned, nullptr), "tuning");
  size_t size = 0;
  check(ml->clSaveMLTuningCacheQCOM(tuned, 0, nullptr, &size), "the tuning cache");
  std::vector<unsigned char> bytes(size);
  check(ml->clSaveMLTuningCacheQCOM(tuned, size, bytes.data(), nullptr), "the tuning cache");
  keep_tuned(path, symbol, std::string(bytes.begin(), bytes.end()));
}

void Program::run(const arm_tensor *inputs, int32_t num_inputs, const arm_tensor *outputs, int32_t num_outputs) {
  if (num_inputs != num_inputs_ || num_outputs != num_outputs_) throw std::runtime_error("inputs or outputs are missing");
  for (auto &e : entries_)
    if (e->input >= 0) copy(e->outside, memory_of(inputs[e->input], e->bytes()), e->tensor, e->memory);
  cl_int code = CL_SUCCESS;
  if (recording_.replay(*ml, queue_, &code)) {
    check(code, "the recording of all operators");
  } else {
    for (cl_ml_op_qcom op : ops_) check(ml->clEnqueueMLOpQCOM(queue_, op, set_, 0, nullptr, nullptr), "an operator");
  }
  int32_t number = 0;
  for (const Value &head : json_["heads"].items) {  // a value may be several outputs
    Entry &e = *entries_.at(static_cast<size_t>(head[0].number()));
    copy(e.tensor, e.memory, e.outside, memory_of(outputs[number++], e.bytes()));
  }
}

using External = offload::External<Program>;

#define CLML_TEXT(x) #x
#define CLML_SPELLED(x) CLML_TEXT(x)

}  // namespace clml

extern "C" __attribute__((visibility("default"))) const arm_external_api *armillary_external(void) {
  static const arm_external_api api = {ARM_EXTERNAL_ABI, "clml", CLML_SPELLED(CL_QCOM_ML_OPS_H_MAJOR_VERSION),
                                       clml::External::create, clml::External::run, clml::External::destroy};
  return &api;
}
