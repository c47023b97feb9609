"""Types of operators on sizes that are variables, and windows written with one number for each axis of the data."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.errors import TypeMismatch


def _ty(expr: relay.Expr) -> str:
    return str(expr.checked_type)


def test_upsampling_keeps_symbols_and_scales_them_by_whole_factors() -> None:
    n, c, h, w = (te.size_var(name) for name in "nchw")
    x = relay.var("x", relay.TensorType((n, 16, 32, 32)))
    assert _ty(relay.nn.upsampling(x, 2.0, 1.5)) == "Tensor[(n, 16, 64, 48), float32]"
    y = relay.var("y", relay.TensorType((n, c, h, w)))
    doubled = relay.nn.upsampling(y, 2, 2).checked_type.shape
    assert doubled[:2] == y.type_annotation.shape[:2]
    assert relay.analysis.free_vars(y) and str(doubled[2]) in ("h * 2", "2 * h", "2*h")
    assert _ty(relay.nn.upsampling(y, 1.5, 1.5)) == "Tensor[(n, c, ?, ?), float32]"
    z = relay.var("z", relay.TensorType((n, c, 4, 5, 6)))
    assert _ty(relay.nn.upsampling3d(z, 2, 2, 2)) == "Tensor[(n, c, 8, 10, 12), float32]"


def test_yolo_reorg_divides_symbols() -> None:
    n, c = te.size_var("n"), te.size_var("c")
    made = relay.vision.yolo_reorg(relay.var("x", relay.TensorType((n, c, 20, 20))), stride=2).checked_type
    assert made.shape[0] == n and made.shape[2:] == (10, 10)
    with pytest.raises(TypeMismatch, match="does not divide by the stride 3"):
        relay.vision.yolo_reorg(relay.var("x", relay.TensorType((n, c, 20, 20))), stride=3).checked_type  # noqa: B018


def test_dilation2d_takes_a_number_for_each_axis_of_the_data() -> None:
    x, w = relay.var("x", shape=(1, 3, 9, 8)), relay.var("w", shape=(3, 2, 3))
    data, weight = np.random.RandomState(1).rand(1, 3, 9, 8).astype("float32"), np.zeros((3, 2, 3), "float32")
    run = relay.create_executor("graph")
    got = [
        run.evaluate(relay.Function([x, w], relay.image.dilation2d(x, w, strides=s, dilations=d)))(data, weight).numpy()
        for s, d in (((2, 1), (1, 2)), ((1, 1, 2, 1), (1, 1, 1, 2)))
    ]
    np.testing.assert_array_equal(*got)
    with pytest.raises(TypeMismatch, match="must be 1 for batch and channels of NCHW"):
        relay.image.dilation2d(x, w, strides=(2, 1, 1, 1)).checked_type  # noqa: B018


@pytest.mark.parametrize(("transposed", "shape"), [(False, (6, 2)), (True, (2, 6))])
def test_a_product_types_its_second_side_by_units(transposed: bool, shape: tuple[int, int]) -> None:
    n = te.size_var("n")
    for second in (relay.var("w"), relay.var("w", relay.IncompleteType())):
        made = relay.nn.matmul(relay.var("x", relay.TensorType((n, 3, 6))), second, units=2, transpose_b=transposed)
        assert made.checked_type == relay.TensorType((n, 3, 2))
        assert second.checked_type == relay.TensorType(shape)


@pytest.mark.parametrize("kind", ["debug", "vm", "graph"])
def test_shapes_that_are_known_when_it_runs_have_to_fit(kind: str) -> None:
    open_shape = (relay.Any(), relay.Any())
    x, y = relay.var("x", shape=open_shape), relay.var("y", shape=open_shape)
    run = relay.create_executor(kind, armillary.IRModule.from_expr(relay.Function([x, y], x + y))).evaluate()
    data = np.ones((3, 1), "float32")
    assert run(data, np.ones((3, 4), "float32")).shape == (3, 4)
    with pytest.raises(TypeMismatch, match="add: the shapes do not broadcast"):
        run(data, np.ones((2, 4), "float32"))


def test_a_resize_to_a_variables_size_takes_it_from_another_input() -> None:
    height, width = te.var("height"), te.var("width")
    x, y = relay.var("x", shape=(1, 2, 4, 4)), relay.var("y", shape=(1, 2, height, width))
    module = armillary.IRModule.from_expr(
        relay.Function((x, y), relay.add(relay.image.resize2d(x, (height, width)), y))
    )
    data = np.random.default_rng(3).standard_normal((1, 2, 4, 4)).astype("float32")
    fixed = armillary.IRModule.from_expr(relay.Function((x,), relay.image.resize2d(x, (6, 9))))
    wanted = relay.create_executor("debug", fixed).evaluate()(data).numpy()
    result = relay.create_executor("vm", module).evaluate()(data, np.ones((1, 2, 6, 9), "float32"))
    np.testing.assert_allclose(result.numpy(), wanted + 1, rtol=1e-5)
