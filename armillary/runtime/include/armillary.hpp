// Running compiled networks from C++17: header only, over the C interface in armillary_runtime.h.
//
//     armillary::Runner runner("net.tar");
//     runner.set_input("input", pixels);                  // std::vector<float>, of the input's size
//     runner.run();
//     std::vector<float> scores = runner.get_output<float>(0);
//
// In: a package (.tar, its folder, or a .so) and values. Out: values. Invariant: what cannot be done throws
// armillary::Error with the runtime's message, and leaves the runner as it was. One runner is for one thread at a time;
// clone() gives another one of the same package for another thread, with the parameters in memory once.
#ifndef ARMILLARY_HPP
#define ARMILLARY_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "armillary_runtime.h"

namespace armillary {

/// What the runtime says when something cannot be done.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

/// Room for the message of a C function, and an exception of it.
class Message {
 public:
  char *text() { return text_; }
  static constexpr std::size_t size() { return sizeof text_; }
  void check(int status) const {
    if (status != 0) throw Error(text_);
  }

 private:
  char text_[1024] = "";
};

template <class T>
constexpr arm_dtype dtype_of() {
  static_assert(std::is_arithmetic_v<T>, "elements are numbers or bool; others go by pointer and size");
  constexpr std::uint8_t code = std::is_same_v<T, bool> ? 6 : std::is_floating_point_v<T> ? 2 : std::is_signed_v<T> ? 0 : 1;
  return {code, static_cast<std::uint8_t>(8 * sizeof(T)), 1};
}

inline bool is_same(arm_dtype a, arm_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

inline std::string shape_text(const std::vector<std::int64_t> &shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace detail

/// The type of an input or output: its name, shape and element.
struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  arm_dtype dtype{};

  std::string dtype_name() const { return arm_dtype_name(dtype); }
  std::int64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, [](auto a, auto b) { return a * b; });
  }
  /// Bytes in memory; elements smaller than a byte occupy one each.
  std::size_t bytes() const {
    return static_cast<std::size_t>(elements()) * static_cast<std::size_t>((dtype.bits + 7) / 8 * dtype.lanes);
  }
  std::string text() const { return name + ": " + dtype_name() + " " + detail::shape_text(shape); }
};

/// How long a call of a compiled function took.
struct NodeTime {
  std::string name, function;
  double seconds = 0;
};

struct Options {
  std::string device = "cpu";  ///< "cpu", "opencl" or "opencl:1": what the package was compiled for
  int threads = 0;             ///< of the runner's pool; 0: the CPUs of this process
  bool bind_threads = false;   ///< pin each worker thread to a CPU
};

/// A network that is ready to run.
class Runner {
 public:
  explicit Runner(const std::string &package, const Options &options = {}) : Runner(open(package, options), options) {}

  /// Another runner of the same package, for another thread: parameters are shared, memory and threads are its own.
  Runner clone() const { return Runner(package_, options_); }
  Runner clone(const Options &options) const { return Runner(package_, options); }

  Runner(Runner &&) noexcept = default;
  Runner &operator=(Runner &&other) noexcept {
    std::swap(package_, other.package_);
    std::swap(options_, other.options_);
    std::swap(pool_, other.pool_);
    std::swap(graph_, other.graph_);
    std::swap(free_inputs_, other.free_inputs_);
    return *this;
  }

  std::string target() const { return arm_module_target(arm_package_module(package_.get())); }
  std::size_t memory_bytes() const { return arm_graph_memory(graph_.get()); }

  /// The inputs that a run wants: those that are neither parameters nor states.
  std::vector<TensorInfo> inputs() const {
    std::vector<TensorInfo> result;
    for (int index : free_inputs_)
      if (arm_graph_input_used(graph_.get(), index) && arm_graph_input_is_state(graph_.get(), index) != 1)
        result.push_back(input_info(index));
    return result;
  }

  std::vector<TensorInfo> outputs() const {
    std::vector<TensorInfo> result;
    for (int i = 0; i < arm_graph_num_outputs(graph_.get()); i++) result.push_back(output_info(i));
    return result;
  }

  /// Copy values into an input; their type and number must be the input's.
  template <class T>
  void set_input(const std::string &name, const std::vector<T> &values) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements in memory; use a pointer and a size");
    set_input(name, values.data(), values.size());
  }
  template <class T>
  void set_input(const std::string &name, const T *values, std::size_t count) {
    const int index = find(name);
    const TensorInfo info = input_info(index);
    require(info, detail::dtype_of<T>(), count * sizeof(T));
    copy_in(index, info, values);
  }

  /// Copy the bytes of an input of any type.
  void set_input_bytes(const std::string &name, const void *values, std::size_t bytes) {
    const int index = find(name);
    const TensorInfo info = input_info(index);
    require(info, info.dtype, bytes);
    copy_in(index, info, values);
  }

  /// Copy a tensor of any layout, on any device; of a package for several sizes this chooses the one that fits.
  void set_input(const std::string &name, const arm_tensor &value) {
    detail::Message message;
    const int index = arm_graph_pick(graph_.get(), name.c_str(), &value, message.text(), message.size());
    message.check(index < 0 ? -1 : 0);
    message.check(arm_graph_set_input(graph_.get(), index, &value, message.text(), message.size()));
  }

  /// The memory of an input on the CPU, to be written in place: no copy at all. It stays until the runner goes.
  template <class T>
  T *input(const std::string &name) {
    const int index = find(name);
    const TensorInfo info = input_info(index);
    require(info, detail::dtype_of<T>(), info.bytes());
    arm_tensor tensor{};
    detail::Message message;
    message.check(arm_graph_input(graph_.get(), index, &tensor, message.text(), message.size()));
    return static_cast<T *>(on_cpu(tensor));
  }

  /// Let an input use this memory from now on, without a copy; it must outlive the runs. Aligned to 64 bytes.
  void set_input_zero_copy(const std::string &name, const arm_tensor &value) {
    detail::Message message;
    const int index = find(name);
    message.check(arm_graph_set_input_zero_copy(graph_.get(), index, &value, message.text(), message.size()));
  }
  /// Let an output be written to this memory from now on; it must outlive the runs. Aligned to 64 bytes.
  void set_output_zero_copy(int index, const arm_tensor &value) {
    detail::Message message;
    message.check(arm_graph_set_output_zero_copy(graph_.get(), index, &value, message.text(), message.size()));
  }

  void run() {
    detail::Message message;
    message.check(arm_graph_run(graph_.get(), message.text(), message.size()));
  }

  /// Make the states zero, as before the first run.
  void reset_states() {
    detail::Message message;
    message.check(arm_graph_reset_states(graph_.get(), message.text(), message.size()));
  }

  /// A copy of an output's values.
  template <class T>
  std::vector<T> get_output(int index) const {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements in memory; get uint8_t by get_output_bytes");
    const TensorInfo info = output_info(index);
    std::vector<T> values(static_cast<std::size_t>(info.elements()));
    require(info, detail::dtype_of<T>(), values.size() * sizeof(T));
    get_output_bytes(index, values.data(), info.bytes());
    return values;
  }

  /// Copy the bytes of an output of any type.
  void get_output_bytes(int index, void *out, std::size_t bytes) const {
    TensorInfo info = output_info(index);
    require(info, info.dtype, bytes);
    arm_tensor source{}, target{out, {1, 0}, static_cast<std::int32_t>(info.shape.size()), info.dtype, info.shape.data(), nullptr, 0};
    detail::Message message;
    message.check(arm_graph_output(graph_.get(), index, &source, message.text(), message.size()));
    message.check(arm_tensor_copy(&source, &target, message.text(), message.size()));
  }

  /// The memory of an output on the CPU, without a copy; the next run overwrites it.
  template <class T>
  const T *output(int index) const {
    const TensorInfo info = output_info(index);
    require(info, detail::dtype_of<T>(), info.bytes());
    arm_tensor tensor{};
    detail::Message message;
    message.check(arm_graph_output(graph_.get(), index, &tensor, message.text(), message.size()));
    return static_cast<const T *>(on_cpu(tensor));
  }

  /// Run once with a time for each call of a compiled function.
  std::vector<NodeTime> profile() {
    const int count = arm_graph_num_nodes(graph_.get());
    std::vector<double> seconds(static_cast<std::size_t>(count));
    detail::Message message;
    message.check(arm_graph_run_range(graph_.get(), 0, count, seconds.data(), message.text(), message.size()));
    std::vector<NodeTime> result;
    for (int i = 0; i < count; i++) {
      const std::string function = arm_graph_node_function(graph_.get(), i);
      if (function.empty() || function.compare(0, 2, "__") == 0 || arm_graph_node_is_load(graph_.get(), i) == 1) continue;
      result.push_back({arm_graph_node_name(graph_.get(), i), function, seconds[static_cast<std::size_t>(i)]});
    }
    return result;
  }

  /// The mean seconds of `number` runs.
  double time(std::int64_t number = 1) {
    double seconds = 0;
    detail::Message message;
    message.check(arm_graph_time(graph_.get(), number, &seconds, message.text(), message.size()));
    return number > 0 ? seconds / static_cast<double>(number) : 0;
  }

  /// The C object, for what this header does not offer. It stays the runner's.
  arm_graph *graph() const { return graph_.get(); }

 private:
  using Package = std::shared_ptr<arm_package>;

  struct Release {
    void operator()(arm_pool *pool) const { arm_pool_destroy(pool); }
    void operator()(arm_graph *graph) const { arm_graph_destroy(graph); }
  };

  Runner(Package package, const Options &options) : package_(std::move(package)), options_(options) {
    detail::Message message;
    const arm_device device = parse_device(options.device);
    pool_.reset(arm_pool_create(options.threads ? options.threads : arm_cpu_count(), options.bind_threads, message.text(),
                                message.size()));
    message.check(pool_ ? 0 : -1);
    arm_graph *graph = nullptr;
    message.check(arm_package_create_graph(package_.get(), &device, 1, pool_.get(), &graph, message.text(), message.size()));
    graph_.reset(graph);
    for (int i = 0; i < arm_graph_num_inputs(graph); i++)
      if (arm_graph_input_is_set(graph, i) != 1) free_inputs_.push_back(i);
  }

  static Package open(const std::string &path, const Options &options) {
    detail::Message message;
    arm_package *package = nullptr;
    parse_device(options.device);  // a wrong name is said before a long file is read
    message.check(arm_package_open(path.c_str(), &package, message.text(), message.size()));
    return Package(package, arm_package_close);
  }

  static arm_device parse_device(const std::string &text) {
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon), number = colon == std::string::npos ? "0" : text.substr(colon + 1);
    const bool is_number = !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
    if (is_number && kind == "cpu") return {1, std::stoi(number)};
    if (is_number && (kind == "opencl" || kind == "cl")) return {4, std::stoi(number)};
    throw Error("device \"" + text + "\" is unknown; wanted cpu, opencl or opencl:<n>");
  }

  int find(const std::string &name) const {
    const int index = arm_graph_input_index(graph_.get(), name.c_str());
    if (index >= 0) return index;
    std::string known;
    for (const TensorInfo &info : inputs()) known += (known.empty() ? "" : ", ") + info.name;
    throw Error("the network has no input \"" + name + "\"; its inputs are " + known);
  }

  static TensorInfo info_of(std::string name, const arm_tensor &t) {
    return {std::move(name), std::vector<std::int64_t>(t.shape, t.shape + t.ndim), t.dtype};
  }
  TensorInfo input_info(int index) const {
    arm_tensor tensor{};
    detail::Message message;
    message.check(arm_graph_input_info(graph_.get(), index, &tensor, message.text(), message.size()));
    return info_of(arm_graph_input_name(graph_.get(), index), tensor);
  }
  TensorInfo output_info(int index) const {
    arm_tensor tensor{};
    detail::Message message;
    message.check(arm_graph_output(graph_.get(), index, &tensor, message.text(), message.size()));
    return info_of("output_" + std::to_string(index), tensor);
  }

  static void require(const TensorInfo &info, arm_dtype dtype, std::size_t bytes) {
    if (!detail::is_same(info.dtype, dtype))
      throw Error(info.text() + ": its elements are " + info.dtype_name() + ", not " + arm_dtype_name(dtype));
    if (info.bytes() != bytes)
      throw Error(info.text() + " has " + std::to_string(info.bytes()) + " bytes, got " + std::to_string(bytes));
  }

  void copy_in(int index, TensorInfo info, const void *values) {
    const arm_tensor value{const_cast<void *>(values), {1, 0}, static_cast<std::int32_t>(info.shape.size()), info.dtype,
                           info.shape.data(), nullptr, 0};
    detail::Message message;
    message.check(arm_graph_set_input(graph_.get(), index, &value, message.text(), message.size()));
  }

  static void *on_cpu(const arm_tensor &tensor) {
    if (tensor.device.type != 1) throw Error("the tensor lies on a device; copy it by set_input or get_output");
    return static_cast<char *>(tensor.data) + tensor.byte_offset;
  }

  Package package_;
  Options options_;
  std::unique_ptr<arm_pool, Release> pool_;  // outlives the graph, which is declared after it
  std::unique_ptr<arm_graph, Release> graph_;
  std::vector<int> free_inputs_;
};

}  // namespace armillary

#endif
