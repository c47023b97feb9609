"""Functions of topi whose arguments are in another order than the operator's attributes.

In: tensors and attributes as old scripts pass them. Out: TE tensors. Invariant: each function only reorders and names
arguments; the computation is the operator's. `FUNCTIONS` maps the name, with its module before a dot, to the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from armillary import relay, te
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.relay.op import OPS
from armillary.tir import build as T
from armillary.topi.arrangements import FUNCTIONS as ARRANGEMENTS
from armillary.topi.compressed_rows import FUNCTIONS as COMPRESSED_ROWS
from armillary.topi.compressed_rows import is_compressed, sparse_dense
from armillary.topi.convolutions import FUNCTIONS as CONVOLUTIONS
from armillary.topi.expression import of_function
from armillary.topi.gradients import pool_grad
from armillary.topi.indexing import FUNCTIONS as INDEXING
from armillary.topi.keys import FUNCTIONS as KEYS
from armillary.topi.operators import single
from armillary.topi.products import FUNCTIONS as PRODUCTS
from armillary.topi.recurrent import lstm
from armillary.topi.simulated_quantization import FUNCTIONS as SIMULATED
from armillary.topi.slices import FUNCTIONS as SLICES
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor
Pair = int | Sequence[int]


def _per_axis(value: Pair, rank: int) -> tuple[int, ...]:
    result = (value,) if isinstance(value, int) else tuple(get_const_tuple(value))
    return result * rank if len(result) == 1 else result


def _sum(left: Tensor, right: Tensor) -> Tensor:
    result: Tensor = left + right
    return result


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None, **options: object
) -> Tensor:
    """`topi.nn.dense`, and `topi.sparse.dense` of a matrix in compressed rows."""
    _only_defaults("nn.dense", options)
    if is_compressed(data) or is_compressed(weight):
        return sparse_dense(data, weight, bias)
    product = _with_known("nn.dense", [data, weight], {"out_dtype": out_dtype or ""})
    return product if bias is None else single("add", [product, bias])


def _pool(rank: int) -> Callable[..., Tensor]:
    def pool(
        data: Tensor,
        kernel: Pair,
        stride: Pair,
        dilation: Pair,
        padding: Sequence[int],
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = "",
        count_include_pad: bool = True,
    ) -> Tensor:
        named: dict[str, object] = {
            "pool_size": _per_axis(kernel, rank),
            "strides": _per_axis(stride, rank),
            "dilation": _per_axis(dilation, rank),
            "padding": tuple(padding),
            "ceil_mode": ceil_mode,
            "layout": layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank],
        }
        if pool_type == "avg":
            named["count_include_pad"] = count_include_pad
        return _with_known(f"nn.{pool_type}_pool{rank}d", [data], named)

    pool.__doc__ = f"`topi.nn.pool{rank}d`."
    return pool


def _adaptive(rank: int) -> Callable[..., Tensor]:
    def pool(data: Tensor, output_size: Sequence[int], pool_type: str, layout: str = "") -> Tensor:
        named = {"output_size": tuple(output_size), "layout": layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]}
        return _with_known(f"nn.adaptive_{pool_type}_pool{rank}d", [data], named)

    pool.__doc__ = f"`topi.nn.adaptive_pool`, over {rank} axes."
    return pool


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[Tensor]:
    """`topi.nn.batch_norm`: the result, the moving mean and the moving variance."""
    axis, epsilon = 1 if axis is None else axis, 1e-5 if epsilon is None else epsilon
    retained = 1 - (0.1 if momentum is None else momentum)
    mean, var = moving_mean, moving_var
    if training:
        others = tuple(k for k in range(data.ndim) if k != axis)
        mean = single("mean", [data], {"axis": others})
        var = of_function(relay.variance, [data], {"axis": others})
    shape = [1] * data.ndim
    shape[axis] = -1

    def row(vector: Tensor) -> Tensor:
        return single("reshape", [vector], {"newshape": tuple(shape)})

    result: Tensor = (data - row(mean)) / single("sqrt", [row(var) + epsilon])
    result = result if scale is False else result * row(gamma)
    result = result if center is False else result + row(beta)
    if training:
        return [result, moving_mean * retained + mean * (1 - retained), moving_var * retained + var * (1 - retained)]
    return [result, single("copy", [moving_mean]), single("copy", [moving_var])]


def _over_axes(data: Tensor, axes: Pair) -> tuple[tuple[int, ...], Tensor, Tensor]:
    """Axes from the front; the mean and the variance over them, kept."""
    numbers = tuple(a % data.ndim for a in ([axes] if isinstance(axes, int) else axes))
    mean = single("mean", [data], {"axis": numbers, "keepdims": True})
    return numbers, mean, of_function(relay.variance, [data], {"axis": numbers, "keepdims": True})


def _wide(data: Tensor) -> Tensor:
    return single("cast", [data], {"dtype": "float32"})


def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor | None, axis: Pair, epsilon: float = 1e-5) -> Tensor:
    """`topi.nn.layer_norm` over some axes, whose sizes are those of `gamma` and `beta`; float16 in float32."""
    if data.dtype.is_float and data.dtype.bits < 32:
        gamma, beta = _wide(gamma), None if beta is None else _wide(beta)
        return single("cast", [layer_norm(_wide(data), gamma, beta, axis, epsilon)], {"dtype": data.dtype})
    axes, mean, var = _over_axes(data, axis)
    shape = tuple(n if k in axes else 1 for k, n in enumerate(get_const_tuple(data.shape)))
    result: Tensor = (data - mean) / single("sqrt", [var + epsilon])
    result = result * single("reshape", [gamma], {"newshape": shape})
    return result if beta is None else _sum(result, single("reshape", [beta], {"newshape": shape}))


def instance_norm(data: Tensor, gamma: Tensor, beta: Tensor, axis: Pair, epsilon: float = 1e-5) -> Tensor:
    """`topi.nn.instance_norm` over some axes, whose sizes are those of `gamma` and `beta`, or are channels (axis 1)."""
    axes, mean, var = _over_axes(data, axis)
    sizes, weights_shape = get_const_tuple(data.shape), get_const_tuple(gamma.shape)
    if weights_shape == tuple(sizes[a] for a in sorted(axes)):
        return layer_norm(data, gamma, beta, axis, epsilon)
    if len(sizes) < 2 or weights_shape != sizes[1:2]:
        wanted = f"{[sizes[a] for a in sorted(axes)]} (the axes) or {list(sizes[1:2])} (channels)"
        raise TypeMismatch(f"topi.nn.instance_norm: gamma is {list(weights_shape)}, wanted {wanted}")
    shape = tuple(-1 if k == 1 else 1 for k in range(data.ndim))
    result: Tensor = (data - mean) / single("sqrt", [var + epsilon])
    result = result * single("reshape", [gamma], {"newshape": shape})
    return _sum(result, single("reshape", [beta], {"newshape": shape}))


def reorg(data: Tensor, stride: int) -> Tensor:
    """`topi.vision.reorg`: the channels of YOLO's passthrough layer."""
    result: Tensor = of_function(relay.vision.yolo_reorg, [data], {"stride": stride})
    return result


def group_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Tensor:
    """`topi.nn.group_norm`: over `axes` and the channels of each group; float16 in float32."""
    if data.dtype.is_float and data.dtype.bits < 32:
        gamma, beta = (None if vector is None else _wide(vector) for vector in (gamma, beta))
        normal = group_norm(_wide(data), gamma, beta, num_groups, channel_axis, axes, epsilon)
        return single("cast", [normal], {"dtype": data.dtype})
    shape = get_const_tuple(data.shape)
    channel = channel_axis % len(shape)
    split = (*shape[:channel], num_groups, shape[channel] // num_groups, *shape[channel + 1 :])
    others = tuple(a + (a > channel) for a in (a % len(shape) for a in axes) if a != channel)
    grouped = single("reshape", [data], {"newshape": split})
    _, mean, var = _over_axes(grouped, (channel + 1, *others))
    result = single("reshape", [(grouped - mean) / single("sqrt", [var + epsilon])], {"newshape": shape})
    row = tuple(-1 if k == channel else 1 for k in range(len(shape)))
    for vector, name in ((gamma, "multiply"), (beta, "add")):
        if vector is not None:
            result = single(name, [result, single("reshape", [vector], {"newshape": row})])
    return result


def rms_norm(data: Tensor, weight: Tensor, axis: Pair, epsilon: float = 1e-5) -> Tensor:
    """`topi.nn.rms_norm` over some axes."""
    axes = tuple(a % data.ndim for a in ([axis] if isinstance(axis, int) else axis))
    mean = single("mean", [data * data], {"axis": axes, "keepdims": True})
    shape = [n if k in axes else 1 for k, n in enumerate(data.shape)]
    spread = te.compute(shape, lambda *at: weight(*(at[a] for a in axes)), name="weight", tag="injective")
    scaled: Tensor = data * single("rsqrt", [mean + epsilon])
    result: Tensor = scaled * spread
    return result


def lrn(data: Tensor, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2.0) -> Tensor:
    """`topi.nn.lrn`."""
    return single("nn.lrn", [data], {"size": size, "axis": axis, "bias": bias, "alpha": alpha, "beta": beta})


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """`topi.nn.global_pool`."""
    return _with_known(f"nn.global_{pool_type}_pool2d", [data], {"layout": layout})


def leaky_relu(data: Tensor, alpha: float) -> Tensor:
    """`topi.nn.leaky_relu`."""
    return single("nn.leaky_relu", [data], {"alpha": alpha})


def flatten(data: Tensor) -> Tensor:
    """`topi.nn.flatten`: all axes behind the first as one."""
    return single("nn.batch_flatten", [data])


def scale_shift_nchw(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`topi.nn.scale_shift_nchw`."""

    def element(b: te.Expr, c: te.Expr, h: te.Expr, w: te.Expr) -> te.Expr:
        return data(b, c, h, w) * scale(c) + shift(c)

    return te.compute(data.shape, element, name="scale_shift", tag="broadcast")


def pad(
    data: Tensor,
    pad_before: Sequence[te.Index],
    pad_after: Sequence[te.Index] | None = None,
    pad_value: te.ExprLike = 0.0,
    name: str = "pad",
    **options: object,
) -> Tensor:
    """`topi.nn.pad`: elements before and after each axis."""
    _only_defaults("nn.pad", {k: v for k, v in options.items() if k != "attrs"})
    after = pad_before if pad_after is None else pad_after
    shape = [extent + low + high for extent, low, high in zip(data.shape, pad_before, after, strict=True)]
    value = T.cast(pad_value, str(data.dtype))

    def element(*axes: te.Expr) -> te.Expr:
        inside, where = [], []
        for axis, low, extent in zip(axes, pad_before, data.shape, strict=True):
            where.append(axis - low)
            inside += [axis >= low, axis < extent + low]
        return te.if_then_else(T.all_of(*inside), data(*where), value)

    return te.compute(tuple(shape), element, name=name, tag="injective,pad")


def scale_shift_nhwc(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`topi.nn.scale_shift_nhwc`."""

    def element(b: te.Expr, h: te.Expr, w: te.Expr, c: te.Expr) -> te.Expr:
        return data(b, h, w, c) * scale(c) + shift(c)

    return te.compute(data.shape, element, name="scale_shift", tag="broadcast")


def scale_shift_nchwc(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`topi.nn.scale_shift_nchwc`: in blocks of channels."""

    def element(b: te.Expr, c: te.Expr, h: te.Expr, w: te.Expr, lane: te.Expr) -> te.Expr:
        return data(b, c, h, w, lane) * scale(c, lane) + shift(c, lane)

    return te.compute(data.shape, element, name="scale_shift", tag="broadcast")


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Tensor:
    """`topi.matmul`."""
    return _with_known("nn.matmul", [a, b], {"transpose_a": transp_a, "transpose_b": transp_b})


def take(a: Tensor, indices: Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip") -> Tensor:
    """`topi.take`."""
    return single("take", [a, indices], {"axis": axis, "batch_dims": batch_dims, "mode": mode})


def full(shape: Sequence[te.ExprLike], dtype: str, fill_value: te.ExprLike) -> Tensor:
    """`topi.full`."""
    return te.compute(tuple(shape), lambda *_: T.const(fill_value, dtype), name="full", tag="elemwise")


def full_like(x: Tensor, fill_value: te.ExprLike) -> Tensor:
    """`topi.full_like`."""
    return full(x.shape, str(x.dtype), fill_value)


def zeros_like(x: Tensor) -> Tensor:
    """`topi.zeros_like`."""
    return full_like(x, 0)


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """`topi.elemwise_sum`: the sum of tensors of one shape."""
    if not xs:
        raise TypeMismatch("topi.elemwise_sum needs at least one tensor")
    total = xs[0] if len(xs) > 1 else single("copy", [xs[0]])
    for x in xs[1:]:
        total = single("add", [total, x])
    return total


def _reduction(operator: str) -> Callable[..., Tensor]:
    def reduce(data: Tensor, axis: Pair | None = None, keepdims: bool = False, **options: object) -> Tensor:
        return single(operator, [data], {"axis": axis, "keepdims": keepdims, **options})

    reduce.__name__ = operator
    reduce.__doc__ = f"`topi.{operator}`: over `axis` (all, if None)."
    return reduce


def _only_defaults(name: str, options: Mapping[str, object]) -> None:
    wrong = sorted(key for key, value in options.items() if value not in (None, False, ""))
    if wrong:
        raise UnsupportedError(f"topi.{name}: the option {wrong[0]!r} is not supported here")


def _with_known(operator: str, tensors: Sequence[Tensor], named: Mapping[str, object]) -> Tensor:
    """Attributes that the operator does not have are left out where they are empty."""
    op = OPS[operator]
    fields = getattr(op.attrs_class, "__dataclass_fields__", {})
    return single(op, tensors, {k: v for k, v in named.items() if k in fields})


FUNCTIONS: dict[str, Callable[..., object]] = {
    **ARRANGEMENTS,
    **COMPRESSED_ROWS,
    **CONVOLUTIONS,
    **INDEXING,
    **KEYS,
    **PRODUCTS,
    **SIMULATED,
    **SLICES,
    "elemwise_sum": elemwise_sum,
    "full": full,
    "full_like": full_like,
    "matmul": matmul,
    "take": take,
    "zeros_like": zeros_like,
    "nn.dense": dense,
    "nn.flatten": flatten,
    "nn.global_pool": global_pool,
    "nn.leaky_relu": leaky_relu,
    "nn.lstm": lstm,
    "nn.pad": pad,
    "nn.pool_grad": pool_grad,
    "nn.scale_shift_nchw": scale_shift_nchw,
    "nn.scale_shift_nhwc": scale_shift_nhwc,
    "nn.scale_shift_nchwc": scale_shift_nchwc,
    "nn.batch_norm": batch_norm,
    "nn.layer_norm": layer_norm,
    "nn.instance_norm": instance_norm,
    "nn.group_norm": group_norm,
    "nn.rms_norm": rms_norm,
    "vision.reorg": reorg,
    "nn.lrn": lrn,
    **{f"nn.pool{rank}d": _pool(rank) for rank in (1, 2, 3)},
    **{f"nn.adaptive_pool{suffix}": _adaptive(rank) for suffix, rank in (("", 2), ("1d", 1), ("3d", 3))},
    **{name: _reduction(name) for name in ("sum", "max", "min", "prod", "all", "any", "argmax", "argmin")},
}
