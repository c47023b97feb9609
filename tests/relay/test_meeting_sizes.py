"""Sizes of different names that operators take to be equal: a run says which inputs disagree."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper

import armillary
from armillary import relay
from armillary.base.extent import Known, as_size, size
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError, ExecutionError, TypeMismatch
from armillary.relay.analysis.meeting_sizes import with_meeting_sizes
from armillary.relay.expr import Expr
from armillary.relay.types import tensor_fields

N, M, K, L = (size(name) for name in "nmkl")
CASES: dict[str, tuple[Callable[..., Expr], list[tuple[Known, ...]]]] = {
    "add": (lambda x, y: x + y, [(N, 8), (M, 8)]),
    "where": (lambda x, y: relay.where(x > relay.const(0.5), x, y), [(N, 8), (M, 8)]),
    "concatenate": (lambda x, y: relay.concatenate([x, y], axis=1), [(N, 8), (M, 8)]),
    "dense": (lambda x, y: relay.nn.dense(x, y), [(4, K), (5, L)]),
    "batch_matmul": (lambda x, y: relay.nn.batch_matmul(x, y), [(N, 4, 8), (M, 5, 8)]),
}


def module_of(make: Callable[..., Expr], shapes: list[tuple[Known, ...]]) -> armillary.IRModule:
    x, y = (relay.var(name, shape=shape, dtype="float32") for name, shape in zip("xy", shapes, strict=True))
    return armillary.IRModule.from_expr(relay.Function([x, y], make(x, y)))


def at(shape: tuple[Known, ...], number: int) -> np.ndarray:
    return np.full([d if isinstance(d, int) else number for d in shape], 0.25, np.float32)


@pytest.mark.parametrize("name", CASES)
def test_inputs_that_disagree_are_named(name: str) -> None:
    make, shapes = CASES[name]
    library = relay.build(module_of(make, shapes), target="llvm")
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    for number in (3, 6):
        network.run(x=at(shapes[0], number), y=at(shapes[1], number))
    for first, second in ((3, 1), (1, 3), (6, 5)):
        with pytest.raises(ExecutionError, match="inputs x and y disagree on the size"):
            network.run(x=at(shapes[0], first), y=at(shapes[1], second))


def test_a_size_that_meets_a_number_is_that_number() -> None:
    main = with_meeting_sizes(module_of(lambda x, y: x + y, [(N, 8), (4, 8)]))["main"]
    assert [p.checked_type.shape for p in main.params] == [(4, 8), (4, 8)]


def test_bounds_are_those_of_both() -> None:
    shapes: list[tuple[Known, ...]] = [(size("n", 2, 40, 4), 8), (size("m", 8, 90, 6), 8)]
    main = with_meeting_sizes(module_of(lambda x, y: x + y, shapes))["main"]
    for parameter in main.params:
        (field,) = tensor_fields(parameter.checked_type)
        one = as_size(field.shape[0])
        assert one is not None and (one.name, one.low, one.high, one.step) == ("n", 8, 40, 12)
    with pytest.raises(TypeMismatch, match="bounds 50 to 40"):
        with_meeting_sizes(module_of(lambda x, y: x + y, [(size("n", 2, 40), 8), (size("m", 50, 90), 8)]))


def test_sizes_that_meet_nowhere_stay() -> None:
    module = module_of(lambda x, y: relay.nn.dense(x, y), [(N, 8), (5, 8)])
    assert with_meeting_sizes(module) is module


def test_axes_of_a_file_that_meet_are_compared() -> None:
    rows = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, 8]) for name, size in (("x", "a"), ("y", "b"))
    ]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["z"])], "net", rows, [helper.make_empty_tensor_value_info("z")]
    )
    session = armillary.InferenceSession(helper.make_model(graph).SerializeToString())
    assert session.run(None, {"x": at((N, 8), 3), "y": at((M, 8), 3)})[0].shape == (3, 8)
    with pytest.raises(ArmillaryError, match="inputs x and y disagree on the size a: 3 and 1"):
        session.run(None, {"x": at((N, 8), 3), "y": at((M, 8), 1)})


def test_what_meets_in_a_branch_alone_stays_open() -> None:
    x, flag = relay.var("x", shape=(N, 8)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.sum(x + relay.const(np.ones((4, 8), np.float32))), relay.sum(x))
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x, flag], body)), target="llvm")
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.run(x=at((N, 8), 3), flag=np.array(False))
    assert network.get_output(0).numpy() == 3 * 8 * 0.25
