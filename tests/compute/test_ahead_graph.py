"""Graphs in C++, here and on an emulated board: the scores of Python's graph, the operations of a program's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulators import need
from test_ahead_layers import FLAGS, MACHINES

from armillary import compute
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    DataType,
    NormalizationLayerInfo,
    NormType,
    PadStrideInfo,
    PermutationVector,
    PoolingLayerInfo,
    PoolingType,
    TensorInfo,
    TensorShape,
)
from armillary.compute.ahead.options import BuildOptions
from armillary.compute.graph import (
    ActivationLayer,
    BatchNormalizationLayer,
    ConvolutionLayer,
    ConvolutionMethodHint,
    DepthwiseConvolutionLayer,
    FullyConnectedLayer,
    Graph,
    NormalizationLayer,
    NumPyBinLoader,
    PoolingLayer,
    SoftmaxLayer,
    Target,
    Tensor,
    get_output_accessor,
)
from armillary.errors import ConfigError

# As the examples of the text's library build a network; the last layer's operation is the program's own.
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
using namespace arm_compute::graph;
using namespace arm_compute::graph_utils;
namespace
{
struct Doubling final : public IFunction
{
    arm_compute::ITensor *in, *out;
    Doubling(arm_compute::ITensor *i, arm_compute::ITensor *o) : in(i), out(o) {}
    void run() override
    {
        for(size_t n = 0; n < in->info()->dimension(0); ++n)
            reinterpret_cast<float *>(out->buffer())[n] = 2 * reinterpret_cast<float *>(in->buffer())[n];
    }
};
}
REGISTER_SIMPLE_OPERATION(DoublingOperation, NEON, OperationType::SoftmaxLayer)
{
    auto *in  = dynamic_cast<arm_compute::ITensor *>(ctx.input(0));
    auto *out = dynamic_cast<arm_compute::ITensor *>(ctx.output(0));
    std::cout << ctx.num_inputs() << ' ' << ctx.parameter<float>("Beta") << '\\n';
    out->allocator()->init(*in->info());
    return std::unique_ptr<arm_compute::IFunction>(new Doubling(in, out));
}
int main(int, char **argv)
{
    const std::string data_path = argv[1], labels = std::string(argv[1]) + "labels.txt";
    const auto relu = ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU);
    const TargetHint target = TargetHint::TARGET;
    auto weights = [&](const char *name) { return get_weights_accessor(data_path, name); };
    arm_compute::graph::Graph graph;
    try
    {
        graph << target
              << arm_compute::graph::Tensor(TensorInfo(TensorShape(20U, 18U, 3U, 1U), 1, DataType::F32),
                                               get_input_accessor(data_path + "x.npy"))
              << ConvolutionMethodHint::FFT
              << ConvolutionLayer(3U, 3U, 8U, weights("w1.npy"), weights("b1.npy"), PadStrideInfo(1, 1, 1, 1))
              << ActivationLayer(relu)
              << PoolingLayer(PoolingLayerInfo(PoolingType::MAX, 2, PadStrideInfo(2, 2, 0, 0)))
              << DepthwiseConvolutionLayer(3U, 3U, weights("w5.npy"), weights("b5.npy"), PadStrideInfo(1, 1, 1, 1), 1)
              << BatchNormalizationLayer(weights("b1.npy"), weights("var.npy"), nullptr, weights("b5.npy"), 0.1f)
              << NormalizationLayer(NormalizationLayerInfo(NormType::CROSS_MAP, 3, 0.1f, 0.75f))
              << ConvolutionMethodHint::DIRECT
              << ConvolutionLayer(3U, 3U, 8U, weights("w2.npy"), nullptr, PadStrideInfo(1, 1, 1, 1))
              << ConvolutionMethodHint::GEMM
              << ConvolutionLayer(5U, 5U, 4U, weights("w3.npy"), weights("b3.npy"), PadStrideInfo(2, 2, 0, 0))
              << FullyConnectedLayer(10U, weights("w4.npy"), weights("b4.npy"));
        graph << ConvolutionLayer(99U, 99U, 8U, weights("w1.npy"), nullptr, PadStrideInfo());
    }
    catch(const std::invalid_argument &e) { std::cout << e.what() << '\\n'; }
    graph << SoftmaxLayer() << arm_compute::graph::Tensor(get_output_accessor(labels, 3));
    graph.run();
    for(const Stage &stage : graph.pipeline()) std::cout << stage.name << ' ';
}
"""
STAGES = (
    "ConvolutionLayer ActivationLayer PoolingLayer DepthwiseConvolutionLayer BatchNormalizationLayer "
    "NormalizationLayer ConvolutionLayer ConvolutionLayer FullyConnectedLayer SoftmaxLayer "
)


def network(folder: Path, last: str, target: Target = Target.NEON) -> Graph:
    """The program's network in Python, with weights in files; the last layer doubles or is a softmax."""

    def load(name: str) -> NumPyBinLoader:
        return NumPyBinLoader(folder / name)

    doubled = ActivationLayer(ActivationLayerInfo(ActivationFunction.LINEAR, 2.0, 0.0))
    graph, same = Graph(), PadStrideInfo(1, 1, 1, 1)
    graph << target << Tensor(TensorInfo(TensorShape(20, 18, 3, 1), 1, DataType.F32), load("x.npy"))
    graph << ConvolutionMethodHint.FFT << ConvolutionLayer(3, 3, 8, load("w1.npy"), load("b1.npy"), same)
    graph << ActivationLayer(ActivationLayerInfo(ActivationFunction.RELU))
    graph << PoolingLayer(PoolingLayerInfo(PoolingType.MAX, 2, PadStrideInfo(2, 2, 0, 0)))
    graph << DepthwiseConvolutionLayer(3, 3, load("w5.npy"), load("b5.npy"), same)
    graph << BatchNormalizationLayer(load("b1.npy"), load("var.npy"), None, load("b5.npy"), 0.1)
    graph << NormalizationLayer(NormalizationLayerInfo(NormType.CROSS_MAP, 3, 0.1, 0.75))
    graph << ConvolutionMethodHint.DIRECT << ConvolutionLayer(3, 3, 8, load("w2.npy"), None, same)
    graph << ConvolutionMethodHint.GEMM
    graph << ConvolutionLayer(5, 5, 4, load("w3.npy"), load("b3.npy"), PadStrideInfo(2, 2, 0, 0))
    graph << FullyConnectedLayer(10, load("w4.npy"), load("b4.npy"))
    graph << (doubled if last == "doubled" else SoftmaxLayer())
    return graph << Tensor(get_output_accessor(folder / "labels.txt", 3))


def write_weights(folder: Path) -> None:
    """Random values of each layer, and labels."""
    rng = np.random.default_rng(7)
    shapes = {"x": (3, 18, 20), "w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "w3": (4, 8, 5, 5), "b3": (4,)}
    for name, shape in {**shapes, "w4": (10, 36), "b4": (10,)}.items():
        np.save(folder / f"{name}.npy", rng.standard_normal(shape).astype(np.float32) / 4)
    np.save(folder / "w5.npy", rng.standard_normal((8, 3, 3)).astype(np.float32) / 2)
    np.save(folder / "b5.npy", rng.standard_normal(8).astype(np.float32))
    np.save(folder / "var.npy", rng.random(8).astype(np.float32) + 0.5)
    (folder / "labels.txt").write_text("".join(f"label {n}\n" for n in range(10)))


@pytest.mark.parametrize("arch", MACHINES)
def test_a_graph_prints_what_python_prints(arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiler, emulator = MACHINES[arch]
    need(compiler, *emulator[:1])
    write_weights(tmp_path)
    graph = network(tmp_path, "doubled")
    out = compute.build(graph, BuildOptions(arch=arch).target(), tmp_path / "out")
    (tmp_path / "p.cpp").write_text(PROGRAM.replace("::TARGET;", "::NEON;"))
    sources = [str(tmp_path / "p.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-lm"]
    subprocess.run([compiler, *FLAGS, f"-I{out}", *sources, "-o", str(tmp_path / "p")], check=True)
    done = subprocess.run([*emulator, tmp_path / "p", f"{tmp_path}/"], capture_output=True, text=True, check=True)
    refusal, configured, *scores = done.stdout.splitlines()
    assert refusal == "the kernel does not fit the image" and configured == "1 1"
    graph.run()
    assert scores == ["1 1", *capsys.readouterr().out.splitlines(), STAGES]


def test_layers_that_no_function_is_built_for_are_refused(tmp_path: Path) -> None:
    graph = Graph() << Tensor(TensorInfo(TensorShape(4, 4, 2), 1, DataType.F32))
    graph << compute.graph.PermuteLayer(PermutationVector(1, 0))
    with pytest.raises(ConfigError, match="'NEPermuteLayer' cannot be built ahead of time"):
        compute.build(graph, out=tmp_path)
