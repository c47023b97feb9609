// Layers of float32 that write rows: softmax, activations, pooling, normalisations, copies. Part of `armillary_compute.hpp`.
//
// In: tensors (width, height, channels, batch). Out: the same. Invariant: an iteration of a stage writes one row, so any
// split gives the same bytes; kernels are those of `functions/stages/rows.py`.
#pragma once

namespace armillary { namespace compute {

// A layer that writes one row of its output at a time.
class RowsLayer : public StagedFunction {
public:
  using StagedFunction::StagedFunction;

protected:
  void set(const std::string &name, const ITensor *input, ITensor *output, const TensorShape &shape, detail::Values v,
           const Stage::Tensors &more = {}) {
    clear();
    init_output(output, shape);
    v["out_rows"] = int64_t(shape[1]), v["out_columns"] = int64_t(shape[0]);
    Stage::Tensors tensors{{"x", input}};
    tensors.insert(tensors.end(), more.begin(), more.end());
    tensors.push_back({"out", output});
    auto *stage = add(name, tensors, int(shape[1] * shape.planes()), std::move(v), "in_", input);
    stage->also_at("out_", output);
  }
};

class NESoftmaxLayer : public RowsLayer {
public:
  using RowsLayer::RowsLayer;
  void configure(ITensor *input, ITensor *output, float beta = 1.0f) {
    set("softmax", input, output, input->info()->tensor_shape(), {{"beta", detail::bits_of(beta)}});
  }
};

class NEActivationLayer : public RowsLayer {
public:
  using RowsLayer::RowsLayer;
  void configure(ITensor *input, ITensor *output, const ActivationLayerInfo &info) {
    const detail::Values v{{"a", detail::bits_of(info.a())}, {"b", detail::bits_of(info.b())}};
    ITensor *target = output != nullptr ? output : input;
    set(std::string("activation_") + info.name(), input, target, input->info()->tensor_shape(), v);
  }
};

// The same values in another shape, which the output has.
class NEReshapeLayer : public StagedFunction {
public:
  using StagedFunction::StagedFunction;
  void configure(const ITensor *input, ITensor *output) {
    if (input->info()->tensor_shape().total_size() != output->info()->tensor_shape().total_size())
      throw std::invalid_argument("NEReshapeLayer: the output has another number of values");
    clear();
    add_copy(input, output);
  }
};

// Each image as one row.
class NEFlattenLayer : public NEReshapeLayer {
public:
  using NEReshapeLayer::NEReshapeLayer;
  void configure(const ITensor *input, ITensor *output) {
    const TensorShape &in = input->info()->tensor_shape();
    init_output(output, TensorShape(in[0] * in[1] * in[2], in[3]));
    NEReshapeLayer::configure(input, output);
  }
};

// (x - mean) / sqrt(var + epsilon) * gamma + beta of each channel; without an output in place.
class NEBatchNormalizationLayer : public RowsLayer {
public:
  using RowsLayer::RowsLayer;
  void configure(ITensor *input, ITensor *output, const ITensor *mean, const ITensor *var, const ITensor *beta = nullptr,
                 const ITensor *gamma = nullptr, float epsilon = 0.001f, const ActivationLayerInfo &act = ActivationLayerInfo()) {
    const TensorShape shape = input->info()->tensor_shape();
    for (const ITensor *each : {mean, var, beta, gamma}) {
      if (each == nullptr) continue;
      want_dense(each);
      if (each->info()->dimension(0) != shape[2]) throw std::invalid_argument("NEBatchNormalizationLayer: a number for each channel");
    }
    detail::Values v{{"channels", int64_t(shape[2])}, {"beta_step", beta != nullptr}, {"gamma_step", gamma != nullptr}};
    v["epsilon"] = detail::bits_of(epsilon), v["one"] = detail::bits_of(gamma != nullptr ? 0.0 : 1.0);
    detail::limits(v, act);
    const Tensor *zero = constant(1);
    set("batch_normalization", input, output != nullptr ? output : input, shape, v,
        {{"means", mean}, {"var", var}, {"beta", beta != nullptr ? beta : zero}, {"gamma", gamma != nullptr ? gamma : zero}});
  }
};

enum class NormType { CROSS_MAP };
class NormalizationLayerInfo {
public:
  NormalizationLayerInfo(NormType type, uint32_t norm_size = 5, float alpha = 0.0001f, float beta = 0.5f, float kappa = 1.0f,
                         bool is_scaled = true)
      : type(type), norm_size(norm_size), alpha(alpha), beta(beta), kappa(kappa), is_scaled(is_scaled) {}
  NormType type;
  uint32_t norm_size;
  float alpha, beta, kappa;
  bool is_scaled;
};

// Each value by those of neighbouring channels at its place.
class NENormalizationLayer : public RowsLayer {
public:
  using RowsLayer::RowsLayer;
  void configure(ITensor *input, ITensor *output, const NormalizationLayerInfo &info) {
    if (info.norm_size % 2 == 0) throw std::invalid_argument("NENormalizationLayer: the size is odd");
    const TensorShape shape = input->info()->tensor_shape();
    const double factor = info.is_scaled ? double(info.alpha) / info.norm_size : double(info.alpha);
    set("normalization_cross_map", input, output, shape,
        {{"channels", int64_t(shape[2])}, {"half", info.norm_size / 2}, {"beta", detail::bits_of(info.beta)},
         {"kappa", detail::bits_of(info.kappa)}, {"factor", detail::bits_of(factor)}});
  }
};

// The channels of images one after another.
class NEDepthConcatenateLayer : public StagedFunction {
public:
  using StagedFunction::StagedFunction;
  void configure(const std::vector<ITensor *> &inputs, ITensor *output) {
    TensorShape shape = inputs.at(0)->info()->tensor_shape();
    for (size_t n = 1; n < inputs.size(); n++) {
      const TensorShape &more = inputs[n]->info()->tensor_shape();
      if (more[0] != shape[0] || more[1] != shape[1] || more[3] != 1 || shape[3] != 1)
        throw std::invalid_argument("NEDepthConcatenateLayer: single images of one size");
      shape[2] += more[2];
    }
    clear();
    init_output(output, shape);
    int64_t first = 0;
    for (const ITensor *input : inputs) {
      add_copy(input, output, first);
      first += int64_t(input->info()->tensor_shape().total_size());
    }
  }
};

class NEPoolingLayer : public RowsLayer {
public:
  using RowsLayer::RowsLayer;
  void configure(ITensor *input, ITensor *output, const PoolingLayerInfo &pool) {
    TensorShape shape = input->info()->tensor_shape();
    const int width = int(shape[0]), height = int(shape[1]);
    const auto size = pool.info.scaled(width, height, pool.size, pool.size);
    shape[0] = size_t(size.first), shape[1] = size_t(size.second);
    set(pool.type == PoolingType::MAX ? "pooling_MAX" : "pooling_AVG", input, output, shape,
        {{"rows", height}, {"columns", width}, {"pool_x", pool.size}, {"pool_y", pool.size},
         {"stride_x", pool.info.stride().first}, {"stride_y", pool.info.stride().second}, {"left", pool.info.pad_left()},
         {"top", pool.info.pad_top()}, {"right", pool.info.pad_right()}, {"bottom", pool.info.pad_bottom()}});
  }
};

}} // namespace armillary::compute
