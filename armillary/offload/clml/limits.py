"""What every operator of OpenCLML needs of its values.

In: a call of a typed graph. Out: None, or why the library does not take it. Invariant: tensors are floats of at most
four dimensions, the first of which is a batch of one; no dimension exceeds `MAX_DIM`.
"""

from __future__ import annotations

from armillary.offload.rows import first, is_dtype, tensor
from armillary.relay.expr import Call, Constant, Expr, Tuple

FLOATS = ("float32", "float16")
MAX_NDIM, MAX_DIM = 4, 32768


def is_tensor(expr: Expr, what: str) -> str | None:
    """Refuse what the library has no tensor for."""
    message = is_dtype(expr, what, *FLOATS)
    ty = tensor(expr)
    if message is not None or ty is None:
        return message
    if len(ty.shape) > MAX_NDIM:
        return f"{what} has {len(ty.shape)} dimensions, at most {MAX_NDIM} are possible"
    largest = max(ty.static, default=1)
    return None if largest <= MAX_DIM else f"{what} has a dimension of {largest}, at most {MAX_DIM} is possible"


def is_single(expr: Expr, what: str) -> str | None:
    """Refuse what the library has no tensor for, and batches."""
    ty = tensor(expr)
    message = is_tensor(expr, what)
    if message is not None or ty is None or not ty.shape:
        return message
    return None if ty.static[0] == 1 else f"the batch of {what} is {ty.static[0]}, wanted 1"


def check_values(call: Call) -> str | None:
    """Refuse a call by its result and its arguments; constants may be of any batch."""
    values = [e for arg in call.args for e in (arg.fields if isinstance(arg, Tuple) else (arg,))]
    own = (is_tensor(e, "a constant") if isinstance(e, Constant) else is_single(e, "an argument") for e in values)
    return first(is_single(call, "the result"), *own, same_dtype(call, *values))


def same_dtype(call: Expr, *values: Expr) -> str | None:
    """Refuse a call that changes between the two float types."""
    dtypes = {str(ty.dtype) for e in (call, *values) if (ty := tensor(e)) is not None}
    return None if len(dtypes) <= 1 else f"its values are {' and '.join(sorted(dtypes))}, wanted one type"
