// Networks as graphs of layers: hints, tensors with accessors, nodes, the operations that configure them.
// Part of `armillary_compute.hpp`, in the namespace `graph`.
//
// In: `graph << TargetHint::NEON << Tensor(info, accessor) << ConvolutionLayer(…) << … << Tensor(accessor)`. Out: `run()`:
// the input's accessor, the stages, the output's accessor, until one accessor says to end. Invariant: a layer that does
// not fit is refused on its line; memory is taken at the first run, when weights are packed and freed layer by layer;
// values whose lifetimes do not meet share bytes. A layer's function comes from the library that was built
// (`armillary.compute.build(graph)` builds what a graph of Python's needs).
#pragma once

namespace armillary { namespace compute { namespace graph {

enum class TargetHint { NEON, OPENCL, CL = OPENCL, DONT_CARE = NEON };
using Target = TargetHint;
using ConvolutionMethodHint = ConvolutionMethod;
enum class OperationType {
  ActivationLayer, BatchNormalizationLayer, ConvolutionLayer, DepthwiseConvolutionLayer, FlattenLayer, FullyConnectedLayer,
  NormalizationLayer, PoolingLayer, ReshapeLayer, SoftmaxLayer
};

// Fills a tensor, or reads it; false: nothing more to do.
class ITensorAccessor {
public:
  virtual ~ITensorAccessor() = default;
  virtual bool access_tensor(compute::ITensor &tensor) = 0;
};
using Accessor = std::unique_ptr<ITensorAccessor>;

class GraphHints {
public:
  GraphHints(TargetHint target = TargetHint::NEON) : target_(target) {}
  TargetHint target_hint() const { return target_; }
  void set_target_hint(TargetHint target) { target_ = target; }
  bool has_convolution_method_hint() const { return has_method_; } // without one the layer chooses
  ConvolutionMethodHint convolution_method_hint() const { return method_; }
  void set_convolution_method_hint(ConvolutionMethodHint method) { method_ = method, has_method_ = true; }

private:
  TargetHint target_;
  ConvolutionMethodHint method_ = ConvolutionMethodHint::GEMM;
  bool has_method_ = false;
};

// Tensors of a target; `armillary_compute_cl.hpp` sets the device's.
using TensorFactory = compute::Tensor *(*)();
inline TensorFactory &factory_of(TargetHint target) {
  static TensorFactory all[] = {[] { return new compute::Tensor; }, nullptr};
  return all[int(target)];
}
inline std::unique_ptr<compute::Tensor> new_tensor(TargetHint target, const TensorInfo &info = TensorInfo()) {
  if (!factory_of(target)) throw std::runtime_error("the graph needs OpenCL: build with opencl=1");
  std::unique_ptr<compute::Tensor> tensor(factory_of(target)());
  tensor->allocator()->init(info);
  return tensor;
}

class ITensorObject {
public:
  virtual ~ITensorObject() = default;
  virtual bool call_accessor() = 0;
  virtual compute::ITensor *set_target(TargetHint target) = 0;
  virtual compute::ITensor *tensor() = 0;
  virtual const compute::ITensor *tensor() const = 0;
  virtual TargetHint target() const = 0;
  virtual void allocate() = 0;
};

// Where a graph begins or ends: information, a tensor of the target, who fills or reads it.
class Tensor final : public ITensorObject {
public:
  explicit Tensor(const TensorInfo &info) : info_(info) {}
  Tensor(const TensorInfo &info, Accessor accessor) : info_(info), accessor_(std::move(accessor)) {}
  explicit Tensor(Accessor accessor) : accessor_(std::move(accessor)) {}
  const TensorInfo &info() const { return info_; }
  bool has_accessor() const { return accessor_ != nullptr; }
  bool call_accessor() override {
    if (!accessor_) return false;
    tensor_->map();
    const bool goes_on = accessor_->access_tensor(*tensor_);
    tensor_->unmap();
    return goes_on;
  }
  compute::ITensor *set_target(TargetHint target) override {
    target_ = target, tensor_ = new_tensor(target, info_);
    return tensor_.get();
  }
  compute::ITensor *tensor() override { return tensor_.get(); }
  const compute::ITensor *tensor() const override { return tensor_.get(); }
  TargetHint target() const override { return target_; }
  void allocate() override { tensor_->allocator()->allocate(); }

private:
  TargetHint target_ = TargetHint::NEON;        /**< Target that this tensor is pinned on */
  TensorInfo info_;                             /**< Tensor metadata */
  Accessor accessor_;                           /**< Tensor Accessor */
  std::unique_ptr<compute::ITensor> tensor_;    /**< Tensor */
};

// A node, as an operation sees it: tensors (values, weights, biases), parameters by name, hints.
class NodeContext {
public:
  NodeContext(OperationType operation, GraphHints hints) : operation_(operation), hints_(hints) {}
  OperationType operation() const { return operation_; }
  TargetHint target() const { return hints_.target_hint(); }
  const GraphHints &hints() const { return hints_; }
  std::shared_ptr<IMemoryManager> memory_manager() const { return manager_; }
  void set_memory_manager(std::shared_ptr<IMemoryManager> manager) { manager_ = std::move(manager); }
  void add_input(compute::ITensor *input) { inputs_.push_back(input); }
  void add_output(compute::ITensor *output) { outputs_.push_back(output); }
  size_t num_inputs() const { return inputs_.size(); }
  size_t num_outputs() const { return outputs_.size(); }
  compute::ITensor *input(size_t n) const { return n < inputs_.size() ? inputs_[n] : nullptr; } // null: it lacks one
  compute::ITensor *output(size_t n) const { return outputs_.at(n); }
  template <class T> void add_parameter(const std::string &name, const T &value) {
    parameters_[name] = std::make_shared<T>(value);
  }
  template <class T> T parameter(const std::string &name) const {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) throw std::invalid_argument("the node has no parameter " + name);
    return *static_cast<const T *>(found->second.get());
  }

private:
  OperationType operation_;
  GraphHints hints_;
  std::vector<compute::ITensor *> inputs_, outputs_;
  std::map<std::string, std::shared_ptr<void>> parameters_;
  std::shared_ptr<IMemoryManager> manager_;
};

class IOperation {
public:
  virtual ~IOperation() = default;
  virtual std::unique_ptr<compute::IFunction> configure(NodeContext &ctx) = 0;
  virtual TargetHint target() const = 0;
};

// One operation for each type and target: the last one that was registered.
class OperationRegistry {
public:
  static OperationRegistry &get() {
    static OperationRegistry one;
    return one;
  }
  IOperation *find_operation(OperationType operation, TargetHint target) {
    const auto found = all_.find({operation, target});
    return found == all_.end() ? nullptr : found->second.get();
  }
  bool contains(OperationType operation, TargetHint target) const { return all_.count({operation, target}) != 0; }
  void add_operation(OperationType operation, std::unique_ptr<IOperation> made) {
    const TargetHint target = made->target();
    all_[{operation, target}] = std::move(made);
  }
  // The library's own, which leave those of a program in place.
  void add_default(OperationType operation, std::unique_ptr<IOperation> made) {
    if (!contains(operation, made->target())) add_operation(operation, std::move(made));
  }

private:
  OperationRegistry() = default;
  std::map<std::pair<OperationType, TargetHint>, std::unique_ptr<IOperation>> all_;
};

namespace detail {
template <class T> class OperationRegistrar {
public:
  explicit OperationRegistrar(OperationType operation) {
    OperationRegistry::get().add_operation(operation, std::unique_ptr<IOperation>(new T));
  }
};
} // namespace detail

#define REGISTER_SIMPLE_OPERATION(NAME, TARGET, OP)                                \
    class NAME : public ::armillary::compute::graph::IOperation                    \
    {                                                                              \
    public:                                                                        \
        std::unique_ptr<::armillary::compute::IFunction> configure(                \
            ::armillary::compute::graph::NodeContext &ctx) final;                  \
        ::armillary::compute::graph::TargetHint target() const final               \
        {                                                                          \
            return ::armillary::compute::graph::TargetHint::TARGET;                \
        }                                                                          \
    };                                                                             \
    static ::armillary::compute::graph::detail::OperationRegistrar<NAME> NAME##_registrar(OP); \
    std::unique_ptr<::armillary::compute::IFunction> NAME::configure(              \
        ::armillary::compute::graph::NodeContext &ctx)

// Functions of a target as operations; F names its functions (`NEFunctions`, `CLFunctions`).
namespace detail {
template <class F> class Operations final : public IOperation {
public:
  explicit Operations(OperationType type) : type_(type) {}
  TargetHint target() const override { return F::target(); }
  std::unique_ptr<compute::IFunction> configure(NodeContext &ctx) override {
    compute::ITensor *in = ctx.input(0), *out = ctx.output(0);
    const auto mm = ctx.memory_manager();
    switch (type_) {
    case OperationType::ActivationLayer:
      return ready(new typename F::Activation(mm), in, out, ctx.parameter<ActivationLayerInfo>("ActivationLayerInfo"));
    case OperationType::PoolingLayer:
      return ready(new typename F::Pooling(mm), in, out, ctx.parameter<PoolingLayerInfo>("PoolingLayerInfo"));
    case OperationType::SoftmaxLayer: return ready(new typename F::Softmax(mm), in, out, ctx.parameter<float>("Beta"));
    case OperationType::FlattenLayer: return ready(new typename F::Flatten(mm), in, out);
    case OperationType::ReshapeLayer:
      if (out->info()->total_size() <= 1) out->allocator()->init(ctx.parameter<TensorInfo>("OutputInfo"));
      return ready(new typename F::Reshape(mm), in, out);
    case OperationType::FullyConnectedLayer:
      return ready(new typename F::FullyConnected(mm), in, ctx.input(1), ctx.input(2), out);
    case OperationType::NormalizationLayer:
      return ready(new typename F::Normalization(mm), in, out, ctx.parameter<NormalizationLayerInfo>("NormalizationLayerInfo"));
    case OperationType::BatchNormalizationLayer: {
      const bool has_beta = ctx.parameter<bool>("HasBeta"), has_gamma = ctx.parameter<bool>("HasGamma");
      return ready(new typename F::BatchNormalization(mm), in, out, ctx.input(1), ctx.input(2), has_beta ? ctx.input(3) : nullptr,
                   has_gamma ? ctx.input(3 + has_beta) : nullptr, ctx.parameter<float>("Epsilon"));
    }
    case OperationType::DepthwiseConvolutionLayer:
      return ready(new typename F::Depthwise(mm), in, ctx.input(1), ctx.input(2), out, ctx.parameter<PadStrideInfo>("ConvolutionInfo"),
                   ctx.parameter<unsigned int>("DepthMultiplier"));
    case OperationType::ConvolutionLayer: break;
    }
    const auto info = ctx.parameter<PadStrideInfo>("ConvolutionInfo");
    if (!ctx.hints().has_convolution_method_hint())
      return ready(new typename F::Convolution(mm), in, ctx.input(1), ctx.input(2), out, info);
    switch (ctx.hints().convolution_method_hint()) {
    case ConvolutionMethod::DIRECT: return ready(new typename F::Direct(mm), in, ctx.input(1), ctx.input(2), out, info);
    case ConvolutionMethod::WINOGRAD: return ready(new typename F::Winograd(mm), in, ctx.input(1), ctx.input(2), out, info);
    case ConvolutionMethod::FFT: return ready(new typename F::FFT(mm), in, ctx.input(1), ctx.input(2), out, info);
    default: return ready(new typename F::GEMM(mm), in, ctx.input(1), ctx.input(2), out, info);
    }
  }

private:
  template <class Function, class... Arguments>
  static std::unique_ptr<compute::IFunction> ready(Function *function, Arguments... arguments) {
    std::unique_ptr<Function> owned(function);
    owned->configure(arguments...);
    return std::unique_ptr<compute::IFunction>(std::move(owned));
  }
  OperationType type_;
};

template <class F> bool register_operations() {
  for (int type = 0; type <= int(OperationType::SoftmaxLayer); type++)
    OperationRegistry::get().add_default(OperationType(type), std::unique_ptr<IOperation>(new Operations<F>(OperationType(type))));
  return true;
}
struct NEFunctions {
  static TargetHint target() { return TargetHint::NEON; }
  using Activation = NEActivationLayer;
  using Pooling = NEPoolingLayer;
  using Softmax = NESoftmaxLayer;
  using Flatten = NEFlattenLayer;
  using Reshape = NEReshapeLayer;
  using FullyConnected = NEFullyConnectedLayer;
  using Convolution = NEConvolutionLayer;
  using GEMM = NEGEMMConvolutionLayer;
  using Direct = NEDirectConvolutionLayer;
  using Winograd = NEWinogradConvolutionLayer;
  using FFT = NEFFTConvolutionLayer;
  using Depthwise = NEDepthwiseConvolutionLayer;
  using BatchNormalization = NEBatchNormalizationLayer;
  using Normalization = NENormalizationLayer;
};
static const bool has_ne_operations = register_operations<NEFunctions>();
} // namespace detail

// A layer without tensors: what it computes, which weights it needs, its parameters.
class INode {
public:
  using Weights = std::vector<std::pair<TensorInfo, ITensorAccessor *>>;
  INode(OperationType type, const char *name) : type_(type), name_(name) {}
  virtual ~INode() = default;
  OperationType operation() const { return type_; }
  const std::string &name() const { return name_; }
  virtual Weights weights(const TensorInfo &) const { return {}; }
  virtual void add_parameters(NodeContext &) const {}

private:
  OperationType type_;
  std::string name_;
};

// A layer of one input and one parameter.
template <class T, OperationType Type> class ParameterLayer : public INode {
public:
  ParameterLayer(const char *name, const char *parameter, T value) : INode(Type, name), parameter_(parameter), value_(value) {}
  void add_parameters(NodeContext &ctx) const override { ctx.add_parameter(parameter_, value_); }

private:
  const char *parameter_;
  T value_;
};
class ActivationLayer final : public ParameterLayer<ActivationLayerInfo, OperationType::ActivationLayer> {
public:
  explicit ActivationLayer(ActivationLayerInfo info) : ParameterLayer("ActivationLayer", "ActivationLayerInfo", info) {}
};
class PoolingLayer final : public ParameterLayer<PoolingLayerInfo, OperationType::PoolingLayer> {
public:
  explicit PoolingLayer(PoolingLayerInfo info) : ParameterLayer("PoolingLayer", "PoolingLayerInfo", info) {}
};
class SoftmaxLayer final : public ParameterLayer<float, OperationType::SoftmaxLayer> {
public:
  explicit SoftmaxLayer(float beta = 1.0f) : ParameterLayer("SoftmaxLayer", "Beta", beta) {}
};
class ReshapeLayer final : public ParameterLayer<TensorInfo, OperationType::ReshapeLayer> {
public:
  explicit ReshapeLayer(const TensorShape &shape)
      : ParameterLayer("ReshapeLayer", "OutputInfo", TensorInfo(shape, 1, DataType::F32)) {}
};
class NormalizationLayer final : public ParameterLayer<NormalizationLayerInfo, OperationType::NormalizationLayer> {
public:
  explicit NormalizationLayer(NormalizationLayerInfo info) : ParameterLayer("NormalizationLayer", "NormalizationLayerInfo", info) {}
};
class BatchNormalizationLayer final : public INode {
public:
  BatchNormalizationLayer(Accessor mean, Accessor var, Accessor gamma = nullptr, Accessor beta = nullptr, float epsilon = 0.001f)
      : INode(OperationType::BatchNormalizationLayer, "BatchNormalizationLayer"), epsilon_(epsilon) {
    has_beta_ = beta != nullptr, has_gamma_ = gamma != nullptr;
    for (Accessor *each : {&mean, &var, &beta, &gamma})
      if (*each) numbers_.push_back(std::move(*each));
  }
  Weights weights(const TensorInfo &input) const override {
    Weights all;
    for (auto &each : numbers_) all.emplace_back(TensorInfo(TensorShape(input.dimension(2)), 1, DataType::F32), each.get());
    return all;
  }
  void add_parameters(NodeContext &ctx) const override {
    ctx.add_parameter("HasBeta", has_beta_), ctx.add_parameter("HasGamma", has_gamma_), ctx.add_parameter("Epsilon", epsilon_);
  }

private:
  std::vector<Accessor> numbers_;
  bool has_beta_, has_gamma_;
  float epsilon_;
};
class FlattenLayer final : public INode {
public:
  FlattenLayer() : INode(OperationType::FlattenLayer, "FlattenLayer") {}
};

// A layer with weights and, unless their accessor is null, biases.
class WeightedLayer : public INode {
public:
  WeightedLayer(OperationType type, const char *name, unsigned int outputs, Accessor weights, Accessor biases)
      : INode(type, name), outputs_(outputs), weights_(std::move(weights)), biases_(std::move(biases)) {}
  Weights weights(const TensorInfo &input) const override {
    Weights all{{TensorInfo(shape_of(input.tensor_shape()), 1, DataType::F32), weights_.get()}};
    if (biases_) all.emplace_back(TensorInfo(TensorShape(outputs_of(input)), 1, DataType::F32), biases_.get());
    return all;
  }

protected:
  virtual TensorShape shape_of(const TensorShape &input) const = 0;
  virtual size_t outputs_of(const TensorInfo &) const { return outputs_; }
  unsigned int outputs_;

private:
  Accessor weights_, biases_;
};
class ConvolutionLayer final : public WeightedLayer {
public:
  ConvolutionLayer(unsigned int conv_width, unsigned int conv_height, unsigned int ofm, Accessor weights, Accessor biases,
                   PadStrideInfo conv_info)
      : WeightedLayer(OperationType::ConvolutionLayer, "ConvolutionLayer", ofm, std::move(weights), std::move(biases)),
        width_(conv_width), height_(conv_height), info_(conv_info) {}
  void add_parameters(NodeContext &ctx) const override { ctx.add_parameter("ConvolutionInfo", info_); }

private:
  TensorShape shape_of(const TensorShape &in) const override { return TensorShape(width_, height_, in[2], outputs_); }
  unsigned int width_, height_;
  PadStrideInfo info_;
};
class DepthwiseConvolutionLayer final : public WeightedLayer {
public:
  DepthwiseConvolutionLayer(unsigned int conv_width, unsigned int conv_height, Accessor weights, Accessor biases,
                            PadStrideInfo conv_info, unsigned int depth_multiplier = 1)
      : WeightedLayer(OperationType::DepthwiseConvolutionLayer, "DepthwiseConvolutionLayer", depth_multiplier, std::move(weights),
                      std::move(biases)),
        width_(conv_width), height_(conv_height), info_(conv_info) {}
  void add_parameters(NodeContext &ctx) const override {
    ctx.add_parameter("ConvolutionInfo", info_), ctx.add_parameter("DepthMultiplier", outputs_);
  }

private:
  TensorShape shape_of(const TensorShape &in) const override { return TensorShape(width_, height_, in[2] * outputs_); }
  size_t outputs_of(const TensorInfo &input) const override { return input.dimension(2) * outputs_; }
  unsigned int width_, height_;
  PadStrideInfo info_;
};
class FullyConnectedLayer final : public WeightedLayer {
public:
  FullyConnectedLayer(unsigned int num_outputs, Accessor weights, Accessor biases)
      : WeightedLayer(OperationType::FullyConnectedLayer, "FullyConnectedLayer", num_outputs, std::move(weights), std::move(biases)) {}

private:
  TensorShape shape_of(const TensorShape &in) const override { return TensorShape(in[0] * in[1] * in[2], outputs_); }
};

// A step of the pipeline.
struct Stage {
  std::string name;
  TargetHint target;
  std::unique_ptr<compute::IFunction> function;
};

// Copies a value to another target.
class Transfer final : public compute::IFunction {
public:
  Transfer(compute::Tensor *from, compute::Tensor *to) : from_(from), to_(to) {}
  void run() override {
    from_->map(), to_->map();
    Window rows;
    rows.use_tensor_dimensions(from_->info()->tensor_shape(), Window::DimY);
    Iterator in(from_, rows), out(to_, rows);
    const size_t size = from_->info()->dimension(0) * from_->info()->element_size();
    execute_window_loop(rows, [&](const Coordinates &) { std::memcpy(out.ptr(), in.ptr(), size); }, in, out);
    from_->unmap(), to_->unmap();
  }

private:
  compute::Tensor *from_, *to_;
};

class Graph {
public:
  Graph() = default;
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;
  void graph_init(bool use_cl_tuner = false) { (void)use_cl_tuner; } // work-groups are those of the build
  GraphHints &hints() { return hints_; }
  void add_tensor_object(std::unique_ptr<Tensor> tensor) {
    if (output_) throw std::invalid_argument("the graph has an output already");
    if (input_ && nodes_.empty()) throw std::invalid_argument("a graph has a layer between its input and its output");
    if (input_) return void(output_ = std::move(tensor));
    if (tensor->info().total_size() <= 1)
      throw std::invalid_argument("a graph begins with a Tensor that has information: Tensor(TensorInfo(...), accessor)");
    infos_.push_back(tensor->info());
    input_ = std::move(tensor);
  }
  // Configured without memory, which refuses what does not fit.
  void add_node(std::unique_ptr<INode> node) {
    if (!input_ || output_ || !pipeline_.empty())
      throw std::invalid_argument(node->name() + (input_ ? " is added behind the graph's output" : " is added before the graph's input"));
    const auto in = new_tensor(hints_.target_hint(), infos_.back()), out = new_tensor(hints_.target_hint());
    std::vector<std::unique_ptr<compute::Tensor>> weights;
    configured(*node, hints_, in.get(), out.get(), weights, nullptr);
    infos_.push_back(TensorInfo(out->info()->tensor_shape(), out->info()->format()));
    nodes_.emplace_back(std::move(node), hints_);
  }
  void configure() {
    if (!pipeline_.empty()) return;
    if (nodes_.empty()) throw std::runtime_error("a graph without layers: graph << Tensor(info, accessor) << ... << Tensor(accessor)");
    if (!output_) output_.reset(new Tensor(Accessor()));
    const auto values_manager = manager(), functions_manager = manager();
    values_.reset(new MemoryGroup(values_manager));
    TargetHint at = nodes_.front().second.target_hint();
    compute::Tensor *tail = input_->set_target(at);
    for (size_t n = 0; n < nodes_.size(); n++) {
      const GraphHints &hints = nodes_[n].second;
      if (hints.target_hint() != at) {
        compute::Tensor *copy = begin(hints.target_hint(), infos_[n]);
        pipeline_.push_back({"copy", hints.target_hint(), std::unique_ptr<compute::IFunction>(new Transfer(tail, copy))});
        end(tail), tail = copy, at = hints.target_hint();
      }
      const bool is_last = n + 1 == nodes_.size();
      compute::Tensor *next = is_last ? output_->set_target(at) : begin(at, infos_[n + 1]);
      if (is_last) next->allocator()->init(infos_[n + 1]);
      pipeline_.push_back({nodes_[n].first->name(), at, loaded(n, tail, next, functions_manager)});
      end(tail), tail = next;
    }
    values_manager->finalize(), functions_manager->finalize();
    input_->allocate(), output_->allocate();
  }
  const std::vector<Stage> &pipeline() {
    configure();
    return pipeline_;
  }
  compute::ITensor *input() { return configure(), input_->tensor(); }
  compute::ITensor *output() { return configure(), output_->tensor(); }
  void run() {
    configure();
    do {
      if (input_->has_accessor() && !input_->call_accessor()) return;
      values_->acquire();
      for (const Stage &stage : pipeline_) stage.function->run();
      values_->release();
    } while (output_->call_accessor() && input_->has_accessor());
  }

private:
  using Tensors = std::vector<std::unique_ptr<compute::Tensor>>;
  std::shared_ptr<MemoryManagerOnDemand> manager() {
    auto made = std::make_shared<MemoryManagerOnDemand>(std::make_shared<BlobLifetimeManager>(), std::make_shared<PoolManager>());
    made->set_allocator(&allocator_), made->set_num_pools(1);
    return made;
  }
  compute::Tensor *begin(TargetHint target, const TensorInfo &info) {
    tensors_.push_back(new_tensor(target, info));
    if (!tensors_.back()->is_on_device()) values_->manage(tensors_.back().get());
    return tensors_.back().get();
  }
  void end(compute::Tensor *tensor) {
    if (tensor != input_->tensor()) tensor->allocator()->allocate();
  }
  static std::unique_ptr<compute::IFunction> configured(const INode &node, const GraphHints &hints, compute::Tensor *in,
                                                        compute::Tensor *out, Tensors &weights,
                                                        std::shared_ptr<IMemoryManager> functions) {
    NodeContext ctx(node.operation(), hints);
    ctx.set_memory_manager(hints.target_hint() == TargetHint::NEON ? functions : nullptr);
    ctx.add_input(in), ctx.add_output(out);
    for (auto &each : node.weights(*in->info())) {
      weights.push_back(new_tensor(hints.target_hint(), each.first));
      ctx.add_input(weights.back().get());
    }
    node.add_parameters(ctx);
    IOperation *operation = OperationRegistry::get().find_operation(node.operation(), hints.target_hint());
    if (!operation) throw std::invalid_argument(node.name() + " has no operation for the graph's target");
    return operation->configure(ctx);
  }
  // A node's function; weights that it packs are freed then.
  std::unique_ptr<compute::IFunction> loaded(size_t n, compute::Tensor *in, compute::Tensor *out,
                                             std::shared_ptr<IMemoryManager> functions) {
    Tensors weights;
    auto function = configured(*nodes_[n].first, nodes_[n].second, in, out, weights, std::move(functions));
    const auto wanted = nodes_[n].first->weights(*in->info());
    for (size_t k = 0; k < weights.size(); k++) {
      weights[k]->allocator()->allocate();
      weights[k]->map();
      if (wanted[k].second) wanted[k].second->access_tensor(*weights[k]);
      weights[k]->unmap();
    }
    function->prepare();
    for (auto &each : weights)
      if (each->is_used()) tensors_.push_back(std::move(each));
    return function;
  }
  GraphHints hints_;
  std::unique_ptr<Tensor> input_, output_;
  std::vector<TensorInfo> infos_; // of each value
  std::vector<std::pair<std::unique_ptr<INode>, GraphHints>> nodes_;
  Allocator allocator_;
  std::unique_ptr<MemoryGroup> values_;
  Tensors tensors_;
  std::vector<Stage> pipeline_;
};

inline Graph &operator<<(Graph &graph, TargetHint target) { return graph.hints().set_target_hint(target), graph; }
inline Graph &operator<<(Graph &graph, ConvolutionMethodHint method) {
  return graph.hints().set_convolution_method_hint(method), graph;
}
inline Graph &operator<<(Graph &graph, Tensor &&tensor) {
  return graph.add_tensor_object(std::unique_ptr<Tensor>(new Tensor(std::move(tensor)))), graph;
}
template <class Layer>
typename std::enable_if<std::is_base_of<INode, Layer>::value, Graph &>::type operator<<(Graph &graph, Layer &&layer) {
  return graph.add_node(std::unique_ptr<INode>(new Layer(std::move(layer)))), graph;
}

}}} // namespace armillary::compute::graph
#include "armillary_compute_accessors.hpp"
