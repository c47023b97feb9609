"""Functions of Relay-era scripts that are several operators: losses, gradients of layers, shapes counted from the end.

In: what scripts pass. Out: calls of operators, so each is compiled, fused and differentiated like any expression.
Invariant: no arithmetic on data here. `misc/user.py` puts them into its table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.ops.gradient.networks import avg_pool_back, conv2d_weight, max_pool_back
from armillary.ops.gradient.rules import number, op, tensor
from armillary.ops.misc.fourier import dft, stft
from armillary.ops.vision.all_class_nms import all_class_suppressed
from armillary.ops.vision.non_max_suppression import suppressed
from armillary.relay.expr import Expr, TupleWrapper, const


def same(data: Expr) -> Expr:
    """The expression itself: marks for what is recomputed, or fused, decide nothing about its value."""
    return data


@boundary("nn.cross_entropy", arguments=True)
def cross_entropy(predictions: Expr, targets: Expr) -> Expr:
    """-sum(targets * log(predictions)) / batch."""
    return _loss(op("log", predictions), targets)


@boundary("nn.cross_entropy_with_logits", arguments=True)
def cross_entropy_with_logits(predictions: Expr, targets: Expr) -> Expr:
    """-sum(targets * predictions) / batch."""
    return _loss(predictions, targets)


def _loss(logarithms: Expr, targets: Expr) -> Expr:
    have, want = tensor(logarithms), tensor(targets)
    if have != want or have.ndim != 2:
        raise TypeMismatch(f"cross_entropy: predictions are {have} and targets {want}, wanted two equal matrices")
    return op("sum", logarithms * targets) * number(-1.0 / have.static[0], logarithms)


@boundary("nn.nll_loss", arguments=True)
def nll_loss(
    predictions: Expr, targets: Expr, weights: Expr, reduction: str = "mean", ignore_index: int = -100
) -> Expr:
    """The negative weighted log-likelihood of each target class; `predictions` is (N, C, …) of
    log-probabilities, or (C,) with one target.
    """
    if reduction not in ("none", "mean", "sum"):
        raise TypeMismatch(f"nn.nll_loss: reduction {reduction!r}, wanted 'none', 'mean' or 'sum'")
    shape, dtype = tensor(predictions).static, str(tensor(targets).dtype)
    counted = op("not_equal", targets, const(ignore_index, dtype))
    axis = min(1, len(shape) - 1)
    along = tuple(n if k == axis else 1 for k, n in enumerate(shape))
    classes = op("reshape", op("arange", 0, shape[axis], 1, dtype=dtype), newshape=along)
    chosen = op(
        "logical_and",
        op("equal", op("expand_dims", targets, axis=axis), classes),
        op("expand_dims", counted, axis=axis),
    )
    hot = op("cast", chosen, dtype=str(tensor(predictions).dtype))
    weight = op("sum", hot * op("reshape", weights, newshape=along), axis=axis)
    result = op("negative", op("sum", hot * predictions, axis=axis)) * weight
    if reduction == "none":
        return result
    return op("sum", result) if reduction == "sum" else op("sum", result) / op("sum", weight)


@boundary("reverse_reshape", arguments=True)
def reverse_reshape(data: Expr, newshape: Sequence[int]) -> Expr:
    """`reshape` with its special sizes counted from the last axis on: 0 keeps the axis at that place from the end."""
    shape = tensor(data).static
    wanted = [int(size) for size in newshape]
    if any(size < -3 for size in wanted):
        raise TypeMismatch(f"reverse_reshape: newshape {tuple(wanted)}, wanted sizes, 0, -1, -2 and -3")
    left, sizes = list(shape), list[int]()  # what is not used yet, its end first; the new sizes, the last first
    for size in reversed(wanted):
        used = {0: 1, -1: 1, -2: len(left), -3: 2}.get(size, 1)
        if used > len(left) and size in (0, -3):
            raise TypeMismatch(f"reverse_reshape: {size} of {tuple(wanted)} finds no axis: data has {shape}")
        taken = [left.pop() for _ in range(min(used, len(left)))]
        sizes += {0: taken, -2: taken, -3: [math.prod(taken)]}.get(size, [size])
    sizes.reverse()
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = math.prod(shape) // known if known else 0
    return op("reshape", data, newshape=tuple(sizes))


@boundary("nn.max_pool2d_grad", arguments=True)
def max_pool2d_grad(
    out_grad: Expr,
    data: Expr,
    pool_size: int | Sequence[int] = (1, 1),
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Expr:
    """The gradient of a maximum pooling's data."""
    del out_layout, ceil_mode  # out_grad has the sizes that they gave
    return max_pool_back(out_grad, data, _pooling(pool_size, strides, padding, layout))


@boundary("nn.avg_pool2d_grad", arguments=True)
def avg_pool2d_grad(
    out_grad: Expr,
    data: Expr,
    pool_size: int | Sequence[int] = (1, 1),
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Expr:
    """The gradient of an average pooling's data."""
    del out_layout, ceil_mode
    return avg_pool_back(out_grad, data, _pooling(pool_size, strides, padding, layout, count_include_pad))


def _pair(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _pooling(
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    layout: str,
    include: bool = False,
) -> SimpleNamespace:
    pads = (padding,) if isinstance(padding, int) else tuple(padding)
    return SimpleNamespace(
        pool_size=_pair(pool_size),
        strides=_pair(strides),
        padding=pads,
        layout=layout,
        dilation=(1, 1),
        count_include_pad=include,
    )


@boundary("nn.conv2d_backward_weight", arguments=True)
def conv2d_backward_weight(
    grad: Expr,
    data: Expr,
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: int | Sequence[int] | None = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> Expr:
    """The gradient of a convolution's weight, from the data and the gradient of the result."""
    del channels  # the gradient has them
    layouts = (grad_layout, data_layout, kernel_layout)
    if kernel_size is None or layouts != ("NCHW", "NCHW", "OIHW"):
        message = f"nn.conv2d_backward_weight: kernel_size {kernel_size}, layouts {', '.join(layouts)}"
        raise TypeMismatch(message, hint="give kernel_size; the layouts are NCHW, NCHW and OIHW")
    result = conv2d_weight(grad, data, _pair(kernel_size), strides, padding, dilation, groups)
    return op("cast", result, dtype=out_dtype) if out_dtype and out_dtype != str(tensor(result).dtype) else result


# --- quantised --------------------------------------------------------------------------------------------------------

SQNN_DTYPE_TO_CODE = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}  # what scripts write for a type that is an input
Simulated = Callable[[Expr, Expr, Expr, str], Expr]


@boundary("qnn.leaky_relu", arguments=True)
def quantized_leaky_relu(
    x: Expr,
    alpha: float,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
) -> Expr:
    """nn.leaky_relu of affine integers, in the argument order of scripts."""
    return op("qnn.leaky_relu", x, input_scale, input_zero_point, output_scale, output_zero_point, alpha=alpha)


@boundary("qnn.simulated_quantize", arguments=True)
def simulated_quantize(
    data: Expr, output_scale: Expr, output_zero_point: Expr, axis: int = -1, out_dtype: str | Expr = "int8"
) -> Expr:
    """qnn.quantize with its result in float32. The type may be an input: a number of SQNN_DTYPE_TO_CODE."""
    return _simulated(data, (output_scale, output_zero_point), axis, out_dtype, _steps)


@boundary("qnn.simulated_dequantize", arguments=True)
def simulated_dequantize(
    data: Expr, input_scale: Expr, input_zero_point: Expr, axis: int = -1, in_dtype: str | Expr = "int8"
) -> Expr:
    """qnn.dequantize of integers in float32. The type may be an input: a number of SQNN_DTYPE_TO_CODE."""
    return _simulated(data, (input_scale, input_zero_point), axis, in_dtype, _values)


def _simulated(data: Expr, parameters: tuple[Expr, Expr], axis: int, dtype: str | Expr, formula: Simulated) -> Expr:
    if isinstance(dtype, str) and dtype not in SQNN_DTYPE_TO_CODE:
        raise TypeMismatch(f"simulated quantization to {dtype!r}", hint=f"one of {', '.join(SQNN_DTYPE_TO_CODE)}")
    scale, zero = (_along_axis(p, tensor(data).ndim, axis) for p in parameters)
    zero = op("cast", zero, dtype="float32")
    if isinstance(dtype, str):
        return data if dtype == "disable" else formula(data, scale, zero, dtype)
    result = data
    for name, code in SQNN_DTYPE_TO_CODE.items():
        if name != "disable":
            is_asked = op("equal", dtype, const(code, str(tensor(dtype).dtype)))
            result = op("where", is_asked, formula(data, scale, zero, name), result)
    return result


def _steps(data: Expr, scale: Expr, zero: Expr, dtype: str) -> Expr:
    kind = DType(dtype)
    steps = op("add", op("nearbyint", op("divide", data, scale)), zero)
    return op("clip", steps, a_min=float(kind.min_value), a_max=float(kind.max_value))


def _values(data: Expr, scale: Expr, zero: Expr, dtype: str) -> Expr:
    del dtype  # the integers are what they are
    return op("multiply", op("subtract", data, zero), scale)


def _along_axis(parameter: Expr, ndim: int, axis: int) -> Expr:
    """A number as it is; one for each index of an axis where that axis lies."""
    if tensor(parameter).ndim != 1:
        return parameter
    if not -ndim <= axis < ndim:
        raise TypeMismatch(f"simulated quantization: axis {axis} is out of range for {ndim} dimensions")
    shape = [1] * ndim
    shape[axis] = -1
    return op("reshape", parameter, newshape=tuple(shape))


FUNCTIONS: dict[str, Callable[..., Expr | TupleWrapper]] = {
    "dft": dft,
    "stft": stft,
    "annotation.checkpoint": same,
    "nn.avg_pool2d_grad": avg_pool2d_grad,
    "nn.conv2d_backward_weight": conv2d_backward_weight,
    "nn.cross_entropy": cross_entropy,
    "nn.cross_entropy_with_logits": cross_entropy_with_logits,
    "nn.max_pool2d_grad": max_pool2d_grad,
    "nn.nll_loss": nll_loss,
    "qnn.leaky_relu": quantized_leaky_relu,
    "qnn.simulated_dequantize": simulated_dequantize,
    "qnn.simulated_quantize": simulated_quantize,
    "reverse_reshape": reverse_reshape,
    "vision.all_class_non_max_suppression": all_class_suppressed,
    "vision.non_max_suppression": suppressed,
}
