"""Layouts that scripts ask for: rules of their own, what follows them, and what ConvertLayout leaves alone.

Each graph is written out by hand as it should be, and computes what it computed before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from armillary import IRModule, relay, tir
from armillary.errors import TypeMismatch
from armillary.ir import assert_structural_equal
from armillary.relay import transform
from armillary.relay.testing.temp_op_attr import TempOpAttr
from armillary.relay.transform.infer_layout_utils import InferCorrectLayoutOutput
from armillary.relay.walk import post_order
from armillary.transform import PassContext

Node = Any  # Any: an expression, whose fields differ


def fn(params: list[Node], body: Node) -> Node:
    return relay.Function(tuple(params), body)


def changed(body: Node, made: Node) -> Node:
    """The body after a pass."""
    with PassContext(opt_level=3):
        return made(IRModule.from_expr(body))["main"]


def same_values(before: Node, after: Node) -> None:
    one, two = (IRModule.from_expr(f) for f in (before, after))
    rng = np.random.default_rng(0)
    main: Node = one["main"]
    params = main.params
    values = [rng.random(p.checked_type.static, dtype=np.float32) for p in params]
    want, got = (relay.create_executor("debug", mod=m).evaluate()(*values).numpy() for m in (one, two))
    np.testing.assert_allclose(got, want, rtol=1e-5)


def to_blocks(attrs: Node, inputs: list[Node], types: object, result: object) -> Node:
    return relay.nn.conv2d(*inputs, **{**dict(attrs), "data_layout": "NCHW4c"})


def conv(channels: int = 8) -> tuple[Node, Node, Node]:
    x, w = relay.var("x", shape=(1, 8, 6, 6)), relay.var("w", shape=(channels, 8, 3, 3))
    return x, w, relay.nn.conv2d(x, w, padding=(1, 1))


Tail = Callable[[Node], Node]
FOLLOWERS: dict[str, tuple[Tail, Tail, str]] = {  # plain, in blocks, the layout that comes out
    "relu": (relay.nn.relu, relay.nn.relu, "NCHW4c"),
    "pool": (
        lambda y: relay.nn.max_pool2d(y, (2, 2)),
        lambda y: relay.nn.max_pool2d(y, (2, 2), layout="NCHW4c"),
        "NCHW4c",
    ),
    "sum of channels": (
        lambda y: relay.sum(y, axis=1, keepdims=True),
        lambda y: relay.sum(y, axis=[1, 4], keepdims=True),
        "NCHW1c",
    ),
    "slice": (
        lambda y: relay.strided_slice(y, begin=[0, 4], end=[1, 8]),
        lambda y: relay.strided_slice(y, begin=[0, 1], end=[1, 2]),
        "NCHW4c",
    ),
    "pad": (
        lambda y: relay.nn.pad(y, ((0, 0), (0, 0), (1, 1), (2, 2))),
        lambda y: relay.nn.pad(y, ((0, 0), (0, 0), (1, 1), (2, 2), (0, 0))),
        "NCHW4c",
    ),
    "concatenate": (
        lambda y: relay.concatenate([y, y], axis=1),
        lambda y: relay.concatenate([y, y], axis=1),
        "NCHW4c",
    ),
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_a_rewritten_convolution_reads_its_blocks(name: str) -> None:
    plain, blocked, layout = FOLLOWERS[name]
    x, w, y = conv()
    before = fn([x, w], plain(y))
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", to_blocks):
        after = changed(before, transform.AlterOpLayout())
    data = relay.layout_transform(x, "NCHW", "NCHW4c")
    y = blocked(relay.nn.conv2d(data, w, padding=(1, 1), data_layout="NCHW4c"))
    assert_structural_equal(after, fn([x, w], relay.layout_transform(y, layout, "NCHW")))
    same_values(before, after)


@pytest.mark.parametrize(
    "tail",
    [
        lambda y: relay.nn.pad(y, ((0, 0), (1, 1), (0, 0), (0, 0))),
        lambda y: relay.strided_slice(y, begin=[0, 1], end=[1, 7]),
        lambda y: relay.nn.lrn(y),
        lambda y: relay.nn.batch_flatten(y),
    ],
)
def test_what_cannot_read_blocks_gets_its_input_back(tail: Tail) -> None:
    x, w, y = conv()
    before = fn([x, w], tail(y))
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", to_blocks):
        after = changed(before, transform.AlterOpLayout())
    y = relay.nn.conv2d(relay.layout_transform(x, "NCHW", "NCHW4c"), w, padding=(1, 1), data_layout="NCHW4c")
    assert_structural_equal(after, fn([x, w], tail(relay.layout_transform(y, "NCHW4c", "NCHW"))))
    same_values(before, after)


def test_a_smaller_operand_is_given_axes_and_blocks() -> None:
    x, w, y = conv()
    scale = relay.var("scale", shape=(8, 1, 1))
    before = fn([x, w, scale], relay.multiply(scale, y))
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", to_blocks):
        after = changed(before, transform.AlterOpLayout())
    y = relay.nn.conv2d(relay.layout_transform(x, "NCHW", "NCHW4c"), w, padding=(1, 1), data_layout="NCHW4c")
    wide = relay.layout_transform(relay.expand_dims(scale, 0), "NCHW", "NCHW4c")
    expected = relay.layout_transform(relay.multiply(wide, y), "NCHW4c", "NCHW")
    assert_structural_equal(after, fn([x, w, scale], expected))
    same_values(before, after)


def test_convolutions_in_blocks_are_compiled() -> None:
    x, w, y = conv()
    function = fn([x, w], relay.nn.relu(y))
    rng = np.random.default_rng(0)
    values = [rng.random(p.checked_type.static, dtype=np.float32) for p in function.params]
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", to_blocks):
        got = relay.create_executor("graph", mod=IRModule.from_expr(function)).evaluate()(*values).numpy()
    want = relay.create_executor("debug", mod=IRModule.from_expr(function)).evaluate()(*values).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_rule_that_gives_no_call_is_named() -> None:
    x, w, y = conv()
    body = fn([x, w], y)
    rule = TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", lambda attrs, inputs, types, result: inputs[0])
    with rule, pytest.raises(TypeMismatch, match=r"rule of nn\.conv2d gives Var, wanted a call"):
        changed(body, transform.AlterOpLayout())


def test_convert_layout_makes_biases_additions_and_moves_axes() -> None:
    x, b = relay.var("x", shape=(1, 6, 6, 8)), relay.var("b", shape=(4,))
    w = relay.var("w", shape=(3, 3, 8, 4))
    y = relay.nn.conv2d(x, w, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    before = fn([x, w, b], relay.mean(relay.nn.bias_add(y, b, axis=3), axis=[1, 2]))
    after = changed(before, transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]}))
    data, kernel = relay.layout_transform(x, "NHWC", "NCHW"), relay.layout_transform(w, "HWIO", "OIHW")
    bias = relay.layout_transform(relay.expand_dims(b, 0, 3), "NHWC", "NCHW")
    y = relay.nn.conv2d(data, kernel, padding=(1, 1))
    assert_structural_equal(after, fn([x, w, b], relay.mean(relay.add(y, bias), axis=[2, 3])))
    same_values(before, after)


def test_layers_that_a_config_names_stay() -> None:
    x, w, y = conv()
    body = fn([x, w], relay.nn.conv2d(y, w, padding=(1, 1)))
    config: Node = transform.LayoutConfig(skip_layers=[0])
    with config:
        after = changed(body, transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}))
    calls: list[Node] = post_order(after)
    layouts = [e.attrs.data_layout for e in calls if getattr(e, "op", None) is y.op]
    assert layouts == ["NCHW", "NHWC"]


def test_a_script_says_how_an_operator_follows() -> None:
    x, w, y = conv()
    body = fn([x, w], relay.nn.lrn(y))

    def stays(attrs: object, new: list[object], old: list[object], types: object) -> InferCorrectLayoutOutput:
        return InferCorrectLayoutOutput([old[0]], [old[0] or ""], attrs)

    with TempOpAttr("nn.lrn", "FInferCorrectLayout", stays):
        after = changed(body, transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}))
    same_values(body, after)


def test_layouts_map_indices_and_shapes() -> None:
    moved = tir.bijective_layout("NCHW", "NCHW4c")
    assert moved.forward_shape([1, 10, 6, 7]) == [1, 3, 6, 7, 4]
    assert moved.backward_shape([1, 3, 6, 7, 4]) == [1, 12, 6, 7]
    assert moved.forward_index([0, 6, 2, 3]) == [0, 1, 2, 3, 2]
    assert moved.backward_index([0, 1, 2, 3, 2]) == [0, 6, 2, 3]
    layout = tir.layout("NCHW16c")
    assert (len(layout), layout[1], "c" in layout, layout.factor_of("C"), layout.index_of("D")) == (
        5,
        "C",
        True,
        16,
        -1,
    )
    for pair in (("NCHW", "NCDHW"), ("", "NCHW"), ("NCHW", "__undef__")):
        assert tir.bijective_layout(*pair) is None
    with pytest.raises(TypeMismatch, match="has 4 axes, got 1"):
        moved.forward_index([0])


def test_limits_of_a_slice_may_differ_in_number() -> None:
    x = relay.var("x", shape=(3, 4, 5))
    cut: Node = relay.strided_slice(x, begin=[0, 1], end=[2], strides=[1, 2, 1])
    assert cut.checked_type.shape == (2, 2, 5)
