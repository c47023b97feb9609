"""What operators state of themselves is what passes go by: layouts that can be asked for, simpler forms, wider ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import IRModule, relay
from armillary.base.data_layout import layout
from armillary.errors import ConfigError, UnsupportedError
from armillary.ops.layout._conversions import check_by_user
from armillary.relay.expr import Call, Expr
from armillary.relay.op import OPS, get_op
from armillary.relay.transform import ConvertLayout
from armillary.relay.transform.layout._rules import takes_layouts
from armillary.relay.transform.layout.use_layouts import use_layouts
from armillary.relay.transform.simplify.simplify_expr import simplify_expr
from armillary.relay.transform.simplify.simplify_expr_post_alter_op import simplify_expr_post_alter_op
from armillary.transform import PassContext

Node = Any  # Any: an expression, whose fields differ
ASKED = ("nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.max_pool2d", "qnn.conv2d", "image.resize2d")


def moved(name: str) -> str:
    """The layout of an operator's data with the channels last."""
    axes = OPS[name].layout_axes
    assert axes is not None
    return f"{axes.data.replace('C', '')}C"


@pytest.mark.parametrize("name", ASKED)
def test_a_permutation_of_the_stated_axes_can_be_asked_for(name: str) -> None:
    check_by_user({name: [moved(name)]})
    with pytest.raises(UnsupportedError, match="has no layout NXC"):
        check_by_user({name: ["NXC"]})
    with pytest.raises(ConfigError, match="the data layout must be named"):
        check_by_user({name: ["default"]})


@pytest.mark.parametrize("name", [n for n in ASKED if takes_layouts(OPS[n])])
def test_kernels_that_go_with_data_have_the_kernels_axes(name: str) -> None:
    axes = OPS[name].layout_axes
    assert axes is not None
    for data, kernel in axes.kernels:
        assert sorted(layout(data).whole) == sorted(axes.data)
        assert sorted(layout(kernel).whole) == sorted(axes.kernel)
        assert axes.kernel_of(data) == kernel
    assert axes.kernel_of("CHWN") is None


def convolution() -> IRModule:
    x, w = relay.var("x", shape=(1, 8, 6, 6)), relay.var("w", shape=(4, 8, 3, 3))
    return IRModule.from_expr(relay.Function([x, w], relay.nn.conv2d(x, w)))


def kernel_layout(module: IRModule) -> str:
    """That of the first call which names one."""
    return module.astext().partition('kernel_layout="')[2].partition('"')[0]


@pytest.mark.parametrize("data", ["NHWC", "HWNC"])
def test_both_passes_take_the_stated_kernel_layout(data: str) -> None:
    desired = {"nn.conv2d": [data, "default"]}
    axes = OPS["nn.conv2d"].layout_axes
    assert axes is not None
    with PassContext(opt_level=3):
        made = [ConvertLayout(desired)(convolution()), use_layouts(convolution(), desired_layouts=desired)]
    assert [kernel_layout(module) for module in made] == [axes.kernel_of(data)] * 2


def test_blocks_are_for_users_and_refused_to_importers() -> None:
    desired = {"nn.conv2d": ["NCHW4c", "OIHW4i4o"]}
    check_by_user(desired)
    with pytest.raises(UnsupportedError, match=r"use-layouts: nn\.conv2d: NCHW4c is blocked"):
        use_layouts(convolution(), desired_layouts=desired)


def test_convolutions_over_one_axis_take_layouts_as_those_over_two() -> None:
    x, w = relay.var("x", shape=(1, 3, 9)), relay.var("w", shape=(4, 3, 3))
    module = IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.conv1d(x, w, padding=1))))
    made = use_layouts(module, desired_layouts={"nn.conv1d": ["NWC", "WIO"]})
    rng = np.random.default_rng(0)
    values = [rng.random((1, 3, 9), np.float32), rng.random((4, 3, 3), np.float32)]
    want, got = (relay.create_executor("debug", mod=m).evaluate()(*values).numpy() for m in (module, made))
    assert 'data_layout="NWC"' in made.astext()
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("again", [False, True])
def test_a_rule_of_an_operator_is_asked_and_after_layouts_if_it_says_so(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(call: Call) -> Expr | None:
        inner = call.args[0]
        return inner if isinstance(inner, Call) and inner.op is call.op else None

    op = get_op("ceil")
    monkeypatch.setattr(op, "simplify_rules", (twice,))
    monkeypatch.setattr(op, "simplify_after_layouts", again)
    x = relay.var("x", shape=(3,))
    module = IRModule.from_expr(relay.Function([x], relay.ceil(relay.ceil(x))))
    assert simplify_expr(module).astext().count("ceil(") == 1
    assert simplify_expr_post_alter_op(module).astext().count("ceil(") == (1 if again else 2)


@pytest.mark.parametrize("name", ["nn.conv1d", "nn.max_pool1d", "sigmoid", "add"])
def test_names_that_operators_state_are_operators(name: str) -> None:
    op = get_op(name)
    assert op.wider or op.quantized
    for other in filter(None, (op.wider, op.quantized)):
        assert len(get_op(other).inputs) >= len(op.inputs)
