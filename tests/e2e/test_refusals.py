"""What cannot be built is refused by relay.build with what is wrong, and never by a Python error of ours."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import e2e_models as models
import numpy as np
import pytest
from onnx import TensorProto, helper

import armillary
from armillary import relay, te
from armillary.driver.build import build
from armillary.errors import (
    ArmillaryError,
    ArtifactError,
    ConfigError,
    ExecutionError,
    InternalError,
    ModelError,
    ParseError,
    TargetError,
    TypeMismatch,
    UnsupportedError,
)
from armillary.ir import IRModule
from armillary.ir.memory_pools import WorkspaceMemoryPools
from armillary.ops.nn._windows import call
from armillary.relay.expr import Call, Function, const, var
from armillary.relay.op import Kind, Op
from armillary.relay.types import ANY_DIM, tensor_type


def _relu(*shape: Any) -> Function:
    x = var("x", tensor_type(shape))
    return Function((x,), call("nn.relu", x))


def _refused(error: type[ArmillaryError], text: str, *args: Any, **options: Any) -> None:
    with pytest.raises(error) as caught:
        build(*args, **options)
    assert not isinstance(caught.value, InternalError)
    assert text in str(caught.value), str(caught.value)


def test_unknown_dimension() -> None:
    _refused(TypeMismatch, "the shape (?, 4) is not fully known", _relu(ANY_DIM, 4), "llvm")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("toaster", "toaster"),
        ("", "target"),
        ("llvm -mcpu=no-such-cpu", "no-such-cpu"),
        ("opencl -device=toaster -nonsense=1", "nonsense"),
        ("llvm -no-such-option=1", "no-such-option"),
        ("llvm -mtriple=no-such-machine", "no-such-machine"),
        ("llvm -mattr=+no-such-feature", "no-such-feature"),
        ({"kind": "toaster"}, "toaster"),
        (7, "7"),
    ],
    ids=str,
)
def test_target_that_does_not_exist_or_cannot_be_built(target: Any, text: str) -> None:
    _refused(TargetError, text, _relu(2, 3), target)


@pytest.mark.parametrize(
    ("item", "text"),
    [(None, "NoneType"), ("main", "str"), (IRModule(), "no function main"), (const(1.0), "Constant")],
    ids=["none", "text", "empty", "expression"],
)
def test_something_else_than_a_network(item: Any, text: str) -> None:
    _refused(TypeMismatch, text, item, "llvm")


def test_free_variable() -> None:
    x, y = var("x", shape=(2,), dtype="float32"), var("y", shape=(2,), dtype="float32")
    _refused(ArmillaryError, "y", Function((x,), call("add", x, y)), "llvm")


def test_a_function_that_reads_what_it_does_not_list() -> None:
    x, y = var("x", shape=(2,)), var("y", shape=(2,))
    _refused(UnsupportedError, "reads %y, which is none of its parameters", Function((x,), call("add", x, y)), "llvm")


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda: relay.const(None), TypeMismatch, "made of numbers, got NoneType"),
        (lambda: relay.add(var("x", shape=(2,)), None), TypeMismatch, "made of numbers, got NoneType"),
        (lambda: relay.const([[1], [1, 2]]), TypeMismatch, "cannot be made from list"),
        (lambda: var("x", shape=("a",)), TypeMismatch, "a shape is a sequence of whole numbers, got ('a',)"),
        (lambda: relay.fromtext(None), ParseError, "expected the text of a module, got NoneType"),
        (lambda: relay.frontend.from_onnx(b"", opset="x"), ModelError, "opset= is 'x', wanted a whole number"),
        (lambda: build(_relu(2), "llvm", params=[1]), TypeMismatch, "params are list, wanted a dictionary"),
        (lambda: armillary.transform.PassContext(config=[1]), ConfigError, "config is [1], wanted a dictionary"),
        (lambda: armillary.transform.PassContext(opt_level=-1), ConfigError, "opt_level is -1, wanted 0 to 4"),
        (lambda: armillary.transform.PassContext(required_pass=[1]), ConfigError, "1 is no name of a pass"),
        (lambda: build(_relu(2), "llvm").export_library(None), ConfigError, "the file is None, wanted its path"),
        (lambda: armillary.runtime.load_module(None), TypeMismatch, "named by its path, got NoneType"),
        (lambda: build(_relu(2), "llvm")["default"](1), TargetError, "1 is no device"),
        (lambda: build(_relu(2), "llvm")["default"]().load_params("a"), TypeMismatch, "bytes of a blob, got str"),
        (lambda: armillary.nd.empty((1 << 50,)), ExecutionError, "Cannot allocate memory"),
    ],
)
def test_arguments_of_another_kind(use: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        use()
    assert text in str(caught.value)


def test_a_function_with_two_parameters_of_one_name() -> None:
    one, two = (var("x", shape=(2,)) for _ in range(2))
    twins = Function((one, two), call("add", one, two))
    for item in (twins, IRModule.from_expr(twins)):
        _refused(TypeMismatch, "the function main has 2 parameters called %x, but inputs are set by name", item, "llvm")
    text = "def @main(%x: Tensor[(2,), float32], %x: Tensor[(2,), float32]) { %x }"
    with pytest.raises(ParseError, match="two parameters are called %x") as caught:
        relay.fromtext(text)
    assert caught.value.span is not None and caught.value.span.column == text.rindex("%x:") + 1


def onnx_relu() -> Any:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    return helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))


@pytest.mark.parametrize("shape", [[1, 2], "x", {"x": (1.5, 4)}, {"x": "ab"}])
def test_shapes_of_inputs_that_are_none(shape: Any) -> None:
    with pytest.raises(TypeMismatch, match=r"(?s)shape=.*(by name|a whole number)"):
        relay.frontend.from_onnx(onnx_relu(), shape=shape)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("flaot32", "dtype= is 'flaot32', which is no type of a tensor"),
        ("handle", "dtype= is 'handle', which is no"),
        (object, "which is no type of a tensor"),
        ({"x": 4}, "dtype= is 4, which is no type of a tensor"),
        ({"z": "int8"}, "a dtype is given for 'z', which is no input of the model"),
        ({"x": "int8"}, "input 'x': dtype= says int8, the model declares float32"),
    ],
)
def test_types_of_inputs_that_are_none(dtype: Any, text: str) -> None:
    with pytest.raises((TypeMismatch, ModelError)) as caught:
        relay.frontend.from_onnx(onnx_relu(), shape={"x": (2, 4)}, dtype=dtype)
    assert text in str(caught.value)


def test_operator_that_nothing_computes() -> None:
    strange = Op("strange.operator", kind=Kind.OPAQUE)
    strange.infer_rule = lambda attrs, *types: types[0]
    x = var("x", shape=(2,), dtype="float32")
    _refused(UnsupportedError, "strange.operator", Function((x,), Call(strange, (x,), None)), "llvm")


def test_parameter_of_another_shape() -> None:
    module, params, _ = models.workload("mlp")
    name = next(iter(params))
    _refused(TypeMismatch, name, module, "llvm", params={**params, name: np.zeros((1, 2, 3), np.float32)})


def test_types_that_do_not_fit() -> None:
    x, w = var("x", shape=(2, 3), dtype="float32"), var("w", shape=(4, 5), dtype="float32")
    with pytest.raises(TypeMismatch, match=r"nn\.dense"):
        build(Function((x, w), call("nn.dense", x, w)), "llvm")


def test_memory_pools() -> None:
    _refused(UnsupportedError, "memory pools", _relu(2), "llvm", workspace_memory_pools=WorkspaceMemoryPools([]))


def test_executor_of_a_kind_that_is_not_there() -> None:
    with pytest.raises(UnsupportedError, match="kinds: debug, graph"):
        relay.create_executor("eager", IRModule.from_expr(_relu(2)))


def test_pass_context_with_a_wrong_value() -> None:
    with pytest.raises(ConfigError, match=r"relay\.FuseOps\.max_depth"):
        models.compiled(IRModule.from_expr(_relu(2)), {}, config={"relay.FuseOps.max_depth": "deep"})


def _wrong_shape(graph: Any) -> None:
    graph.set_input("x", np.zeros((5, 5), np.float32))


def _wrong_name(graph: Any) -> None:
    graph.set_input("image", np.zeros((2, 3), np.float32))


def _wrong_dtype(graph: Any) -> None:
    graph.set_input("x", np.zeros((2, 3), np.complex64))


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (_wrong_shape, "(5, 5)"),
        (_wrong_name, "inputs are x"),
        (_wrong_dtype, "complex64"),
        (lambda graph: graph.get_output(3), "3"),
    ],
    ids=["shape", "name", "dtype", "output"],
)
def test_executor_says_which_input_is_wrong(use: Callable[[Any], None], text: str) -> None:
    graph = build(_relu(2, 3), "llvm")["default"]()
    with pytest.raises((ExecutionError, TypeMismatch)) as caught:
        use(graph)
    assert text in str(caught.value)


def test_export_to_a_place_or_by_a_compiler_that_is_not_there(tmp_path: Any) -> None:
    library = build(_relu(2, 3), "llvm")
    with pytest.raises(ArtifactError, match="there is no folder"):
        library.export_library(tmp_path / "nowhere" / "net.so")
    with pytest.raises(TargetError, match="no-such-gcc"):
        library.export_library(tmp_path / "net.so", cc="no-such-gcc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors are not asked what they have")
def test_code_for_instructions_that_the_processor_lacks_is_refused() -> None:
    library = build(_relu(2, 3), "llvm -mcpu=x86-64-v3 -mattr=+fma4")  # fma4: no processor since 2017 tells of it
    with pytest.raises(ArtifactError, match="uses fma4, which this processor lacks"):
        library["default"]()


def test_no_compiler_for_a_foreign_target_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ARMILLARY_CC", "no-such-compiler")
    with pytest.raises(TargetError, match="ARMILLARY_CC"):
        build(_relu(2, 3), "llvm -mtriple=riscv64-linux-gnu").export_library(tmp_path / "net.so")


def test_an_open_onnx_input_stays_open_or_is_bound_by_shape() -> None:
    onnx_helper = models.helper
    x = onnx_helper.make_tensor_value_info("x", 1, ["batch", 3])
    y = onnx_helper.make_tensor_value_info("y", 1, None)
    graph = onnx_helper.make_graph([onnx_helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = onnx_helper.make_model(graph, opset_imports=[onnx_helper.make_opsetid("", 17)])
    whole = models.compiled(*relay.frontend.from_onnx(model))
    assert models.run(whole, {"x": np.ones((5, 3), np.float32)}).sum() == 15
    library = models.compiled(*relay.frontend.from_onnx(model, {"x": (2, 3)}))
    assert models.run(library, {"x": np.ones((2, 3), np.float32)}).sum() == 6


def test_axes_of_a_gpu_are_refused_on_the_cpu() -> None:
    a = te.placeholder((4,), "float32", name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(UnsupportedError, match="needs a GPU target"):
        armillary.build(schedule, [a, b], target="llvm")
