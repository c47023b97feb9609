"""ATen's normalisations: batch, layer, group, instance, RMS, local response.

In: data, perhaps weights and statistics. Out: the nn.* operator where one fits, else its arithmetic. Invariant: batch
normalisation uses stored statistics, or those of the batch where there are none; none are changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import cast, dtype_of, op, rank_of, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, TupleGetItem, const


def _filled(size: int, value: float, like: Expr) -> Expr:
    return cast(const(np.full((size,), value, np.float32)), dtype_of(like))


def _wide(x: Expr) -> Expr:
    """Statistics of small floats are computed in float32."""
    return cast(x, "float32") if dtype_of(x) in ("float16", "bfloat16") else x


def _moments(x: Expr, axes: tuple[int, ...], eps: float) -> tuple[Expr, Expr, Expr]:
    """The data less its mean, the mean, and one over the deviation."""
    mean = op("mean", x, axis=axes, keepdims=True)
    centred = op("subtract", x, mean)
    variance = op("mean", op("multiply", centred, centred), axis=axes, keepdims=True)
    return centred, mean, op("rsqrt", op("add", variance, scalar(eps, dtype_of(x))))


def _along(x: Expr, rank: int, axis: int = 1) -> Expr:
    """A vector as a tensor of `rank` axes that lies along one of them."""
    return reshape_to(x, tuple(shape_of(x)[0] if k == axis else 1 for k in range(rank)))


def _scaled(x: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    x = x if weight is None else op("multiply", x, cast(weight, dtype_of(x)))
    return x if bias is None else op("add", x, cast(bias, dtype_of(x)))


def _stored(x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, eps: float) -> Expr:
    channels = shape_of(x)[1]
    parts = [_filled(channels, 1, x) if weight is None else weight, _filled(channels, 0, x) if bias is None else bias]
    parts = [cast(p, dtype_of(x)) for p in (*parts, mean, variance)]
    return TupleGetItem(op("nn.batch_norm", x, *parts, axis=1, epsilon=eps), 0)


def _of_batch(x: Expr, weight: Expr | None, bias: Expr | None, eps: float) -> list[Expr]:
    """By the statistics of the batch, which follow."""
    rank = rank_of(x)
    axes = (0, *range(2, rank))
    centred, mean, inverse = _moments(_wide(x), axes, eps)
    along = [None if p is None else _along(p, rank) for p in (weight, bias)]
    result = cast(_scaled(op("multiply", centred, inverse), *along), dtype_of(x))
    return [result, reshape_to(mean, (-1,)), reshape_to(inverse, (-1,))]


def _nothing(x: Expr) -> Expr:
    return op("zeros", shape=(0,), dtype=dtype_of(x))


@aten("_native_batch_norm_legit_no_training")
def batch_norm_stored(
    call: AtenCall, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, var: Expr, _: float, eps: float
) -> list[Expr]:
    return [_stored(x, weight, bias, mean, var, eps), _nothing(x), _nothing(x)]


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    call: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    var: Expr,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Expr]:
    """With the statistics that follow, as further results."""
    if not training:
        return [_stored(x, weight, bias, mean, var, eps), _nothing(x), _nothing(x), mean, var]
    result, average, inverse = _of_batch(x, weight, bias, eps)
    axes, count = (0, *range(2, rank_of(x))), math.prod(shape_of(x)) // shape_of(x)[1]
    centred, _, _ = _moments(_wide(x), axes, eps)
    total = op("sum", op("multiply", centred, centred), axis=axes)
    fresh = op("divide", total, scalar(max(1, count - 1), dtype_of(total)))
    later = [_mixed(old, new, momentum) for old, new in ((mean, average), (var, fresh))]
    return [result, average, inverse, *later]


def _mixed(old: Expr, new: Expr, momentum: float) -> Expr:
    """A running statistic."""
    retained, added = scalar(1 - momentum, dtype_of(old)), scalar(momentum, dtype_of(old))
    return op("add", op("multiply", old, retained), op("multiply", cast(new, dtype_of(old)), added))


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_without(
    call: AtenCall, x: Expr, weight: Expr | None, bias: Expr | None, training: bool, _: float, eps: float
) -> list[Expr]:
    return _of_batch(x, weight, bias, eps)


@aten("batch_norm", "native_batch_norm")
def batch_norm(
    call: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    var: Expr | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: object,
) -> Expr | list[Expr]:
    is_native = "native" in call.name
    if training and mean is not None:
        call.refuse("it is in training mode and changes its statistics", "call model.eval() before the export")
    if training or mean is None or var is None:
        of_batch = _of_batch(x, weight, bias, eps)
        return of_batch if is_native else of_batch[0]
    stored = _stored(x, weight, bias, mean, var, eps)
    return [stored, _nothing(x), _nothing(x)] if is_native else stored


@aten("instance_norm")
def instance_norm(
    call: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    var: Expr | None,
    of_input: bool,
    momentum: float,
    eps: float,
    *_: object,
) -> Expr:
    if not of_input and mean is not None and var is not None:
        return _stored(x, weight, bias, mean, var, eps)
    channels = shape_of(x)[1]
    gamma = _filled(channels, 1, x) if weight is None else weight
    beta = _filled(channels, 0, x) if bias is None else bias
    return op("nn.instance_norm", x, gamma, beta, axis=1, epsilon=eps)


def _layer_norm(x: Expr, count: int, weight: Expr | None, bias: Expr | None, eps: float) -> list[Expr]:
    """Over the last `count` axes; mean and inverse deviation follow."""
    axes = tuple(range(rank_of(x) - count, rank_of(x)))
    centred, mean, inverse = _moments(_wide(x), axes, eps)
    if count == 1 and shape_of(x)[-1]:
        size = shape_of(x)[-1]
        gamma = _filled(size, 1, x) if weight is None else cast(weight, dtype_of(x))
        beta = _filled(size, 0, x) if bias is None else cast(bias, dtype_of(x))
        return [op("nn.layer_norm", x, gamma, beta, axis=-1, epsilon=eps), mean, inverse]
    return [cast(_scaled(op("multiply", centred, inverse), weight, bias), dtype_of(x)), mean, inverse]


@aten("native_layer_norm")
def native_layer_norm(
    call: AtenCall, x: Expr, shape: Sequence[int], weight: Expr | None, bias: Expr | None, eps: float
) -> list[Expr]:
    return _layer_norm(x, len(shape), weight, bias, eps)


@aten("layer_norm")
def layer_norm(
    call: AtenCall, x: Expr, shape: Sequence[int], weight: Expr | None, bias: Expr | None, eps: float, *_: object
) -> Expr:
    return _layer_norm(x, len(shape), weight, bias, eps)[0]


@aten("rms_norm")
def rms_norm(call: AtenCall, x: Expr, shape: Sequence[int], weight: Expr | None, eps: float | None) -> Expr:
    epsilon = np.finfo(dtype_of(_wide(x))).eps if eps is None else eps
    if len(shape) == 1:
        gamma = _filled(shape[0], 1, x) if weight is None else cast(weight, dtype_of(x))
        return op("nn.rms_norm", x, gamma, axis=-1, epsilon=float(epsilon))
    axes = tuple(range(rank_of(x) - len(shape), rank_of(x)))
    wide = _wide(x)
    mean = op("mean", op("multiply", wide, wide), axis=axes, keepdims=True)
    inverse = op("rsqrt", op("add", mean, scalar(float(epsilon), dtype_of(wide))))
    return cast(_scaled(op("multiply", wide, inverse), weight, None), dtype_of(x))


def _group_norm(x: Expr, weight: Expr | None, bias: Expr | None, groups: int, eps: float) -> Expr:
    channels = shape_of(x)[1]
    gamma = _filled(channels, 1, x) if weight is None else weight
    beta = _filled(channels, 0, x) if bias is None else bias
    return op("nn.group_norm", x, gamma, beta, num_groups=groups, axis=1, epsilon=eps)


@aten("group_norm")
def group_norm(
    call: AtenCall, x: Expr, groups: int, weight: Expr | None, bias: Expr | None, eps: float, *_: object
) -> Expr:
    return _group_norm(x, weight, bias, groups, eps)


@aten("native_group_norm")
def native_group_norm(
    call: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    batch: int,
    channels: int,
    elements: int,
    groups: int,
    eps: float,
) -> list[Expr]:
    rows = _wide(reshape_to(x, (batch, groups, channels // groups * elements)))
    _, mean, inverse = _moments(rows, (2,), eps)
    statistics = [reshape_to(v, (batch, groups)) for v in (mean, inverse)]
    return [_group_norm(x, weight, bias, groups, eps), *statistics]


@aten("local_response_norm")
def local_response_norm(call: AtenCall, x: Expr, size: int, alpha: float, beta: float, k: float) -> Expr:
    return op("nn.lrn", x, size=size, axis=1, bias=k, alpha=alpha, beta=beta)
