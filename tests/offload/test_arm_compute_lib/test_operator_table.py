"""The table of operators row by row: the form in which each is taken, its types, and each condition that it sets.

In: calls. Out: the function that the library gets, by the name of its pattern or operator, or the reason why an
operator stays in the graph. Invariant: what is taken here is computed by the real library in the operators' tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from infrastructure import library_functions, module_of, operators, partitioned

from armillary import relay
from armillary.offload.report import offload_report
from armillary.relay.expr import Call, Constant, Expr, Function, const, var
from armillary.relay.op import Op
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib

BYTES = "uint8", "int8"
ALL = "float32", *BYTES


def x(*shape: int, dtype: str = "float32", name: str = "x") -> Expr:
    return var(name, shape=shape or (1, 8, 8, 4), dtype=dtype)


def ones(*shape: int, dtype: str = "float32") -> Constant:
    return const(np.ones(shape, dtype))


def number(value: float, dtype: str = "float32") -> Constant:
    return const(np.asarray(value, dtype))


def conv(data: Expr | None = None, shape: tuple[int, ...] = (3, 3, 4, 6), dtype: str = "float32", **attrs: Any) -> Expr:
    """A convolution in NHWC (Any: its attributes)."""
    given = {"data_layout": "NHWC", "kernel_layout": "HWIO"} | attrs
    return relay.nn.conv2d(x() if data is None else data, ones(*shape, dtype=dtype), **given)


def depthwise(size: tuple[int, int] = (3, 3), **attrs: Any) -> Expr:
    return conv(shape=(*size, 4, 1), kernel_layout="HWOI", groups=4, channels=4, **attrs)


def qnn_conv(dtype: str, data: Expr | None = None, out: str = "", numbers: dict[str, Constant] | None = None) -> Expr:
    given = {"zero": number(3, "int32"), "kernel_zero": number(1, "int32"), "scale": number(0.5), "kernel": number(0.1)}
    given |= numbers or {}
    data = x(dtype=dtype) if data is None else data
    form = {"data_layout": "NHWC", "kernel_layout": "HWIO", "kernel_size": (3, 3), "channels": 6}
    return relay.qnn.conv2d(data, ones(3, 3, 4, 6, dtype=dtype), *given.values(), **form)


def requantized(sums: Expr, dtype: str, scale: Constant | None = None, zero: Constant | None = None) -> Expr:
    scale, zero = scale or number(0.3), zero or number(4, "int32")
    axis = len(sums.checked_type.shape) - 1
    return relay.qnn.requantize(sums, number(0.05), number(0, "int32"), scale, zero, axis=axis, out_dtype=dtype)


def qnn_dense(dtype: str, weight: str = "", **numbers: Constant) -> Expr:
    given = {"zero": number(3, "int32"), "kernel_zero": number(1, "int32"), "scale": number(0.5), "kernel": number(0.1)}
    return relay.qnn.dense(
        x(2, 8, dtype=dtype), ones(5, 8, dtype=weight or dtype), *(given | numbers).values(), units=5
    )


def qnn_add(dtype: str, **numbers: Constant) -> Expr:
    given = {"ls": number(0.5), "lz": number(1, "int32"), "rs": number(0.2), "rz": number(2, "int32")}
    given |= {"os": number(0.7), "oz": number(3, "int32")} | numbers
    return relay.qnn.add(x(dtype=dtype), x(dtype=dtype, name="y"), *given.values(), lhs_axis=3, rhs_axis=3)


def pool(name: str, data: Expr, **attrs: Any) -> Expr:
    given = {} if name.startswith("global") else {"pool_size": (2, 2), "strides": (2, 2)}
    return getattr(relay.nn, f"{name}_pool2d")(data, **({"layout": "NHWC"} | given | attrs))


def mean(dtype: str, name: str = "avg") -> Expr:
    return relay.cast(pool(name, relay.cast(x(dtype=dtype), "int32")), dtype)


def l2(exponent: float = 2.0) -> Expr:
    return relay.sqrt(pool("avg", relay.power(x(), number(exponent))))


def padded(data: Expr, value: float = 0.0, **attrs: Any) -> Expr:
    return relay.nn.pad(data, pad_width=((0, 0), (1, 2), (3, 0), (0, 0)), pad_value=value, **attrs)


def biased(data: Expr, units: int = 6, dtype: str = "float32") -> Expr:
    axis = len(data.checked_type.shape) - 1
    return relay.nn.bias_add(data, ones(units, dtype=dtype), axis=axis)


def sums(dtype: str) -> Expr:
    """All optional links of the pattern of bytes."""
    return relay.nn.relu(biased(qnn_conv(dtype, padded(x(dtype=dtype), 3.0)), dtype="int32"))


Row = tuple[str, Callable[[str], Expr], tuple[str, ...]]
TAKEN: tuple[Row, ...] = (
    ("conv2d", lambda _: conv(), ("float32",)),
    ("conv2d", lambda _: conv(padded(x())), ("float32",)),
    ("conv2d", lambda _: biased(conv()), ("float32",)),
    ("conv2d", lambda _: relay.nn.relu(conv()), ("float32",)),
    ("conv2d", lambda _: relay.nn.relu(biased(conv(padded(x())))), ("float32",)),
    ("conv2d", lambda _: depthwise(), ("float32",)),
    ("conv2d", lambda _: relay.nn.relu(biased(depthwise((5, 5), strides=(2, 2)), 4)), ("float32",)),
    ("qnn_conv2d", lambda dtype: requantized(qnn_conv(dtype), dtype), BYTES),
    ("qnn_conv2d", lambda dtype: requantized(sums(dtype), dtype), BYTES),
    ("dense", lambda _: relay.nn.dense(x(2, 8), ones(5, 8)), ("float32",)),
    ("dense", lambda _: biased(relay.nn.dense(x(2, 8), ones(5, 8)), 5), ("float32",)),
    ("qnn_dense", lambda dtype: requantized(qnn_dense(dtype), dtype), BYTES),
    ("qnn_dense", lambda dtype: requantized(biased(qnn_dense(dtype), 5, "int32"), dtype), BYTES),
    ("nn.max_pool2d", lambda dtype: pool("max", x(dtype=dtype)), ALL),
    ("nn.global_max_pool2d", lambda dtype: pool("global_max", x(dtype=dtype)), ALL),
    ("nn.avg_pool2d", lambda _: pool("avg", x()), ("float32",)),
    ("nn.global_avg_pool2d", lambda _: pool("global_avg", x()), ("float32",)),
    ("avg_pool2d", mean, BYTES),
    ("avg_pool2d", lambda dtype: mean(dtype, "global_avg"), BYTES),
    ("l2_pool2d", lambda _: l2(), ("float32",)),
    ("reshape", lambda dtype: relay.reshape(x(dtype=dtype), newshape=(8, 32)), ALL),
    ("maximum", lambda _: relay.maximum(x(), x(name="y")), ("float32",)),
    ("add", lambda _: relay.add(x(), x(name="y")), ("float32",)),
    ("qnn.add", qnn_add, BYTES),
)


def kind(function: Function) -> str:
    """The pattern or the operator that a function of the library is."""
    body = function.body
    assert isinstance(body, Call)
    if isinstance(body.op, Function):
        return str(body.op.get_attr("Composite")).removeprefix("arm_compute_lib.")
    assert isinstance(body.op, Op)
    return body.op.name


@pytest.mark.parametrize(("name", "make", "dtypes"), TAKEN, ids=[row[0] for row in TAKEN])
def test_a_row_is_taken_in_one_piece(name: str, make: Callable[[str], Expr], dtypes: tuple[str, ...]) -> None:
    for dtype in dtypes:
        (function,) = library_functions(partitioned(module_of(make(dtype))))
        assert kind(function) == name, dtype


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("axis", range(-4, 4))
def test_concatenate_is_taken_where_it_is_not_disabled(dtype: str, axis: int) -> None:
    made = module_of(relay.concatenate([x(dtype=dtype), x(dtype=dtype, name="y")], axis=axis))
    partitioned(made, 1, 0)
    (function,) = library_functions(partitioned(made, disabled=()))
    assert kind(function) == "concatenate"


def by_channel(value: float, dtype: str = "float32", channels: int = 6) -> Constant:
    return const(np.full(channels, value, dtype))


STAYS: tuple[tuple[str, Callable[[], Expr]], ...] = (
    ("the batch is 2, wanted 1", lambda: conv(x(2, 8, 8, 4))),
    ("data is float16, wanted float32", lambda: conv(x(dtype="float16"), dtype="float16")),
    ("out_dtype is 'float64', wanted 'float32'", lambda: conv(out_dtype="float64")),
    ("the convolution has 2 groups", lambda: conv(shape=(3, 3, 2, 6), groups=2)),
    ("a depthwise kernel of 2x2, wanted 3x3 or 5x5", lambda: depthwise((2, 2))),
    ("a depthwise kernel of 3x5, wanted 3x3 or 5x5", lambda: depthwise((3, 5))),
    ("strides of a depthwise convolution is (1, 2)", lambda: depthwise(strides=(1, 2))),
    ("strides of a depthwise convolution is (3, 3)", lambda: depthwise(strides=(3, 3))),
    ("the batch is 3, wanted 1", lambda: requantized(qnn_conv("uint8", x(3, 8, 8, 4, dtype="uint8")), "uint8")),
    ("out_dtype of requantize is 'int32'", lambda: requantized(qnn_conv("uint8"), "int32")),
    ("the result is int8, wanted uint8", lambda: requantized(qnn_conv("uint8"), "int8")),
    (
        "output_scale",
        lambda: requantized(qnn_conv("int8"), "int8", by_channel(0.3)),
    ),
    (
        "kernel_zero_point is not 0",
        lambda: requantized(qnn_conv("int8", numbers={"kernel": by_channel(0.1)}), "int8"),
    ),
    ("data has 3 dimensions, wanted 2", lambda: relay.nn.dense(x(1, 2, 8), ones(5, 8))),
    ("data is float16, wanted float32", lambda: relay.nn.dense(x(2, 8, dtype="float16"), ones(5, 8, dtype="float16"))),
    ("kernel_scale", lambda: requantized(qnn_dense("int8", kernel=by_channel(0.1, channels=5)), "int8")),
    ("out_dtype of requantize is 'int32'", lambda: requantized(qnn_dense("uint8"), "int32")),
    ("weight is int8, wanted uint8", lambda: requantized(qnn_dense("uint8", "int8"), "uint8")),
    ("dilation is (2, 2), wanted (1, 1)", lambda: pool("max", x(), dilation=(2, 2))),
    ("dilation is (1, 2), wanted (1, 1)", lambda: pool("avg", x(), dilation=(1, 2))),
    ("data is int32, wanted float32 or uint8 or int8", lambda: pool("max", x(dtype="int32"))),
    ("data is float16", lambda: pool("global_max", x(dtype="float16"))),
    ("data is int32, wanted float32", lambda: pool("avg", x(dtype="int32"))),
    ("data is float16, wanted float32", lambda: pool("global_avg", x(dtype="float16"))),
    (
        "what is pooled is int16, wanted int32",
        lambda: relay.cast(pool("avg", relay.cast(x(dtype="uint8"), "int16")), "uint8"),
    ),
    (
        "the result is int16, wanted uint8",
        lambda: relay.cast(pool("avg", relay.cast(x(dtype="uint8"), "int32")), "int16"),
    ),
    ("lhs is float16, wanted float32", lambda: relay.maximum(x(dtype="float16"), x(dtype="float16", name="y"))),
    ("lhs is int32, wanted float32", lambda: relay.add(x(dtype="int32"), x(dtype="int32", name="y"))),
    ("both operands are broadcast", lambda: relay.add(x(4, 1), x(1, 4, name="y"))),
    ("lhs_scale", lambda: qnn_add("uint8", ls=by_channel(0.5, channels=4))),
    ("rhs_scale", lambda: qnn_add("int8", rs=by_channel(0.5, channels=4))),
    ("output_scale", lambda: qnn_add("uint8", os=by_channel(0.5, channels=4))),
)


@pytest.mark.parametrize(("words", "make"), STAYS, ids=[row[0] for row in STAYS])
def test_a_condition_that_is_not_met_is_the_reason(words: str, make: Callable[[], Expr]) -> None:
    after = partition_for_arm_compute_lib(module_of(make()))
    reasons = [row.reason for row in offload_report(after, ["arm_compute_lib"]).rows]
    assert any(words in reason for reason in reasons), reasons


def test_of_another_power_than_the_square_only_the_mean_is_taken() -> None:
    (function,) = library_functions(partitioned(module_of(l2(2.5)), 2))
    assert kind(function) == "nn.avg_pool2d"


NEVER: tuple[Callable[[], Expr], ...] = (
    lambda: relay.clip(x(), 0.0, 6.0),
    lambda: relay.nn.softmax(x()),
    lambda: relay.sigmoid(x()),
    lambda: relay.tanh(x()),
    lambda: relay.mean(x(), axis=(1, 2)),
    lambda: relay.transpose(x(), axes=(0, 3, 1, 2)),
    lambda: relay.nn.batch_matmul(x(1, 4, 8), x(1, 5, 8, name="y")),
    lambda: relay.nn.conv2d_transpose(x(1, 4, 8, 8), ones(4, 6, 3, 3), kernel_size=(3, 3), channels=6),
)


def test_other_operators_stay() -> None:
    for make in NEVER:
        after = partition_for_arm_compute_lib(module_of(make()))
        assert not library_functions(after) and operators(after["main"])
