"""simplify-expr: rules that make an expression smaller.

In: a typed module. Out: one to which no rule of the table applies. Each rule's arrow says what it does and when.
Beware floats: `x + 0` is not `x` for -0.0, so it goes only for integers (`x + -0.0` goes for all), and `x * 0` is not 0
for NaN, so it stays.

    def @main(%x: Tensor[(2, 3), float32]) {
      %0 = multiply(%x, 1f);
      %1 = transpose(%0, axes=(1, 0));
      %2 = transpose(%1, axes=(1, 0));
      subtract(%2, 0f)
    }
    ->
    def @main(%x: Tensor[(2, 3), float32]) { %x }
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import call, op_name, rewrite_module, splat, tensor
from armillary.relay.transform.simplify.simplify_inference import pick_field
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import post_order
from armillary.transform import define_pass


@define_pass("simplify-expr")
def simplify_expr(module: IRModule) -> IRModule:
    """Apply the rules bottom-up until none applies."""
    while (changed := rewrite_module(module, simplify)) is not module:
        module = changed
    return module


def simplify(expr: Expr) -> Expr | None:
    """The first rule that applies."""
    if isinstance(expr, Call):
        for rule in _rules(expr):
            new = rule(expr)
            if new is not None and new.checked_type == expr.checked_type:
                return new
        return None
    return pick_field(expr) or rebuilt_tuple(expr)


def _rules(expr: Call) -> tuple[Callable[[Call], Expr | None], ...]:
    if has(expr, Fact.LIKE):
        return (like_shape,)
    if has(expr, Fact.ORDER_ONLY):
        return (position_of_dequantized,)
    return (same_shape, consecutive_reshapes) if has(expr, Fact.VIEW) else _RULES.get(op_name(expr), ())


def rebuilt_tuple(expr: Expr) -> Expr | None:
    """(t.0, t.1)  ->  t   if t has two fields"""
    if not isinstance(expr, Tuple) or not expr.fields or not all(isinstance(f, TupleGetItem) for f in expr.fields):
        return None
    items = [f for f in expr.fields if isinstance(f, TupleGetItem)]
    whole = items[0].tuple_value
    if all(f.tuple_value is whole and f.index == k for k, f in enumerate(items)):
        return whole if whole.checked_type == expr.checked_type else None
    return None


def _neutral(value: float, right_only: bool) -> Callable[[Call], Expr | None]:
    def rule(expr: Call) -> Expr | None:
        lhs, rhs = expr.args
        if splat(rhs) == value:
            return lhs
        return rhs if not right_only and splat(lhs) == value else None

    return rule


def _zero(wanted_sign: bool, right_only: bool) -> Callable[[Call], Expr | None]:
    """Zeros of integers, and the zero of that sign of floats: -0.0 + 0.0 is 0.0, not -0.0."""
    drop = _neutral(0, right_only)

    def rule(expr: Call) -> Expr | None:
        kept = drop(expr)
        zero = next((a for a in expr.args[::-1] if a is not kept), None)
        if kept is None or not isinstance(zero, Constant):
            return None
        floating = np.issubdtype(zero.data.dtype, np.floating)
        return kept if not floating or bool((np.signbit(zero.data) == wanted_sign).all()) else None

    return rule


add_zero = _zero(True, False)  # x + -0.0  ->  x;  x + 0  ->  x   if x is an integer
subtract_zero = _zero(False, True)  # x - 0.0  ->  x
multiply_one = _neutral(1, False)  # x * 1  ->  x
divide_one = _neutral(1, True)  # x / 1  ->  x


def _reassociate(expr: Call) -> Expr | None:
    """(x + c1) + c2  ->  x + (c1 + c2);  (x * c1) * c2  ->  x * (c1 * c2)"""
    name = op_name(expr)
    for inner, outer in (expr.args, expr.args[::-1]):
        if not isinstance(outer, Constant) or not isinstance(inner, Call) or op_name(inner) != name:
            continue
        for value, constant in (inner.args, inner.args[::-1]):
            if isinstance(constant, Constant) and not isinstance(value, Constant):
                return _joined(name, value, constant.data, outer.data)
    return None


def _joined(name: str, value: Expr, first: Array, second: Array) -> Expr | None:
    with np.errstate(all="ignore"):
        data = first + second if name == "add" else first * second
    if data.size > max(first.size, second.size) or not np.isfinite(data).all():
        return None
    return call(name, value, Constant(data.astype(first.dtype)))


def affine_twice(expr: Call) -> Expr | None:
    """(x * a + b) * c  ->  x * (a * c) + b * c   (a normalisation and the scale that importers keep beside it)"""
    for total, factor in (expr.args, expr.args[::-1]):
        if not isinstance(factor, Constant) or not isinstance(total, Call) or op_name(total) != "add":
            continue
        for product, offset in (total.args, total.args[::-1]):
            if op_name(product) == "multiply" and isinstance(product, Call) and isinstance(offset, Constant):
                return _scaled(product, offset.data, factor.data)
    return None


def _scaled(product: Call, offset: Array, factor: Array) -> Expr | None:
    """product * factor + offset * factor, the first in its constant."""
    for value, inner in (product.args, product.args[::-1]):
        if isinstance(inner, Constant) and not isinstance(value, Constant):
            scaled = _joined("multiply", value, inner.data, factor)
            moved = _joined("multiply", value, offset, factor)
            if scaled is None or not isinstance(moved, Call):
                return None
            return call("add", scaled, moved.args[1])
    return None


def small_power(expr: Call) -> Expr | None:
    """x ** 1  ->  x;  x ** 2  ->  x * x;  x ** 3  ->  x * x * x;  x ** -1  ->  1 / x;  x ** 0.5  ->  sqrt(x)

    if x is float32 or float64: the cube of a narrower type would be rounded twice, and integers saturate. A product
    takes a twentieth of the time of pow. As numpy's power, the root of -infinity is NaN, which for C's pow is infinity.
    """
    x, (ty,), exponent = expr.args[0], tensor_fields(expr.args[0].checked_type), splat(expr.args[1])
    if not ty.dtype.is_float or ty.dtype.bits < 32:
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return call("multiply", x, x)
    if exponent == 3:
        return call("multiply", call("multiply", x, x), x)
    if exponent == -1:
        return call("divide", Constant(np.ones((), ty.dtype.numpy)), x)
    return call("sqrt", x) if exponent == 0.5 else None


def same_cast(expr: Call) -> Expr | None:
    """cast(x, dtype of x)  ->  x"""
    ty, result = expr.args[0].checked_type, expr.checked_type
    return expr.args[0] if ty == result else None


def widening_casts(expr: Call) -> Expr | None:
    """cast(cast(x, wider), dtype)  ->  cast(x, dtype)   if the first cast loses nothing of x, or of a clip x"""
    inner = expr.args[0]
    if op_name(inner) != "cast" or not isinstance(inner, Call):
        return None
    (source,), (middle,) = tensor_fields(inner.args[0].checked_type), tensor_fields(inner.checked_type)
    (result,) = tensor_fields(expr.checked_type)
    clipped = _is_clipped(inner, middle.dtype) and (source.dtype.is_int or result.dtype.is_int)
    kept = clipped and np.can_cast(middle.dtype.numpy, result.dtype.numpy, "safe")
    if not kept and not np.can_cast(source.dtype.numpy, middle.dtype.numpy, "safe"):
        return None
    return Call(expr.op, inner.args, expr.attrs, expr.span)


def _is_clipped(cast: Call, dtype: DType) -> bool:
    """Whether what is cast to an integer type was clipped to numbers that it has."""
    clip = cast.args[0]
    if not dtype.is_int or not isinstance(clip, Call) or not hasattr(clip.attrs, "a_min"):  # it has bounds
        return False
    return bool(dtype.min_value <= clip.attrs.a_min and clip.attrs.a_max <= dtype.max_value)


def position_of_dequantized(expr: Call) -> Expr | None:
    """argmax(qnn.dequantize(x, scale, zero))  ->  argmax(x)   if x has at most 16 bits and the scale is one, above 0

    Then different numbers stay different, in the same order.
    """
    inner = expr.args[0]
    if not has(inner, Fact.DEQUANTIZES) or not isinstance(inner, Call):
        return None
    data, scale = tensor(inner.args[0]), splat(inner.args[1])
    if data is None or data.dtype.bits > 16 or scale is None or not 1e-30 < scale < 1e30:
        return None
    if inner.attrs.out_dtype not in ("float32", "float64"):
        return None
    return Call(expr.op, (inner.args[0],), expr.attrs, expr.span)


def same_shape(expr: Call) -> Expr | None:
    """reshape(x, shape of x)  ->  x"""
    data = expr.args[0]
    return data if tensor(data) is not None and data.checked_type == expr.checked_type else None


def consecutive_reshapes(expr: Call) -> Expr | None:
    """reshape(reshape(x))  ->  reshape(x)"""
    inner, result = expr.args[0], tensor(expr)
    if not has(inner, Fact.VIEW) or not isinstance(inner, Call) or result is None or -1 in result.shape:
        return None
    return reshape_to(inner.args[0], result.static)


def noop_transpose(expr: Call) -> Expr | None:
    """transpose(x, (0, 1, 2…))  ->  x"""
    axes = _axes(expr)
    return expr.args[0] if axes is not None and axes == tuple(range(len(axes))) else None


def consecutive_transposes(expr: Call) -> Expr | None:
    """transpose(transpose(x, a), b)  ->  transpose(x, a[b])"""
    inner = expr.args[0]
    if op_name(inner) != "transpose" or not isinstance(inner, Call):
        return None
    first, second = _axes(inner), _axes(expr)
    if first is None or second is None:
        return None
    return call("transpose", inner.args[0], axes=tuple(first[a] for a in second))


def dense_of_transposed(expr: Call) -> Expr | None:
    """nn.dense(a, transpose(b, (1, 0)))  ->  nn.matmul(a, b)   of float32, if b is computed

    Its kernels read either form; a constant is transposed once, where nn.dense finds it packed.
    """
    a, turned = expr.args
    if op_name(turned) != "transpose" or not isinstance(turned, Call) or _axes(turned) != (1, 0):
        return None
    left, right = tensor(a), tensor(turned)
    if left is None or right is None or left.ndim < 2 or {str(left.dtype), str(right.dtype)} != {"float32"}:
        return None
    if not any(isinstance(e, Var) for e in post_order(turned.args[0])):
        return None
    return call("nn.matmul", a, turned.args[0], out_dtype=expr.attrs.out_dtype)


def _axes(expr: Call) -> tuple[int, ...] | None:
    ty = expr.args[0].checked_type
    if not isinstance(ty, TensorType):
        return None
    axes = expr.attrs.axes
    return tuple(a % ty.ndim for a in axes) if axes else tuple(reversed(range(ty.ndim)))


def consecutive_layouts(expr: Call) -> Expr | None:
    """layout_transform(layout_transform(x, A, B), B, C)  ->  layout_transform(x, A, C), or x if A is C"""
    inner = expr.args[0]
    if expr.attrs.src_layout == expr.attrs.dst_layout:
        return inner
    if op_name(inner) != "layout_transform" or not isinstance(inner, Call):
        return None
    if inner.attrs.dst_layout != expr.attrs.src_layout:
        return None
    if inner.attrs.src_layout == expr.attrs.dst_layout:
        return inner.args[0]
    attrs = {"src_layout": inner.attrs.src_layout, "dst_layout": expr.attrs.dst_layout}
    return call("layout_transform", inner.args[0], **attrs)


def consecutive_clips(expr: Call) -> Expr | None:
    """clip(clip(x, a, b), c, d)  ->  clip(x, max(a, c), min(b, d))   if the intervals overlap"""
    inner, outer = expr.args[0], expr.attrs
    if op_name(inner) != "clip" or not isinstance(inner, Call):
        return None
    low, high = max(inner.attrs.a_min, outer.a_min), min(inner.attrs.a_max, outer.a_max)
    return call("clip", inner.args[0], a_min=low, a_max=high) if low <= high else None


def redundant_clip(expr: Call) -> Expr | None:
    """clip(x, a, b)  ->  x   if x is an integer, or widened from one, that lies in [a, b] by its dtype"""
    source = expr.args[0]
    while op_name(source) == "cast" and isinstance(source, Call) and _widens(source):
        source = source.args[0]
    ty = tensor(source)
    if ty is None or not ty.dtype.is_int:
        return None
    fits = expr.attrs.a_min <= ty.dtype.min_value and ty.dtype.max_value <= expr.attrs.a_max
    return expr.args[0] if fits else None


def _widens(cast: Call) -> bool:
    """Whether a cast from an integer loses nothing."""
    (source,), (result,) = tensor_fields(cast.args[0].checked_type), tensor_fields(cast.checked_type)
    return source.dtype.is_int and np.can_cast(source.dtype.numpy, result.dtype.numpy, "safe")


def like_shape(expr: Call) -> Expr | None:
    """zeros_like(x)  ->  zeros(shape of x), and so for the operators that only read a tensor's shape"""
    ty, name = tensor(expr), op_name(expr)
    if ty is None:
        return None
    if name == "full_like":
        return call("full", expr.args[1], shape=ty.static, dtype=ty.dtype)
    if name in ("zeros_like", "ones_like"):
        return call(name.removesuffix("_like"), shape=ty.static, dtype=ty.dtype)
    if name == "cast_like":
        return call("cast", expr.args[0], dtype=ty.dtype)
    if name == "reshape_like":
        return reshape_to(expr.args[0], ty.static)
    return call("broadcast_to", expr.args[0], shape=ty.static)


def relu_twice(expr: Call) -> Expr | None:
    """relu(relu(x))  ->  relu(x)"""
    return expr.args[0] if op_name(expr.args[0]) == "nn.relu" else None


def zero_padding(expr: Call) -> Expr | None:
    """pad(x, 0…)  ->  x"""
    width = getattr(expr.attrs, "pad_width", None)
    return expr.args[0] if width and all(p == 0 for pair in width for p in pair) else None


def tanh_of_softplus(expr: Call) -> Expr | None:
    """tanh(relu(x) + log(exp(-abs(x)) + 1))  ->  n / (n + 2) with n = e * (e + 2), e = exp(min(x, 20))   of float32

    The logarithm may also be log1p as ONNX's Softplus is imported.

    As tanh(log(y)) is (y * y - 1) / (y * y + 1): one function of three is left of mish. From 20 on it is 1.
    """
    ty, total = tensor(expr), expr.args[0]
    if ty is None or ty.dtype != "float32" or op_name(total) != "add" or not isinstance(total, Call):
        return None
    for ramp, rest in (total.args, total.args[::-1]):
        x = ramp.args[0] if op_name(ramp) == "nn.relu" and isinstance(ramp, Call) else None
        shrunk = _argument(_argument(rest, "log"), "add", 1.0) or _of_log1p(rest)
        if x is not None and _argument(_argument(_argument(shrunk, "exp"), "negative"), "abs") is x:
            power = call("exp", call("minimum", x, Constant(np.array(_ALL, np.float32))))
            two = Constant(np.array(2, np.float32))
            less_one = power * (power + two)
            return less_one / (less_one + two)
    return None


def _of_log1p(expr: Expr) -> Expr | None:
    """e of where(e + 1 == 1, e, log(e + 1) * (e / (e + 1 - 1)))."""
    if not isinstance(expr, Call) or op_name(expr) != "where" or op_name(expr.args[2]) != "multiply":
        return None
    e, product = expr.args[1], expr.args[2]
    if not isinstance(product, Call):
        return None
    is_log = _argument(_argument(product.args[0], "log"), "add", 1.0) is e
    return e if is_log and _argument(product.args[1], "divide") is e else None


def _argument(expr: Expr | None, name: str, other: float | None = None) -> Expr | None:
    """What an operator of that name is applied to, and added to `other`."""
    if not isinstance(expr, Call) or op_name(expr) != name:
        return None
    if other is None:
        return expr.args[0]
    return next((a for a, b in (expr.args, expr.args[::-1]) if splat(b) == other), None)


_ALL = 20.0  # exp(2 * 20) + 2 is exp(2 * 20)
_RULES: dict[str, tuple[Callable[[Call], Expr | None], ...]] = {
    "add": (add_zero, _reassociate),
    "subtract": (subtract_zero,),
    "multiply": (multiply_one, _reassociate, affine_twice),
    "divide": (divide_one,),
    "power": (small_power,),
    "cast": (same_cast, widening_casts),
    "tanh": (tanh_of_softplus,),
    "transpose": (noop_transpose, consecutive_transposes),
    "layout_transform": (consecutive_layouts,),
    "nn.relu": (relu_twice,),
    "nn.pad": (zero_padding,),
    "nn.dense": (dense_of_transposed,),
    "copy": (same_cast,),
    "broadcast_to": (same_shape,),
    "clip": (consecutive_clips, redundant_clip),
}
