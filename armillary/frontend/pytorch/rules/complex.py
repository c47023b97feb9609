"""Complex tensors as two real ones, and ATen's operators on them.

In: nodes of a program whose arguments or results are complex. Out: a `Complex`, or real tensors where the operator
gives them. Invariant: the parts have one shape and the real dtype of the complex one; a complex input, parameter or
result of a module is a real tensor with a last axis of 2, as torch.view_as_real has it. Operators that only move
elements move both parts by their own rules. Transforms are those of ops/misc/fourier.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary.frontend.pytorch.complex_values import PARTS, Complex, parts_of
from armillary.frontend.pytorch.table import AtenCall, aten, aten_rule
from armillary.frontend.values import Value, broadcast, broadcast_sizes, cast, op, scalar, shape_of, type_of
from armillary.ops.misc.fourier import transform
from armillary.relay.expr import Expr

_MOVES = (
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "permute",
        "transpose",
        "t",
        "expand",
        "squeeze",
        "unsqueeze",
        "slice",
        "select",
    ),
    *(
        "cat",
        "stack",
        "index_select",
        "roll",
        "flip",
        "split",
        "split_with_sizes",
        "unbind",
        "clone",
        "alias",
        "detach",
    ),
    *("index", "repeat", "copy", "lift_fresh_copy", "view_copy", "slice_scatter", "select_scatter", "contiguous"),
)
_SUMS = ("sum", "mean", "cumsum", "neg")


def _dtype(call: AtenCall, *values: Value) -> str:
    """The dtype of the parts of a result."""
    name = call.outputs[0] if call.outputs else None
    if name in PARTS:
        return PARTS[name]
    return next(str(type_of(v.real).dtype) for v in values if isinstance(v, Complex))


def _both(call: AtenCall, *values: Value) -> list[tuple[Expr, Expr]]:
    dtype = _dtype(call, *values)
    return [parts_of(v, dtype) for v in values]


@aten(*_MOVES, *_SUMS, namespace="complex")
def moved(call: AtenCall, *arguments: Value) -> Value:
    """An operator that treats both parts alike."""
    rule = aten_rule(call.name)
    if rule is None:
        call.refuse("it has no rule")
    of_part = AtenCall(call.name, call.span, call.folder, [PARTS.get(str(o), o) for o in call.outputs])
    real, imaginary = (rule(of_part, *(_part(v, k) for v in arguments)) for k in range(2))
    if isinstance(real, list | tuple):
        return [Complex(a, b) for a, b in zip(real, imaginary, strict=True)]
    return Complex(real, imaginary)


def _part(value: Value, number: int) -> Value:
    if isinstance(value, list):
        return [_part(v, number) for v in value]
    return (value.real, value.imag)[number] if isinstance(value, Complex) else value


@aten("add", "sub", namespace="complex")
def added(call: AtenCall, a: Value, b: Value, alpha: Value = 1) -> Complex:
    name = "add" if ".add." in call.name else "subtract"
    b = _product(call, b, alpha) if alpha != 1 else b
    (ar, ai), (br, bi) = _both(call, a, b)
    return Complex(op(name, ar, br), op(name, ai, bi))


@aten("rsub", namespace="complex")
def subtracted_from(call: AtenCall, a: Value, b: Value, alpha: Value = 1) -> Complex:
    a = _product(call, a, alpha) if alpha != 1 else a
    (ar, ai), (br, bi) = _both(call, a, b)
    return Complex(op("subtract", br, ar), op("subtract", bi, ai))


@aten("mul", namespace="complex")
def _product(call: AtenCall, a: Value, b: Value) -> Complex:
    (ar, ai), (br, bi) = _both(call, a, b)
    if not isinstance(b, Complex | complex):
        return Complex(op("multiply", ar, br), op("multiply", ai, br))
    if not isinstance(a, Complex | complex):
        return Complex(op("multiply", ar, br), op("multiply", ar, bi))
    real = op("subtract", op("multiply", ar, br), op("multiply", ai, bi))
    return Complex(real, op("add", op("multiply", ar, bi), op("multiply", ai, br)))


@aten("div", namespace="complex")
def divided(call: AtenCall, a: Value, b: Value) -> Complex:
    """a * conj(b) / |b|^2."""
    (ar, ai), (br, bi) = _both(call, a, b)
    if not isinstance(b, Complex | complex):
        return Complex(op("divide", ar, br), op("divide", ai, br))
    size = op("add", op("multiply", br, br), op("multiply", bi, bi))
    real = op("add", op("multiply", ar, br), op("multiply", ai, bi))
    imaginary = op("subtract", op("multiply", ai, br), op("multiply", ar, bi))
    return Complex(op("divide", real, size), op("divide", imaginary, size))


@aten("reciprocal", namespace="complex")
def reciprocal(call: AtenCall, x: Complex) -> Value:
    return divided(call, 1.0, x)


@aten("mm", "bmm", "matmul", namespace="complex")
def matrix_product(call: AtenCall, a: Value, b: Value) -> Complex:
    """Four products of the parts."""
    rule = aten_rule(call.name)
    assert rule is not None, "products of real matrices have a rule"
    (ar, ai), (br, bi) = _both(call, a, b)
    real = op("subtract", rule(call, ar, br), rule(call, ai, bi))
    return Complex(real, op("add", rule(call, ar, bi), rule(call, ai, br)))


@aten("einsum", namespace="complex")
def contraction(call: AtenCall, equation: str, operands: Sequence[Value], *_: Value) -> Complex:
    """Of one or two tensors: linear in each."""
    rule = aten_rule(call.name)
    assert rule is not None, "contractions of real tensors have a rule"
    if len(operands) == 1:
        (x,) = operands
        return Complex(rule(call, equation, [x.real]), rule(call, equation, [x.imag]))
    if len(operands) != 2:
        call.refuse(f"{len(operands)} complex operands", "write products of two")
    (ar, ai), (br, bi) = _both(call, *operands)
    real = op("subtract", rule(call, equation, [ar, br]), rule(call, equation, [ai, bi]))
    return Complex(real, op("add", rule(call, equation, [ar, bi]), rule(call, equation, [ai, br])))


@aten("exp", namespace="complex")
def exponential(call: AtenCall, x: Complex) -> Complex:
    size = op("exp", x.real)
    return Complex(op("multiply", size, op("cos", x.imag)), op("multiply", size, op("sin", x.imag)))


@aten("abs", namespace="complex")
def absolute(call: AtenCall, x: Complex) -> Expr:
    """The larger part times the root of 1 + (smaller / larger)^2, which does not overflow."""
    a, b = op("abs", x.real), op("abs", x.imag)
    large, small = op("maximum", a, b), op("minimum", a, b)
    dtype = str(type_of(large).dtype)
    share = op("divide", small, op("where", op("equal", large, scalar(0, dtype)), scalar(1, dtype), large))
    return op("multiply", large, op("sqrt", op("add", scalar(1, dtype), op("multiply", share, share))))


@aten("angle", namespace="complex")
def angle(call: AtenCall, x: Complex) -> Expr:
    return op("atan2", x.imag, x.real)


@aten("_conj", "conj", "_conj_physical", "conj_physical", "resolve_conj", namespace="complex")
def conjugate(call: AtenCall, x: Complex) -> Complex:
    return x if "resolve" in call.name else Complex(x.real, op("negative", x.imag))


@aten("constant_pad_nd", namespace="complex")
def constant_pad(call: AtenCall, x: Complex, pads: Sequence[int], value: Value) -> Complex:
    rule, number = aten_rule(call.name), complex(value or 0)
    assert rule is not None, "padding of real tensors has a rule"
    return Complex(rule(call, x.real, pads, number.real), rule(call, x.imag, pads, number.imag))


@aten("sym_size", "sym_numel", namespace="complex")
def size(call: AtenCall, x: Complex, *axis: int) -> Value:
    """A size of the tensor, which is that of its parts."""
    rule = aten_rule(call.name)
    assert rule is not None, "sizes of real tensors have a rule"
    return rule(call, x.real, *axis)


@aten("real", namespace="complex")
def real_part(call: AtenCall, x: Complex) -> Expr:
    return x.real


@aten("imag", namespace="complex")
def imaginary_part(call: AtenCall, x: Complex) -> Expr:
    return x.imag


@aten("view_as_real", "view_as_real_copy", namespace="complex")
def as_real(call: AtenCall, x: Complex) -> Expr:
    return x.joined()


@aten("view_as_complex", "view_as_complex_copy", namespace="complex")
def as_complex(call: AtenCall, x: Expr) -> Complex:
    return Complex.split(x)


@aten("complex", namespace="complex")
def from_parts(call: AtenCall, a: Expr, b: Expr) -> Complex:
    shape = broadcast_sizes(shape_of(a), shape_of(b))
    return Complex(broadcast(a, shape), broadcast(b, shape))


@aten("polar", namespace="complex")
def polar(call: AtenCall, size: Expr, direction: Expr) -> Complex:
    return Complex(op("multiply", size, op("cos", direction)), op("multiply", size, op("sin", direction)))


@aten("_to_copy", namespace="complex")
def converted(call: AtenCall, x: Value, *_: Value) -> Value:
    """Between complex dtypes, from a real one, and to a real one, which drops the imaginary part."""
    target = call.outputs[0] or ""
    if target not in PARTS:
        return cast(x.real, target)
    return Complex(*parts_of(x, PARTS[target]))


# --- transforms ---------------------------------------------------------------------------------------------------


@aten("_fft_r2c", namespace="complex")
def real_to_complex(call: AtenCall, x: Expr, axes: Sequence[int], scaling: int, is_onesided: bool) -> Complex:
    """Along the last of the axes of a real signal, then along the others."""
    rank = len(shape_of(x))
    *others, last = (axis % rank for axis in axes)
    result = transform(call.name, op("expand_dims", x, axis=-1), last, None, False, is_onesided)
    for axis in others:
        result = transform(call.name, result, axis, None, False, False)
    return _scaled(Complex.split(result), math.prod(shape_of(x)[a] for a in (*others, last)), scaling)


@aten("_fft_c2c", namespace="complex")
def complex_to_complex(call: AtenCall, x: Complex, axes: Sequence[int], scaling: int, is_forward: bool) -> Complex:
    rank, result = len(shape_of(x.real)), x.joined()
    count = math.prod(shape_of(x.real)[a % rank] for a in axes)
    for axis in axes:
        result = transform(call.name, result, axis % rank, None, not is_forward, False)
    return _scaled(Complex.split(result), count, scaling, 1 if is_forward else count)


@aten("_fft_c2r", namespace="complex")
def complex_to_real(call: AtenCall, x: Complex, axes: Sequence[int], scaling: int, length: int) -> Expr:
    """Back along all axes but the last, then along that one, of which half is there."""
    rank, result = len(shape_of(x.real)), x.joined()
    *others, last = (axis % rank for axis in axes)
    for axis in others:
        result = transform(call.name, result, axis, None, True, False)
    result = transform(call.name, result, last, length, True, True)
    count = math.prod(shape_of(x.real)[a] for a in others) * length
    real = op("squeeze", result, axis=(-1,)) if shape_of(result)[-1] == 1 else Complex.split(result).real
    return _scaled(Complex(real, real), count, scaling, count).real


def _scaled(x: Complex, count: int, scaling: int, factor: float = 1) -> Complex:
    """A transform in PyTorch's scaling (0: none, 1: by the root of the count, 2: by the count) times a factor."""
    factor = factor / (1.0, math.sqrt(count), float(count))[scaling]
    number = scalar(factor, str(type_of(x.real).dtype))
    return x if factor == 1 else Complex(op("multiply", x.real, number), op("multiply", x.imag, number))
