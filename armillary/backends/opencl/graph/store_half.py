"""store-half: what lies between the kernels of a network in float16 or bfloat16 is in that type, and so are weights.

In: a module after fuse-ops, whose functions note the type of their products (`storage_of`, by widen-small-floats). Out:
kernels round what they store and widen what they load, where they gave and read float32; all algorithms are those of
float32, with half of the bytes. Invariant: arithmetic stays in float32; what leaves the function keeps its type, and
float32 stay weights that Winograd's algorithm has transformed (their roundings grow) and what the type cannot hold.

    %0 = fn (%p0, %p1, Primitive=1) { nn.relu(nn.dense(%p0, %p1)) };
    %1 = fn (%p0, %p1, Primitive=1) { nn.dense(%p0, %p1) };
    %1(%0(%x, weight), weight)
    ->
    %0 = fn (%p0, %p1, Primitive=1) { cast(nn.relu(nn.dense(%p0, cast(%p1))), dtype="float16") };
    %1 = fn (%p0, %p1, Primitive=1) { nn.dense(cast(%p0, dtype="float32"), cast(%p1, dtype="float32")) };
    %1(%0(%x, weight), weight)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.backends.small_floats.graph._narrow_kernel import kernel_of, with_stored
from armillary.backends.small_floats.graph.widen_small_floats import SMALL_FLOATS
from armillary.base.dtype import DType
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import is_from_constants, on_functions, op_name, tensor
from armillary.relay.walk import not_primitive, post_order, users
from armillary.transform import define_pass

ATTRIBUTE = "stored_as"
LEAST = 4096  # bytes of a constant that is worth a conversion in each kernel
TRANSFORMED = ("opencl.winograd_weight",)  # what gives weights that stay in float32
READS_TRANSFORMED = ("opencl.conv2d_winograd",)


def storage_of(order: Sequence[Expr]) -> tuple[tuple[str, object], ...] | None:
    """What widen-small-floats notes of a function with these nodes: the 16-bit type of all data that meets weights.

    None where such products (all of them, where weights are no constants) are summed in a 16-bit type: the network asks
    for a device's arithmetic in half.
    """
    products = [e for e in order if isinstance(e, Call) and hasattr(e.attrs, "out_dtype") and len(e.args) > 1]
    weighted = [call for call in products if is_from_constants(call.args[1])]
    if any(ty is not None and ty.dtype in SMALL_FLOATS for ty in map(tensor, weighted or products)):
        return None
    read = {str(ty.dtype) for call in weighted for ty in [tensor(call.args[0])] if ty is not None}
    return ((ATTRIBUTE, read.pop()),) if len(read) == 1 and read <= set(SMALL_FLOATS) else ()


@define_pass("store-half", opt_level=3)
def store_half(module: IRModule) -> IRModule:
    """Round what lies between kernels."""
    return on_functions(module, _change)


def _change(function: Function) -> Expr | None:
    dtype = dict(function.attrs).get(ATTRIBUTE)
    if not isinstance(dtype, str):
        return None
    order = post_order(function, not_primitive)
    readers = users(order)
    stored = {
        id(expr)
        for expr in order
        if _is_wide(expr) and _can_hold(expr, dtype) and all(_takes(r, expr) for r in readers.get(id(expr), ()))
    }
    return with_stored(order, stored, dtype) if stored else None


def _is_wide(expr: Expr) -> bool:
    """Whether a kernel gives float32, or a constant is a large tensor of it."""
    ty = tensor(expr)
    if ty is None or ty.dtype != "float32":
        return False
    if isinstance(expr, Constant):
        return expr.nbytes >= LEAST
    kernel = kernel_of(expr)
    return kernel is not None and _computes(kernel) and not _calls(kernel, TRANSFORMED)


def _can_hold(expr: Expr, dtype: str) -> bool:
    """Whether no value of a constant is beyond the type's range."""
    if not isinstance(expr, Constant):
        return True
    largest = float(np.abs(expr.data).max())
    return bool(np.isfinite(np.asarray(largest).astype(DType(dtype).numpy)) or not np.isfinite(largest))


def _takes(reader: Expr, value: Expr) -> bool:
    """Whether a reader is a kernel that widens what it loads."""
    kernel = kernel_of(reader)
    if kernel is None or not isinstance(reader, Call) or not _computes(kernel):
        return False
    if not _calls(kernel, READS_TRANSFORMED):
        return True
    inside = users(post_order(kernel.body))
    mine = [p for p, arg in zip(kernel.params, reader.args, strict=True) if arg is value]
    uses = [use for p in mine for use in inside.get(id(p), ())]
    return not any(op_name(use) in READS_TRANSFORMED and use.args[1] in mine for use in uses)  # type: ignore[attr-defined]


def _computes(kernel: Function) -> bool:
    """Whether a kernel has only operators of elements, windows and sums."""
    calls = [e for e in post_order(kernel.body) if isinstance(e, Call)]
    return all(isinstance(call.op, Op) and call.op.kind != Kind.OPAQUE for call in calls)


def _calls(kernel: Function, names: tuple[str, ...]) -> bool:
    return any(op_name(e) in names for e in post_order(kernel.body))
