"""reshape, maximum, add, qnn.add and concatenate for Arm Compute Library.

In: calls and matches. Out: None or why not, and the nodes of the same names. Invariant: two operands are of one type,
or one has size 1 where the other is larger; scales and zero points of qnn.add are constants of one number.
"""

from __future__ import annotations

from armillary.offload.graph_json import Kernel, attributes, flattened
from armillary.offload.rows import (
    BYTES,
    Composite,
    Simple,
    first,
    inside,
    is_dtype,
    is_per_tensor,
    is_value,
    scalar,
    tensor,
)
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.pattern import DFPattern, is_op, is_tuple


def _check_pair(call: Call, *dtypes: str) -> str | None:
    lhs, rhs = call.args[:2]
    a, b = tensor(lhs), tensor(rhs)
    if a is not None and b is not None and len(a.shape) != len(b.shape) and 1 not in (a.size, b.size):
        return f"operands have {len(a.shape)} and {len(b.shape)} dimensions"
    if a is not None and b is not None and a.shape != b.shape and call.checked_type not in (a, b):
        return "both operands are broadcast"
    return first(is_dtype(lhs, "lhs", *dtypes), is_dtype(rhs, "rhs", *dtypes))


def check_pair(call: Call) -> str | None:
    """Why maximum or add is not taken."""
    return _check_pair(call, "float32")


def check_qnn_add(call: Call) -> str | None:
    """Why qnn.add is not taken."""
    names = ("lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point", "output_scale", "output_zero_point")
    dtype = str(getattr(call.args[0].checked_type, "dtype", ""))
    per_tensor = (is_per_tensor(value, name) for value, name in zip(call.args[2:], names, strict=True))
    return first(is_value(dtype, "dtype", *BYTES), _check_pair(call, dtype), *per_tensor) or _check_one_tensor(call)


def _check_one_tensor(call: Call) -> str | None:
    """A tensor of the library has one scale: if it is both operands, theirs are the same."""
    numbers = [value.data.item() for value in call.args[2:6] if isinstance(value, Constant)]
    if call.args[0] is not call.args[1] or numbers[:2] == numbers[2:]:
        return None
    return "both operands are one tensor, with two scales or zero points"


def check_reshape(call: Call) -> str | None:
    """Why reshape is not taken."""
    dtypes = ("float32", "int32", *BYTES)
    return first(is_dtype(call.args[0], "data", *dtypes), is_dtype(call, "the result", *dtypes))


def kernel(call: Call) -> Kernel:
    """The arguments as they are."""
    return Kernel(call.op.name, call.args, attributes(call.attrs))


def qnn_add_kernel(call: Call) -> Kernel:
    """lhs, rhs, then scale and zero point of both and of the result"""
    numbers = tuple(scalar(value, "float32" if k % 2 == 0 else "int32") for k, value in enumerate(call.args[2:]))
    return Kernel("qnn.add", (*call.args[:2], *numbers), attributes(call.attrs))


def _concatenate() -> DFPattern:
    return is_op("concatenate")(is_tuple(None))


def _check_concatenate(root: Expr) -> str | None:
    assert isinstance(root, Call) and isinstance(root.args[0], Tuple), "the pattern has a tuple"
    fields = root.args[0].fields
    dtype = str(getattr(root.checked_type, "dtype", ""))
    return first(
        is_value(dtype, "dtype", "float32", *BYTES),
        is_value(root.attrs.axis, "axis", *range(-4, 4)),
        is_dtype(root, "the result", dtype),
        *(is_dtype(part, "an operand", dtype) for part in fields),
    )


def _concatenate_kernel(call: Call) -> Kernel:
    body, outside = inside(call)
    parts = flattened(body.args)  # type: ignore[attr-defined]
    return Kernel("concatenate", tuple(outside.get(id(p), p) for p in parts), attributes(body.attrs))  # type: ignore[attr-defined]


COMPOSITES = (Composite("concatenate", _concatenate, _check_concatenate, _concatenate_kernel),)
SIMPLE = (
    Simple("reshape", check_reshape, kernel),
    Simple("maximum", check_pair, kernel),
    Simple("add", check_pair, kernel),
    Simple("qnn.add", check_qnn_add, qnn_add_kernel),
)
