"""The numerics doctor finds the node at fault, whatever the fault lies in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.utils
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary import relay, te
from armillary.base.node import post_order, rewrite
from armillary.cli.main import main
from armillary.driver.doctor import ALONE, FUSED, Diagnosis, Tolerance, compare, diagnose, dump
from armillary.driver.doctor_subject import Subject, checked_inputs, onnx_subject, random_inputs, relay_subject
from armillary.errors import ArmillaryError, ConfigError, TypeMismatch, UnsupportedError
from armillary.ir import BaseFunc, IRModule
from armillary.relay.expr import Function, const, var
from armillary.relay.op import get_op
from armillary.tir import expr as E
from armillary.transform import PassContext, module_pass

_RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel compiled before the fault was put in must not be found again."""
    monkeypatch.setenv("ARMILLARY_CACHE", "0")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two branches: a convolution with relu and a sigmoid; joined, then scaled by tanh and summed up."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Sigmoid", ["x"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["r", "s"], ["m"], name="gate"),
        helper.make_node("Tanh", ["m"], ["t"], name="squash"),
        helper.make_node("Split", ["t"], ["t0", "t1"], name="halves", axis=1, num_outputs=2),
        helper.make_node("Add", ["t0", "t1"], ["y"], name="total"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    w = numpy_helper.from_array(_RNG.standard_normal((4, 4, 3, 3)).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "branches", [x], [y], [w])
    path = tmp_path / "branches.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    return path


SHAPES = {"x": (1, 4, 6, 6)}


def test_a_refusal_names_the_file(model: Path) -> None:
    with pytest.raises(ArmillaryError) as caught:
        onnx_subject(model, {"x": (1, 3, 6, 6)})  # the weight takes 4 channels
    assert caught.value.span is not None and caught.value.span.source == str(model)


def examined(subject: Subject, target: str = "llvm", reference: str = "auto") -> Diagnosis:
    return diagnose(subject, random_inputs(subject.network), target, reference)


@module_pass(opt_level=0)
def wrong_sigmoid(module: IRModule, context: PassContext) -> IRModule:
    """A user's loop pass with a mistake: every sigmoid comes out 1 % too large."""
    return module.map_functions(lambda _, function: _with_larger_sigmoid(function))


def _with_larger_sigmoid(function: BaseFunc) -> Any:
    def rule(item: Any) -> Any:
        is_sigmoid = isinstance(item, E.Call) and item.name == "sigmoid"
        return E.Mul(item, E.FloatImm(item.dtype, 1.01)) if is_sigmoid else None

    return rewrite(function, rule)


def test_a_sound_network_agrees_everywhere(model: Path) -> None:
    for level in (0, 3):
        with PassContext(opt_level=level):
            found = examined(onnx_subject(model, SHAPES))
        assert found.agrees and found.first is None
        assert [c.name for c in found.values] == ["c", "r", "s", "m", "t", "t0", "t1", "y"]
        assert "ONNX Runtime" in found.truth


def test_values_that_nobody_reads_are_not_compared(tmp_path: Path) -> None:
    """ONNX Runtime leaves the mask of an old Dropout 0, we say 1."""
    nodes = [
        helper.make_node("Dropout", ["x"], ["kept", "mask"], name="dropout"),
        helper.make_node("Relu", ["kept"], ["y"], name="relu"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 9)], ir_version=8
    )
    path = tmp_path / "dropout.onnx"
    path.write_bytes(model.SerializeToString())
    found = examined(onnx_subject(path))
    assert found.agrees and [c.name for c in found.values] == ["y"]


def test_the_interpreter_tells_the_same_truth(model: Path) -> None:
    found = examined(onnx_subject(model, SHAPES), reference="interpreter")
    assert found.agrees and found.truth == "the interpreter"


def test_the_end_of_the_demo_agrees_without_onnx_runtime(tmp_path: Path) -> None:
    """Its logits are all equal, and 13 x 13 positions of each are averaged: sums in another order look like a fault."""
    whole = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    model = onnx.load(whole)
    nodes = model.graph.node
    last = next(n for n in reversed(nodes) if n.op_type == "Conv")
    path = tmp_path / "end.onnx"
    given = onnx.shape_inference.infer_shapes(model)
    onnx.save(onnx.utils.Extractor(given).extract_model([last.input[0]], [nodes[-1].output[0]]), path)
    found = examined(onnx_subject(path), reference="interpreter")
    assert found.agrees and found.first is None and found.truth == "the interpreter"


def test_a_broken_loop_pass_is_traced_to_the_node_it_breaks(model: Path, tmp_path: Path) -> None:
    subject = onnx_subject(model, SHAPES)
    with PassContext(opt_level=3, config={"tir.add_lower_pass": [[0, wrong_sigmoid]]}):
        found = examined(subject)
    assert found.first is not None and found.comparison is not None
    assert (found.first.node, found.first.op, found.first.name) == ("sigmoid", "Sigmoid", "s")
    assert not found.agrees and found.outputs[0].differs
    assert 0.001 < found.comparison.max_abs < 0.02 and found.comparison.beyond == 144
    written = dump(found, random_inputs(subject.network), tmp_path / "fault")
    assert sorted(p.name for p in written) == ["input.x.npy", "s.got.npy", "s.want.npy"]
    truth = 1 / (1 + np.exp(-np.load(tmp_path / "fault" / "input.x.npy").astype(np.float64)))
    np.testing.assert_allclose(np.load(tmp_path / "fault" / "s.want.npy"), truth, rtol=1e-5)
    assert np.abs(np.load(tmp_path / "fault" / "s.got.npy") - truth).max() == pytest.approx(
        found.comparison.max_abs, rel=1e-3
    )


def break_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the tensor expression of tanh is that of tanh(1.25 x)."""
    squash = get_op("tanh")
    sound = squash.compute_rule
    assert sound is not None

    def wrong(attrs: Any, x: te.Tensor) -> Any:
        return sound(attrs, te.compute(x.shape, lambda *i: x(*i) * 1.25, name="wrong", tag="injective"))

    monkeypatch.setattr(squash, "compute_rule", wrong)


def test_a_broken_operator_is_traced_to_the_node_that_uses_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_tanh(monkeypatch)
    found = examined(onnx_subject(model, SHAPES))
    assert found.first is not None and found.first.node == "squash" and found.stage == ALONE
    assert [c.name for c in found.reads] == ["m"] and not found.reads[0].differs


@module_pass(opt_level=0)
def broken_when_fused(module: IRModule, context: PassContext) -> IRModule:
    """A loop pass whose mistake shows only where relu and the product share a kernel."""

    def rule(name: str, function: Any) -> Any:
        maxima = any(isinstance(n, E.Max) for n in post_order(function))
        return _with_larger_sigmoid(function) if maxima and "multiply" in name else None

    return module.map_functions(rule)


def test_a_fault_in_a_fused_kernel_is_found_by_bisection() -> None:
    x = var("x", shape=(4, 32))
    gated = relay.nn.relu(x) * relay.sigmoid(x)
    module = IRModule.from_expr(Function((x,), relay.nn.softmax(relay.tanh(gated) + const(0.5))))
    subject = relay_subject(module, "text")
    assert [v.op for v in subject.values] == ["nn.relu", "sigmoid", "multiply", "tanh", "add", "nn.softmax"]
    with PassContext(opt_level=3, config={"tir.add_lower_pass": [[0, broken_when_fused]]}):
        found = examined(subject)
    assert not any(c.differs for c in found.values)  # kept apart, every kernel is right
    assert found.first is not None and (found.first.op, found.stage) == ("multiply", FUSED)
    assert not any(c.differs for c in found.reads)


def test_tuples_and_branches_of_relay_text_are_named() -> None:
    x = var("x", shape=(4, 6))
    halves = relay.split(relay.exp(x), 2, axis=1)
    subject = relay_subject(IRModule.from_expr(Function((x,), relay.Tuple((halves[0] + halves[1], halves[1])))), "t")
    assert [v.name for v in subject.values] == ["%0", "%1.0", "%1.1", "%2"]
    assert subject.outputs == ("%2", "%1.1")
    assert examined(subject).agrees


def test_comparisons_say_how_far_and_where() -> None:
    want = np.array([[1.0, 1e-6], [np.nan, np.inf]], np.float32)
    assert not compare("v", want.copy(), want).differs
    off = want.copy()
    off[0, 0] = 1.5
    seen = compare("v", off, want)
    assert (seen.beyond, seen.where, seen.max_abs, seen.got, seen.want) == (1, (0, 0), 0.5, 1.5, 1.0)
    lost = want.copy()
    lost[1, 0] = 0
    assert compare("v", lost, want).where == (1, 0)
    small = want.copy()
    small[0, 1] = 5e-5  # less than 1e-4 of the largest element
    assert not compare("v", small, want).differs
    assert compare("v", small, want, Tolerance(atol=0.0)).differs
    whole = np.array([1, 2], np.int8)
    assert compare("v", whole + np.int8(1), whole).beyond == 2
    assert compare("v", whole, whole.astype(np.int16)).problem == "got int8 [2], wanted int16 [2]"
    assert not compare("v", np.zeros((0, 2)), np.zeros((0, 2))).differs


def test_inputs_are_checked(model: Path) -> None:
    network = onnx_subject(model, SHAPES).network
    with pytest.raises(TypeMismatch, match="'z' is no input of the network"):
        checked_inputs(network, {"z": np.zeros(1)})
    with pytest.raises(TypeMismatch, match=r"got float64 \[1\], wanted float32 \[1, 4, 6, 6\]"):
        checked_inputs(network, {"x": np.zeros(1)})
    module = IRModule.from_expr(Function((x := var("x", shape=(2,)),), relay.exp(x)))
    with pytest.raises(UnsupportedError, match="ONNX Runtime runs ONNX models only"):
        examined(relay_subject(module, "text"), reference="ort")


def test_the_command_exits_with_0_when_all_agree(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(model), "--input-shapes", "x:[1,4,6,6]", "--all"]) == 0
    out = capsys.readouterr().out
    assert "outputs: all 1 agree" in out and "values:  all 8 agree" in out and "Sigmoid" in out


def test_the_command_reports_dumps_and_exits_with_2(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    break_tanh(monkeypatch)
    np.savez(tmp_path / "in.npz", x=np.full((1, 4, 6, 6), 0.5, np.float32))
    arguments = ["--input-shapes", "x:[1,4,6,6]", "--inputs", "in.npz", "--target", "llvm", "-O", "2"]
    assert main(["verify", str(model), *arguments]) == 2
    out = capsys.readouterr().out
    assert "first node that differs: squash (Tanh)" in out
    assert "'t', float32 [1, 4, 6, 6]" in out and "kernel   fused_" in out
    assert {p.name for p in (tmp_path / "verify-branches").iterdir()} == {"t.got.npy", "t.want.npy", "input.x.npy"}
    loose = ["--rtol", "1", "--atol", "1", "--dump-dir", "elsewhere"]
    assert main(["verify", str(model), *arguments, *loose]) == 0
    assert not (tmp_path / "elsewhere").exists()


def test_the_command_finds_what_is_wrong_at_one_level_only(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    right = get_op("sigmoid").compute_rule
    assert right is not None

    def wrong_at_level_1(attrs: None, data: Any) -> Any:
        good = right(attrs, data)
        level = PassContext.current().opt_level
        return te.compute(data.shape, lambda *i: good(*i) * (2.0 if level == 1 else 1.0), name="sigmoid")

    monkeypatch.setattr(get_op("sigmoid"), "compute_rule", wrong_at_level_1)
    assert main(["verify", str(model), "--input-shapes", "x:[1,4,6,6]", "--target", "llvm"]) == 2
    out = capsys.readouterr().out
    assert [out.count(f"level {level}, compared") for level in range(6)] == [1, 1, 1, 1, 1, 0]
    assert out.count("outputs: all 1 agree") == 4 and out.count("outputs: 1 of 1 differ") == 1
    assert "first node that differs: sigmoid (Sigmoid)" in out
    assert main(["verify", str(model), "--input-shapes", "x:[1,4,6,6]", "--target", "llvm", "-O", "3"]) == 0


def test_the_command_reads_relay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.relay").write_text("def @main(%x: Tensor[(2, 3), float32]) {\n  nn.relu(add(%x, 1f))\n}\n")
    assert main(["verify", str(tmp_path / "m.relay"), "--target", "llvm"]) == 0
    assert "compared with the interpreter" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "m.relay"), "--reference", "ort"]) == 4


def test_open_sizes_are_compared_at_each_that_is_stated(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(model), "-O", "3", "--sizes", "batch=1,5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "level 3" in line] == [
        f"{model}: llvm -mcpu=native, level 3, batch = {batch}, compared with ONNX Runtime {onnxruntime.__version__}"
        for batch in (1, 5)
    ]
    assert lines.count("values:  all 8 agree (network compiled with every value kept)") == 2


def test_a_fault_of_one_size_is_traced_to_its_node(model: Path) -> None:
    subject, builds = onnx_subject(model), dict[str, Any]()
    config = {"tir.add_lower_pass": [[0, wrong_sigmoid]]}
    with PassContext(opt_level=3, config=config):
        wrong = [
            diagnose(subject, random_inputs(subject.network, 0, {"batch": batch}), "llvm", builds=builds).first
            for batch in (2, 3)
        ]
    assert [first.node for first in wrong if first is not None] == ["sigmoid"] * 2
    assert list(builds) == ["the network", "the network with every value kept"]


def test_arrays_state_the_sizes_of_other_inputs(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "y"], ["z"], name="sum")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "g", [x, y], [z]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "sum.onnx")
    network = onnx_subject(tmp_path / "sum.onnx").network
    assert checked_inputs(network, {"y": np.zeros((4, 3), np.float32)})["x"].shape == (4, 3)
    with pytest.raises(TypeMismatch, match=r"input 'y': got float32 \[4, 3\], wanted float32 \[5, 3\]"):
        checked_inputs(network, {"y": np.zeros((4, 3), np.float32)}, sizes={"n": 5})
    with pytest.raises(ConfigError, match="the network has no size 'm'"):
        checked_inputs(network, {}, sizes={"m": 5})
