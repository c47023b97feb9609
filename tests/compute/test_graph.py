"""Graphs of layers: what they compute, where they run, what they share, what they refuse, and their way to Relay."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from opencl_device import needs_opencl

from armillary import relay
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    CLScheduler,
    DataType,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    Size2D,
    TensorInfo,
    TensorShape,
)
from armillary.compute import Tensor as ComputeTensor
from armillary.compute.graph import (
    ActivationLayer,
    BatchNormalizationLayer,
    BranchLayer,
    BranchMergeMethod,
    ConvolutionLayer,
    ConvolutionMethod,
    DummyAccessor,
    FullyConnectedLayer,
    Graph,
    GraphHints,
    ImageAccessor,
    NumPyAccessor,
    NumPyBinLoader,
    OperationRegistry,
    OperationType,
    PoolingLayer,
    RelayLayer,
    ResidualLayer,
    SoftmaxLayer,
    SubGraph,
    Target,
    Tensor,
    TopNPredictionsAccessor,
    from_relay,
    to_relay,
)
from armillary.errors import ArmillaryError, ArtifactError, ExecutionError, TypeMismatch, UnsupportedError
from tests.compute.nn_oracles import convolved

Floats = npt.NDArray[np.float32]
RELU = ActivationLayerInfo(ActivationFunction.RELU)
SAME = PadStrideInfo(1, 1, 1, 1)


class Keep:
    """An accessor that keeps what it reads and ends the run."""

    values: Floats

    def access_tensor(self, tensor: ComputeTensor) -> bool:
        """Keep a copy."""
        self.values = tensor.array().copy()
        return False


def _drawn(seed: int, *shape: int) -> Floats:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.3).astype(np.float32)


IMAGE, W1, B1, W2, W3 = (
    _drawn(0, 1, 3, 8, 8),
    _drawn(1, 4, 3, 3, 3),
    _drawn(2, 4),
    _drawn(3, 4, 4, 1, 1),
    _drawn(4, 5, 8),
)
INFO = TensorInfo(TensorShape(8, 8, 3, 1), 1, DataType.F32)


def _network(middle: Target = Target.NEON) -> tuple[Graph, Keep]:
    """A convolution, a residual branch, a branch by channels, global pooling, a classifier."""
    keep, graph, branch, left, right = Keep(), Graph(), SubGraph(), SubGraph(), SubGraph()
    branch << ConvolutionLayer(1, 1, 4, NumPyAccessor(W2), None, PadStrideInfo()) << ActivationLayer(RELU)
    left << PoolingLayer(PoolingLayerInfo(PoolingType.MAX, 2, PadStrideInfo(2, 2)))
    right << PoolingLayer(PoolingLayerInfo(PoolingType.AVG, 2, PadStrideInfo(2, 2)))
    graph << Target.NEON << Tensor(INFO, NumPyAccessor(IMAGE))
    graph << ConvolutionMethod.GEMM << ConvolutionLayer(3, 3, 4, NumPyAccessor(W1), NumPyAccessor(B1), SAME)
    graph << middle << ResidualLayer(branch) << Target.NEON
    graph << BranchLayer(BranchMergeMethod.DEPTH_CONCATENATE, left, right)
    graph << PoolingLayer(PoolingLayerInfo(PoolingType.AVG))
    graph << FullyConnectedLayer(5, NumPyAccessor(W3), None).set_name("classifier") << SoftmaxLayer() << Tensor(keep)
    return graph, keep


def _expected() -> Floats:
    one = convolved(IMAGE, W1, SAME, Size2D()) + B1[:, None, None]
    two = one + np.maximum(convolved(one, W2, PadStrideInfo(), Size2D()), 0)
    blocks = two.reshape(4, 4, 2, 4, 2)
    means = np.concatenate([blocks.max((2, 4)), blocks.mean((2, 4))]).mean((1, 2))
    scores = np.exp(W3.astype(np.float64) @ means)
    return (scores / scores.sum()).astype(np.float32)[None]


HINTED = {
    ConvolutionMethod.GEMM: "blocked_gemm_8x12",
    ConvolutionMethod.DIRECT: "direct_convolution",
    ConvolutionMethod.WINOGRAD: "winograd_transform_input_4x4",
    ConvolutionMethod.FFT: "fourier_columns",
}


@pytest.mark.parametrize("method", HINTED)
def test_a_hint_chooses_the_stages_of_its_method(method: ConvolutionMethod) -> None:
    graph, keep = Graph(), Keep()
    graph << Target.NEON << Tensor(INFO, NumPyAccessor(IMAGE)) << method
    graph << ConvolutionLayer(3, 3, 4, NumPyAccessor(W1), NumPyAccessor(B1), SAME) << Tensor(keep)
    graph.run()
    wanted = convolved(IMAGE, W1, SAME, Size2D()) + B1[:, None, None]
    np.testing.assert_allclose(keep.values.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
    (stage,) = graph.pipeline()
    names = [kernel.name for kernel in stage.function.kernels()]
    assert any(HINTED[method] in name for name in names), names


def test_a_graph_with_branches_computes_what_its_layers_say_and_goes_to_relay_and_back() -> None:
    graph, keep = _network()
    graph.run()
    np.testing.assert_allclose(keep.values, _expected(), rtol=1e-5)
    stages = graph.pipeline()
    assert [stage.name for stage in stages[:4]] == [
        "ConvolutionLayer",
        "ConvolutionLayer",
        "ActivationLayer",
        "EltwiseNode",
    ]
    memory = graph.memory()
    assert memory.shared_bytes() < memory.values_bytes(), "values whose lifetimes do not meet share bytes"
    module, params = to_relay(graph)
    assert "classifier_8.w" in params
    compiled = relay.create_executor("graph", module, target="llvm", params=params).evaluate()
    np.testing.assert_allclose(compiled(IMAGE).numpy(), keep.values, rtol=1e-5)
    again = Keep()
    back = from_relay(module, params, NumPyAccessor(IMAGE))
    back << Tensor(again)
    back.run()
    np.testing.assert_allclose(again.values, keep.values, rtol=1e-5)
    assert "RelayLayer" not in {stage.name for stage in back.pipeline()}, "every call found its layer"


@needs_opencl
def test_two_targets_in_one_graph() -> None:
    CLScheduler.get().default_init()
    graph, keep = _network(Target.CL)
    graph.run()
    np.testing.assert_allclose(keep.values, _expected(), rtol=1e-5)
    names = [f"{stage.name}:{stage.target.name}" for stage in graph.pipeline()]
    assert names[1:6] == [
        "copy to CL:CL",
        "ConvolutionLayer:CL",
        "ActivationLayer:CL",
        "EltwiseNode:CL",
        "copy to NEON:NEON",
    ]


@needs_opencl
def test_a_graph_saves_what_its_tuner_found_and_reads_it_back(tmp_path: Path) -> None:
    values = np.linspace(-2, 2, 48, dtype=np.float32).reshape(3, 4, 4)
    for tunes in (True, False):
        graph, keep = Graph(), Keep()
        graph.graph_init(tunes, tmp_path / "acl_tuner.csv")
        graph << Target.CL << Tensor(TensorInfo(TensorShape(4, 4, 3), 1, DataType.F32), NumPyAccessor(values))
        graph << ActivationLayer(ActivationLayerInfo(ActivationFunction.RELU)) << Tensor(keep)
        graph.run()
        assert np.array_equal(keep.values.reshape(values.shape), np.maximum(values, 0))
        tuner = CLScheduler.get().tuner()
        assert tuner is not None and tuner.tune_new_kernels() is tunes and len(tuner.lws_table()) == 1
    CLScheduler.get().set_tuner(None)
    assert (tmp_path / "acl_tuner.csv").read_text().startswith("layer_")


def test_what_has_no_layer_becomes_a_layer_of_relay_and_a_network_is_a_node() -> None:
    x = relay.var("x", shape=(2, 6), dtype="float32")
    parts = relay.split(relay.exp(x), indices_or_sections=2, axis=1)
    function = relay.Function([x], parts[0] - parts[1])
    values, kept, inner = _drawn(7, 2, 6), Keep(), Keep()
    graph = from_relay(function, None, NumPyAccessor(values))
    graph << Tensor(kept)
    graph.run()
    wanted = np.exp(values)[:, :3] - np.exp(values)[:, 3:]
    np.testing.assert_allclose(kept.values, wanted, rtol=1e-5, atol=1e-6)
    outer = Graph()
    outer << Tensor(TensorInfo(TensorShape(6, 2), 1, DataType.F32), NumPyAccessor(values)) << RelayLayer(function)
    outer << ActivationLayer(RELU) << Tensor(inner)
    outer.run()
    np.testing.assert_allclose(inner.values, np.maximum(wanted, 0), rtol=1e-5, atol=1e-6)


def test_the_output_accessor_decides_how_often_a_graph_runs() -> None:
    class Count:
        runs = 0

        def access_tensor(self, tensor: ComputeTensor) -> bool:
            self.runs += 1
            return True

    count, graph = Count(), Graph()
    (
        graph
        << Tensor(TensorInfo(TensorShape(4), 1, DataType.F32), DummyAccessor(3))
        << ActivationLayer(RELU)
        << Tensor(count)
    )
    graph.run()
    assert count.runs == 3
    graph.run()
    assert count.runs == 6
    once = Graph()
    once << Tensor(TensorInfo(TensorShape(4), 1, DataType.F32)) << ActivationLayer(RELU)
    once.input().array()[...] = [-1, 2, -3, 4]
    once.run()
    assert once.output().array().tolist() == [0, 2, 0, 4]


def test_a_layer_that_does_not_fit_is_refused_on_its_line() -> None:
    graph = Graph()
    with pytest.raises(TypeMismatch, match="SoftmaxLayer is added before the graph's input"):
        graph << SoftmaxLayer()
    with pytest.raises(TypeMismatch, match="a graph begins with a Tensor that has information"):
        graph << Tensor(DummyAccessor())
    graph << Tensor(INFO, DummyAccessor())
    with pytest.raises(TypeMismatch, match=r"(?s)a 9x9 kernel does not fit.*at: layer 0 of the graph \(big\)"):
        graph << ConvolutionLayer(9, 9, 4, DummyAccessor(), None, PadStrideInfo()).set_name("big")
    with pytest.raises(TypeMismatch, match="3 channels do not make 2 groups"):
        graph << ConvolutionLayer(3, 3, 4, DummyAccessor(), None, SAME, 2)
    with pytest.raises(TypeMismatch, match="takes tensors, layers and hints, got int"):
        graph << 3  # type: ignore[operator]
    with pytest.raises(TypeMismatch, match="takes 2 or more SubGraphs"):
        BranchLayer(BranchMergeMethod.DEPTH_CONCATENATE, SubGraph())
    with pytest.raises(TypeMismatch, match="at least one layer"):
        graph << Tensor(DummyAccessor())
    graph << ActivationLayer(RELU) << Tensor(DummyAccessor(0))
    with pytest.raises(TypeMismatch, match="behind the graph's output"):
        graph << SoftmaxLayer()
    with pytest.raises(ExecutionError, match="a graph without layers"):
        Graph().run()


def test_validate_says_what_a_graph_would_refuse_and_adds_nothing() -> None:
    graph = Graph()
    status = graph.validate(SoftmaxLayer())
    assert "before the graph's input" in status.error_description and not status
    assert graph.validate(Tensor(INFO, DummyAccessor()))
    graph << Tensor(INFO, DummyAccessor()) << ConvolutionLayer(3, 3, 4, DummyAccessor(), None, SAME)
    nodes, tail = graph.nodes(), graph.tail()
    branch = SubGraph()
    branch << ConvolutionLayer(3, 3, 4, DummyAccessor(), None, SAME)
    narrow = SubGraph()
    narrow << ConvolutionLayer(3, 3, 4, DummyAccessor(), None, PadStrideInfo(2, 2, 1, 1))
    joined = BranchLayer(BranchMergeMethod.DEPTH_CONCATENATE, branch, narrow)
    for wrong in (joined, ConvolutionLayer(3, 3, 4, DummyAccessor(), None, SAME, 3)):
        status = graph.validate(wrong)
        with pytest.raises(ArmillaryError) as error:
            graph << wrong
        assert status.error_description == error.value.message and not status
    assert graph.validate(BranchLayer(BranchMergeMethod.DEPTH_CONCATENATE, branch, branch))
    assert graph.validate(ConvolutionMethod.WINOGRAD) and graph.hints() == GraphHints()
    assert graph.nodes() == nodes and graph.tail() == tail


def test_an_operation_that_a_target_lacks_is_refused() -> None:
    registry = OperationRegistry()
    with pytest.raises(UnsupportedError, match="no operation SoftmaxLayer is registered for CL"):
        registry.find_operation(OperationType.SoftmaxLayer, Target.CL)


def test_batch_normalisation_with_and_without_its_factors() -> None:
    mean, var, keep, graph = _drawn(5, 3), np.abs(_drawn(6, 3)) + 0.5, Keep(), Graph()
    graph << Tensor(INFO, NumPyAccessor(IMAGE)) << BatchNormalizationLayer(NumPyAccessor(mean), NumPyAccessor(var))
    graph << Tensor(keep)
    graph.run()
    wanted = (IMAGE - mean[:, None, None]) / np.sqrt(var[:, None, None] + np.float32(0.001))
    np.testing.assert_allclose(keep.values, wanted, rtol=1e-4, atol=1e-5)


def test_accessors_refuse_what_does_not_fit(tmp_path: Path) -> None:
    tensor = ComputeTensor()
    tensor.allocator().init(INFO)
    tensor.allocator().allocate()
    with pytest.raises(TypeMismatch, match=r"the array has the shape \(4,\), the tensor \(1, 3, 8, 8\)"):
        NumPyAccessor(np.zeros(4, np.float32)).access_tensor(tensor)
    with pytest.raises(TypeMismatch, match="holds float64, the tensor float32"):
        NumPyAccessor(np.zeros((3, 8, 8))).access_tensor(tensor)
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match="no array could be read"):
        NumPyBinLoader(tmp_path / "bad.npy").access_tensor(tensor)
    (tmp_path / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match="no image could be read"):
        ImageAccessor(tmp_path / "bad.png").access_tensor(tensor)
    with pytest.raises(ArtifactError, match="no labels could be read"):
        TopNPredictionsAccessor(tmp_path / "none.txt")
    (tmp_path / "labels.txt").write_text("one\ntwo\n")
    with pytest.raises(TypeMismatch, match="2 labels for 192 classes"):
        TopNPredictionsAccessor(tmp_path / "labels.txt").access_tensor(tensor)


def test_images_fill_planes_and_scores_are_printed(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P6 2 1 255\n" + bytes([10, 20, 30, 40, 50, 60]))
    tensor, scores, out = ComputeTensor(), ComputeTensor(), io.StringIO()
    tensor.allocator().init(TensorInfo(TensorShape(2, 1, 3), 1, DataType.F32))
    scores.allocator().init(TensorInfo(TensorShape(3), 1, DataType.F32))
    tensor.allocator().allocate()
    scores.allocator().allocate()
    accessor = ImageAccessor(tmp_path / "a.ppm")
    assert accessor.access_tensor(tensor)
    assert tensor.array().tolist() == [[[30, 60]], [[20, 50]], [[10, 40]]], "blue, green, red"
    assert not accessor.access_tensor(tensor), "the second time ends the run"
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    scores.array()[...] = [0.25, 0.5, 0.125]
    assert not TopNPredictionsAccessor(tmp_path / "labels.txt", 2, out).access_tensor(scores)
    assert out.getvalue().splitlines()[2:] == ["0.5000 - [id = 1], b", "0.2500 - [id = 0], a"]
