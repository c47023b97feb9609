"""What networks look like: pieces of graphs that passes and schedules have rules for.

In: a `Draw`. Out: a value for its pool, or Reject. Each motif is one function; `MOTIFS` weighs them, `generate` draws a
whole graph. Invariant: as in graph_draw.py. To add a motif, write a function and add a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from graph_draw import Draw, Drawn, drawable, finish, rejected
from graph_values import Reject, Value, bundle, checked, field

from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Var

Motif = Callable[[Draw], Value]
UNARY = (
    "nn.relu",
    "sigmoid",
    "tanh",
    "exp",
    "abs",
    "negative",
    "sqrt",
    "erf",
    "nn.leaky_relu",
    "copy",
    "floor",
    "sign",
    "nn.softmax",
    "round",
    "cos",
    "log",
    "rsqrt",
    "nn.dropout",
    "nn.log_softmax",
)
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "add", "multiply", "power", "floor_mod", "mod")
COMPARE = ("less", "greater", "equal", "not_equal", "less_equal", "greater_equal")
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all", "logsumexp", "sum", "mean")


# --- convolutions ---------------------------------------------------------------------------------------------------


def _image(d: Draw, ndim: int = 4) -> Value:
    """A tensor to convolve: from the pool if there is one."""
    value = d.pick(ndim, None, "float")
    if min(value.base.shape) >= 1 and value.base.size >= 8:
        return value
    return _new_image(d, ndim)


def _new_image(d: Draw, ndim: int = 4) -> Value:
    channels = d.random.choice((1, 2, 3, 4, 8, 8, 12, 16, 16, 24, 32, 20))
    sides = [d.random.choice((1, 3, 5, 6, 7, 8, 10, 14)) for _ in range(ndim - 2)]
    while channels * int(np.prod(sides)) > 2400:
        sides = [max(1, s // 2) for s in sides]
    shape = (d.random.choice((1, 1, 1, 2)), channels, *sides)
    if d.random.random() < 0.15:
        shape = (shape[0], *sides, channels)
    return d.leaf(shape, d.base_dtype, -1, 1, 0.05)


def convolution(d: Draw) -> Value:
    """nn.conv2d with every attribute drawn."""
    x = _image(d) if d.random.random() < 0.7 else _new_image(d)
    return _convolve(d, x)


def _convolve(d: Draw, x: Value, kernel: tuple[int, int] | None = None, same: bool = False, out: int = 0) -> Value:
    r = d.random
    layout = r.choice(("NCHW",) * 5 + ("NHWC",))
    channels = x.base.shape[layout.index("C")]
    groups = r.choice([1, 1, 1, 1, 1, channels, channels, *[g for g in (2, 3, 4) if channels % g == 0]])
    kernel = kernel or (r.choice((1, 1, 3, 3, 3, 5, 2)), r.choice((1, 1, 3, 3, 3, 5, 2)))
    if r.random() < 0.6:
        kernel = (kernel[0], kernel[0])
    filters = (
        out or groups * r.choice((1, 1, 2, 3, 4, 8, 8, 16)) if groups > 1 else out or r.choice((1, 3, 5, 8, 16, 24, 32))
    )
    if filters > 64:
        filters = groups
    sides = {"O": filters, "I": channels // groups, "H": kernel[0], "W": kernel[1]}
    weights = "OIHW" if layout == "NCHW" else r.choice(("HWIO", "HWIO", "OHWI", "HWOI" if groups > 1 else "HWIO"))
    padding: Any = r.choice(((0, 0), (1, 1), (1, 1), (kernel[0] // 2, kernel[1] // 2), (0, 1, 2, 1), (2, 0)))
    strides = (1, 1) if same or r.random() < 0.6 else r.choice(((2, 2), (1, 2), (3, 1)))
    dilation = (1, 1) if same or r.random() < 0.85 else r.choice(((2, 2), (1, 2)))
    if same:
        padding = (kernel[0] // 2, kernel[1] // 2)
    scale = (3.0 / max(1, channels // groups * kernel[0] * kernel[1])) ** 0.5
    w = d.leaf([sides[a] for a in weights], x.base.dtype.name, -scale, scale, 0.9)
    return d.call(
        "nn.conv2d",
        x,
        w,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        channels=r.choice((filters, filters, None)),
        kernel_size=kernel if r.random() < 0.8 else None,
        data_layout=layout,
        kernel_layout=weights,
    )


def block(d: Draw) -> Value:
    """Convolution, bias or normalisation, activation, perhaps a residual: what layout and fusion passes look for."""
    x = _image(d) if d.random.random() < 0.6 else _new_image(d)
    y = _convolve(d, x, same=True, out=x.base.shape[1] if d.random.random() < 0.5 else 0)
    for step in d.random.sample((_bias, _norm, _activation, _residual_of(x), _scaled), d.random.randint(1, 4)):
        y = step(d, y)
    return y


def _channels(d: Draw, y: Value, low: float = -1.0, high: float = 1.0, known: float = 0.85) -> Value:
    return d.leaf((y.base.shape[1],), y.base.dtype.name, low, high, known)


def _bias(d: Draw, y: Value) -> Value:
    b = _channels(d, y)
    if d.random.random() < 0.5:
        return d.call("nn.bias_add", y, b, axis=1)
    shape = d.random.choice(((-1, *(1,) * (y.base.ndim - 2)), (1, -1, *(1,) * (y.base.ndim - 2))))
    return d.call("add", *d.random.sample([y, d.call("reshape", b, newshape=shape)], 2))


def _scaled(d: Draw, y: Value) -> Value:
    s = d.leaf((y.base.shape[1], *(1,) * (y.base.ndim - 2)), y.base.dtype.name, 0.5, 2.0, 0.9)
    return d.call(d.random.choice(("multiply", "multiply", "divide")), y, s)


def _norm(d: Draw, y: Value) -> Value:
    parts = [_channels(d, y, *r) for r in ((0.5, 1.5), (-1, 1), (-0.5, 0.5), (0.5, 2.0))]
    options = {
        "epsilon": d.random.choice((1e-5, 1e-3)),
        "center": d.random.random() < 0.9,
        "scale": d.random.random() < 0.9,
    }
    return field(d.call("nn.batch_norm", y, *parts, axis=1, **options), 0)


def _activation(d: Draw, y: Value) -> Value:
    name = d.random.choice(("nn.relu", "nn.relu", "sigmoid", "tanh", "clip", "nn.leaky_relu", "nn.prelu"))
    if name == "clip":
        return d.call("clip", y, a_min=0.0, a_max=1.0)
    if name == "nn.prelu":
        return d.call("nn.prelu", y, _channels(d, y, 0.0, 0.5), axis=1)
    return d.call(name, y)


def _residual_of(x: Value) -> Callable[[Draw, Value], Value]:
    def residual(d: Draw, y: Value) -> Value:
        other = x if x.base.shape == y.base.shape else _convolve(d, x, (1, 1), same=True, out=y.base.shape[1])
        return d.call("add", y, other)

    return residual


def other_convolutions(d: Draw) -> Value:
    """One and three dimensions, and transposed ones."""
    r = d.random
    name = r.choice(
        (
            "nn.conv1d",
            "nn.conv3d",
            "nn.conv2d_transpose",
            "nn.conv2d_transpose",
            "nn.conv1d_transpose",
            "nn.conv3d_transpose",
        )
    )
    n = 1 if "1d" in name else 3 if "3d" in name else 2
    x = _image(d, n + 2) if r.random() < 0.5 else _new_image(d, n + 2)
    channels = x.base.shape[1]
    groups = r.choice([1, 1, 1, *[g for g in (2, channels) if channels % g == 0]])
    kernel = tuple(r.choice((1, 2, 3)) for _ in range(n))
    per = r.choice((1, 2, 3, 8))
    transposed = "transpose" in name
    shape = (channels, per, *kernel) if transposed else (groups * per, channels // groups, *kernel)
    w = d.leaf(shape, x.base.dtype.name, -0.5, 0.5, 0.9)
    attrs: dict[str, Any] = {
        "strides": tuple(r.choice((1, 1, 2, 3)) for _ in range(n)),
        "padding": tuple(r.choice((0, 0, 1)) for _ in range(n)),
        "groups": groups,
        "channels": groups * per,
        "dilation": tuple(r.choice((1, 1, 2)) for _ in range(n)),
        "kernel_size": kernel,
    }
    if transposed:
        attrs["output_padding"] = tuple(r.choice((0, 0, 1)) for _ in range(n))
    y = d.call(name, x, w, **attrs)
    return _activation(d, y) if r.random() < 0.4 else y


def parallel_branches(d: Draw) -> Value:
    """Convolutions or dense layers that share their input, joined again."""
    r = d.random
    count = r.choice((2, 2, 3))
    if r.random() < 0.5:
        x = _new_image(d) if r.random() < 0.5 else _image(d)
        kernel = r.choice(((1, 1), (3, 3)))
        parts = [_convolve(d, x, kernel, same=True) for _ in range(count)]
        if r.random() < 0.5:
            parts = [_bias(d, p) for p in parts]
        return d.call("concatenate", bundle(parts), axis=1)
    x = d.pick(2, None, "float")
    units = r.choice((3, 8, 16))
    weights = [d.leaf((units, x.base.shape[-1]), x.base.dtype.name, -1, 1, 0.9) for _ in range(count)]
    parts = [d.call("nn.dense", x, w) for w in weights]
    if r.random() < 0.5:
        parts = [d.call("add", p, d.leaf((units,), x.base.dtype.name)) for p in parts]
    return d.call("concatenate", bundle(parts), axis=1) if r.random() < 0.6 else d.call("add", *parts[:2])


def pooling(d: Draw) -> Value:
    """Pooling windows of every kind."""
    r = d.random
    n = r.choice((1, 2, 2, 2, 3))
    x = _image(d, n + 2)
    if r.random() < 0.3:
        return d.call(r.choice((f"nn.global_avg_pool{n}d", f"nn.global_max_pool{n}d")), x)
    if r.random() < 0.2:
        return d.call(
            f"nn.adaptive_{r.choice(('avg', 'max'))}_pool{n}d",
            x,
            output_size=tuple(r.choice((1, 2, 3)) for _ in range(n)),
        )
    pool = tuple(r.choice((1, 2, 2, 3)) for _ in range(n))
    attrs: dict[str, Any] = {
        "pool_size": pool,
        "strides": tuple(r.choice((1, 2, 2, 3)) for _ in range(n)),
        "ceil_mode": r.random() < 0.3,
        "padding": tuple(r.randint(0, max(0, p // 2)) for p in pool) * r.choice((1, 2)),
        "dilation": tuple(r.choice((1, 1, 1, 2)) for _ in range(n)),
    }
    if r.random() < 0.5:
        return d.call(f"nn.avg_pool{n}d", x, count_include_pad=r.random() < 0.5, **attrs)
    return d.call(f"nn.max_pool{n}d", x, **attrs)


# --- products, reductions, elementwise ------------------------------------------------------------------------------


def product(d: Draw) -> Value:
    """dense, matmul or batch_matmul with all their transpositions."""
    r = d.random
    if r.random() < 0.6:
        x = d.pick(2, None, "float" if r.random() < 0.85 else "int")
        k, n = x.base.shape[-1], r.choice((1, 3, 8, 10, 16, 33))
        if r.random() < 0.6:
            return d.call("nn.dense", x, d.leaf((n, k), x.base.dtype.name, -1, 1, 0.7))
        ta, tb = r.random() < 0.3, r.random() < 0.5
        k = x.base.shape[0] if ta else k
        w = d.leaf((n, k) if tb else (k, n), x.base.dtype.name, -1, 1, 0.7)
        return d.call("nn.matmul", x, w, transpose_a=ta, transpose_b=tb)
    x = d.pick(3, None, "float")
    b, n = r.choice((x.base.shape[0], x.base.shape[0], 1)), r.choice((1, 4, 9, 16))
    ta, tb = r.random() < 0.2, r.random() < 0.6
    k = x.base.shape[1] if ta else x.base.shape[2]
    w = d.leaf((b, n, k) if tb else (b, k, n), x.base.dtype.name, -1, 1, 0.4)
    return d.call("nn.batch_matmul", x, w, transpose_a=ta, transpose_b=tb)


def attention(d: Draw) -> Value:
    """softmax(q kᵀ · scale [+ mask]) v."""
    x = d.pick(3, None, "float")
    if x.base.shape[1] * x.base.shape[2] > 400:
        raise Reject("too large")
    scores = d.call("nn.batch_matmul", x, x, transpose_b=True)
    scale = d.given(np.asarray(x.base.shape[2] ** -0.5, x.base.dtype))
    scores = d.call("multiply", scores, scale)
    if d.random.random() < 0.5:
        mask = d.leaf(scores.base.shape[-2:], "bool")
        low = d.given(np.asarray(-1e4 if x.base.dtype.itemsize == 2 else -1e9, x.base.dtype))
        scores = d.call("where", mask, scores, low)
    return d.call("nn.batch_matmul", d.call("nn.softmax", scores, axis=-1), x, transpose_b=False)


def reduction(d: Draw) -> Value:
    """A reduction along random axes, kept or not, or along the others."""
    r = d.random
    name = r.choice(REDUCTIONS)
    x = d.pick(
        None,
        "bool" if name in ("any", "all") else None,
        "" if name in ("any", "all") else r.choice(("float",) * 4 + ("int",)),
    )
    axes = None if r.random() < 0.2 else tuple(r.sample(range(x.base.ndim), r.randint(0, x.base.ndim)))
    if axes is not None and r.random() < 0.4:
        axes = tuple(a - x.base.ndim for a in axes)
    if name in ("argmax", "argmin") and axes is not None:
        axes = axes[:1] or None
    return d.call(name, x, axis=axes, keepdims=r.random() < 0.5, exclude=r.random() < 0.15 and axes is not None)


def unary(d: Draw) -> Value:
    """An elementwise operator, or a chain of two."""
    name = d.random.choice(UNARY)
    x = d.pick(None, None, "float")
    if name in ("sqrt", "log", "rsqrt"):
        x = d.within(x, 0.1, 8.0)
    if name == "exp":
        x = d.within(x, -6.0, 6.0)
    return d.call(name, x)


def binary(d: Draw) -> Value:
    """Two values that broadcast: one of them perhaps with sizes of 1, fewer dimensions, or none."""
    r = d.random
    x = d.pick(None, None, r.choice(("float",) * 5 + ("int", "")))
    dtype = x.base.dtype.name
    same = [
        v for v in d.pool if v.base.dtype == x.base.dtype and v is not x and _broadcasts(v.base.shape, x.base.shape)
    ]
    if same and r.random() < 0.6:
        y = r.choice(same)
    else:
        shape = tuple(1 if r.random() < 0.3 else s for s in x.base.shape)
        shape = shape[r.randint(0, len(shape)) :] if r.random() < 0.4 else shape
        y = d.leaf(shape, dtype) if r.random() < 0.8 else d.given(np.asarray(r.choice((0, 1, 2, 1, 0)), x.base.dtype))
    if dtype == "bool":
        return d.call(r.choice(("logical_and", "logical_or", "logical_xor", "equal")), x, y)
    name = r.choice(BINARY if r.random() < 0.8 else COMPARE)
    if name in ("divide", "floor_mod", "mod", "power") and dtype in ("float32", "float16", "float64"):
        y = d.within(y, 0.5, 3.0)
        x = d.within(x, 0.2, 3.0) if name == "power" else x
    return d.call(name, *((x, y) if r.random() < 0.6 or name in ("divide", "power") else (y, x)))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b)))


def choice(d: Draw) -> Value:
    """where, by a computed condition."""
    x = d.pick()
    y = d.leaf(x.base.shape if d.random.random() < 0.6 else (), x.base.dtype.name)
    mask = d.pick(x.base.ndim, "bool")
    if not _broadcasts(mask.base.shape, x.base.shape):
        mask = d.leaf(x.base.shape, "bool")
    return d.call("where", mask, *d.random.sample([x, y], 2))


def conversion(d: Draw) -> Value:
    """A cast to any dtype, perhaps back."""
    x = d.pick()
    target = d.dtype()
    if np.dtype(target).kind in "iu" and x.base.dtype.kind == "f":
        x = d.within(x, 0 if target.startswith("u") else -100, 100)
        x = d.call(d.random.choice(("floor", "round", "trunc", "ceil")), x)
    y = d.call("cast", x, dtype=target)
    return d.call("cast", y, dtype=x.base.dtype.name) if d.random.random() < 0.3 else y


# --- shapes ---------------------------------------------------------------------------------------------------------


def shape_change(d: Draw) -> Value:
    """One operator that only moves elements."""
    return d.random.choice(_SHAPES)(d, d.pick())


def _reshape(d: Draw, x: Value) -> Value:
    rest = int(x.base.size)
    dims: list[int] = []
    while rest > 1 and len(dims) < 4:
        divisor = d.random.choice([k for k in range(1, min(rest, 40) + 1) if rest % k == 0])
        dims.append(divisor)
        rest //= divisor
    dims.append(rest)
    d.random.shuffle(dims)
    if d.random.random() < 0.4 and x.base.size:
        dims[d.random.randrange(len(dims))] = -1
    return d.call("reshape", x, newshape=tuple(dims))


def _transpose(d: Draw, x: Value) -> Value:
    return d.call("transpose", x, axes=tuple(d.random.sample(range(x.base.ndim), x.base.ndim)))


def _slice(d: Draw, x: Value) -> Value:
    begin, end, strides = [], [], []
    for size in x.base.shape:
        low = d.random.randint(0, max(0, size - 1))
        high = d.random.randint(min(low + 1, size), size)
        step = d.random.choice((1, 1, 1, 2, 3, -1))
        backwards = step < 0 and low > 0
        begin.append(high - 1 if backwards else low)
        end.append(low - 1 if backwards else high)
        strides.append(step if backwards or step > 0 else 1)
    return d.call("strided_slice", x, begin=tuple(begin), end=tuple(end), strides=tuple(strides))


def _split(d: Draw, x: Value) -> Value:
    if not x.base.ndim:
        raise Reject("nothing to split")
    axis = d.random.randrange(x.base.ndim)
    size = x.base.shape[axis]
    if size > 1 and d.random.random() < 0.5:
        return d.call("split", x, indices_or_sections=(d.random.randint(1, size - 1),), axis=axis)
    sections = d.random.choice([k for k in range(1, min(size, 4) + 1) if size % k == 0] or [1])
    return d.call("split", x, indices_or_sections=sections, axis=axis)


def _join(d: Draw, x: Value) -> Value:
    others = [x, *(v for v in d.pool if v.type == x.type)]
    parts = [x, *(d.random.choice(others) for _ in range(d.random.randint(1, 2)))]
    d.random.shuffle(parts)
    name = "stack" if not x.base.ndim or d.random.random() < 0.3 else "concatenate"
    return d.call(name, bundle(parts), axis=d.random.randrange(-1, max(x.base.ndim, 1)))


def _pad(d: Draw, x: Value) -> Value:
    width = tuple((d.random.choice((0, 0, 1, 2)), d.random.choice((0, 0, 1))) for _ in x.base.shape)
    return d.call("nn.pad", x, d.given(np.asarray(d.random.choice((0, 0, 1)), x.base.dtype)), pad_width=width)


def _sizes(d: Draw, x: Value) -> Value:
    r = d.random
    if r.random() < 0.4 or 1 not in x.base.shape:
        return d.call("expand_dims", x, axis=r.randint(0, x.base.ndim), num_newaxis=r.choice((1, 1, 2)))
    ones = [k for k, size in enumerate(x.base.shape) if size == 1]
    if r.random() < 0.5:
        return d.call("squeeze", x, axis=tuple(r.sample(ones, r.randint(1, len(ones)))))
    return d.call("broadcast_to", x, shape=tuple(r.choice((1, 2, 5)) if size == 1 else size for size in x.base.shape))


def _repeat(d: Draw, x: Value) -> Value:
    r, axis = d.random, d.random.randrange(max(x.base.ndim, 1))
    name = r.choice(("tile", "repeat", "reverse"))
    if name == "tile":
        return d.call("tile", x, reps=tuple(r.choice((1, 1, 2, 3)) for _ in range(max(1, x.base.ndim))))
    return d.call("repeat", x, repeats=2, axis=axis) if name == "repeat" else d.call("reverse", x, axis=axis)


def _take(d: Draw, x: Value) -> Value:
    r = d.random
    if not x.base.ndim or 0 in x.base.shape:
        raise Reject("nothing to take")
    axis = r.randrange(x.base.ndim)
    shape = d.shape(r.choice((0, 1, 1, 2)))
    indices = d.numpy.integers(0, x.base.shape[axis], shape).astype(r.choice(("int32", "int64")))
    return d.call("take", x, d.given(np.asarray(indices), 0.5), axis=axis)


def _layout(d: Draw, x: Value) -> Value:
    if x.base.ndim != 4:
        raise Reject("no image")
    block_size = d.random.choice((2, 4, 8))
    y = d.call("layout_transform", x, src_layout="NCHW", dst_layout=f"NCHW{block_size}c")
    if d.random.random() < 0.5:
        y = d.call("nn.relu", y)
    return d.call("layout_transform", y, src_layout=f"NCHW{block_size}c", dst_layout=d.random.choice(("NCHW", "NHWC")))


_SHAPES = (
    _reshape,
    _reshape,
    _transpose,
    _transpose,
    _slice,
    _slice,
    _split,
    _join,
    _join,
    _pad,
    _sizes,
    _sizes,
    _repeat,
    _take,
    _layout,
)


# --- bait for rewriting rules ---------------------------------------------------------------------------------------


def identity_chain(d: Draw) -> Value:
    """What simplifiers take away: x*1, x+0, casts and transposes there and back, a reshape of a reshape, doubles."""
    x = d.pick(None, None, "float")
    one, zero = (d.given(np.asarray(v, x.base.dtype)) for v in (1, 0))
    kind = d.random.randrange(7)
    if kind == 0:
        return d.call("multiply", x, one)
    if kind == 1:
        return d.call(d.random.choice(("add", "subtract")), x, zero)
    if kind == 2 and x.base.ndim:
        axes = tuple(d.random.sample(range(x.base.ndim), x.base.ndim))
        inner = d.call("nn.relu", d.call("transpose", x, axes=axes))
        return d.call("transpose", inner, axes=tuple(int(a) for a in np.argsort(axes)))
    if kind == 3:
        return _reshape(d, _reshape(d, x))
    if kind == 4:
        wide = d.call("cast", x, dtype="float64")
        return d.call("cast", d.call("exp", d.within(wide, -4, 4)), dtype=x.base.dtype.name)
    if kind == 5:
        left, right = d.call("tanh", x), d.call("tanh", x)
        return d.call("add", left, d.call("multiply", right, right))
    known = d.leaf(x.base.shape, x.base.dtype.name, 0.5, 2, 1.0)
    return d.call("multiply", d.call("multiply", x, known), d.call("sqrt", d.call("add", known, one)))


def quantised(d: Draw) -> Value:
    """Quantise, an integer operator, requantise, back to floats."""
    r = d.random
    x = d.within(_image(d), -8.0, 8.0)
    if x.base.dtype != np.float32:
        raise Reject("float32 is quantised")
    scale, zero = d.given(np.float32(r.choice((0.05, 0.125, 0.071)))), d.given(np.int32(r.randint(-5, 5)))
    q = d.call("qnn.quantize", x, scale, zero, out_dtype="int8")
    channels = x.base.shape[1]
    filters = r.choice((1, 4, 8))
    weight = d.given(
        d.numpy.integers(-20, 20, (filters, channels, *r.choice(((1, 1), (3, 3)))), endpoint=True).astype("int8")
    )
    w_scale = d.given(np.float32(0.02) if r.random() < 0.5 else d.numpy.uniform(0.01, 0.04, filters).astype("float32"))
    w_zero = d.given(np.int32(0))
    y = d.call(
        "qnn.conv2d",
        q,
        weight,
        zero,
        w_zero,
        scale,
        w_scale,
        channels=filters,
        kernel_size=weight.base.shape[2:],
        padding=(1, 1),
    )
    if r.random() < 0.5:
        y = d.call("nn.bias_add", y, d.given(d.numpy.integers(-99, 99, filters).astype("int32")), axis=1)
    total = d.given((scale.base * w_scale.base).astype("float32"))
    out_scale, out_zero = d.given(np.float32(r.choice((0.1, 0.3)))), d.given(np.int32(r.randint(-9, 9)))
    no_shift = d.given(np.zeros(filters, "int32")) if total.base.ndim else d.given(np.int32(0))
    y = d.call("qnn.requantize", y, total, no_shift, out_scale, out_zero, axis=1, out_dtype="int8")
    if r.random() < 0.4:
        y = d.call("nn.relu", y) if r.random() < 0.5 else d.call("clip", y, a_min=-5.0, a_max=60.0)
    return d.call("qnn.dequantize", y, out_scale, out_zero) if r.random() < 0.7 else y


# --- structure ------------------------------------------------------------------------------------------------------


def _same_value(expr: Expr, value: Value) -> Value:
    checked(expr)
    return Value(expr, value.base, value.twins, value.exact)


def branch(d: Draw) -> Value:
    """An `If` whose condition is written, computed from constants, or computed when the graph runs."""
    x = d.pick()
    same = [v for v in d.pool if v.type == x.type]
    yes, no = (_near(d, d.random.choice(same)) for _ in range(2))
    taken, kind = d.random.random() < 0.5, d.random.random()
    if kind < 0.3:
        condition: Expr = Constant(np.asarray(taken))
    elif kind < 0.6:
        measure = d.call("max", d.pick(None, None, "float"), axis=None)
        test = d.call("greater", measure, d.given(np.asarray(0.5, measure.base.dtype)))
        condition, taken = test.expr, bool(test.base)
    else:
        low, high = (d.given(np.asarray(v, "float32")) for v in ((1, 2) if taken else (2, 1)))
        condition = d.call("less", low, high).expr
    return _same_value(If(condition, yes.expr, no.expr), yes if taken else no)


def _near(d: Draw, x: Value) -> Value:
    return (
        d.call("copy", x) if x.base.dtype.kind not in "fiu" else d.call("abs" if d.random.random() < 0.5 else "sign", x)
    )


def binding(d: Draw) -> Value:
    """A `let`, read several times."""
    x = d.pick(None, None, "float")
    name = Var(f"v{d.random.randrange(10_000)}", x.type)
    inner = Value(name, x.base, x.twins, x.exact)
    body = d.call("add", d.call("tanh", inner), d.call("multiply", inner, inner))
    if d.random.random() < 0.3:
        body = d.call("subtract", body, x)
    return _same_value(Let(name, x.expr, body.expr), body)


def local_function(d: Draw) -> Value:
    """A call of a function written on the spot, perhaps twice."""
    x = d.pick(None, None, "float")
    param = Var("p", x.type)
    inner = Value(param, x.base, x.twins, x.exact)
    body = d.call("sigmoid", d.call("add", inner, inner))
    function = Function((param,), body.expr)
    first = _same_value(Call(function, (x.expr,)), body)
    if d.random.random() < 0.5:
        return first
    again = Value(param, first.base, first.twins, first.exact)
    second = d.call("sigmoid", d.call("add", again, again))
    return _same_value(Call(function, (first.expr,)), second)


def sampled(d: Draw) -> Value:
    """Any operator of the table, after one of its samples."""
    return d.from_samples(d.random.choice(drawable()))


MOTIFS: tuple[tuple[Motif, int], ...] = (
    (sampled, 22),
    (convolution, 4),
    (block, 5),
    (other_convolutions, 2),
    (parallel_branches, 3),
    (pooling, 4),
    (product, 4),
    (attention, 1),
    (reduction, 6),
    (unary, 8),
    (binary, 12),
    (choice, 2),
    (conversion, 4),
    (shape_change, 14),
    (identity_chain, 3),
    (quantised, 2),
    (branch, 2),
    (binding, 2),
    (local_function, 1),
)


def generate(seed: int) -> Drawn:
    """The graph of a seed: 1 to 14 steps."""
    motifs, weights = zip(*MOTIFS, strict=True)
    for attempt in range(50):
        draw = Draw(seed + attempt * 1_000_003)
        draw.seed = seed
        steps, tries = draw.random.choice((1, 2, 3, 4, 6, 8, 10, 14)), 0
        while steps > 0 and tries < 150:
            tries += 1
            motif = draw.random.choices(motifs, weights)[0]
            steps -= not rejected(draw, motif)
        drawn = finish(draw)
        if drawn is not None:
            return drawn
    raise RuntimeError(f"seed {seed} gives no graph")
