"""fuse-moves: elements that a kernel would only move are read where they lie, by the kernel that reads them.

In: a module after fuse-ops, for buffers. Out: no kernel of slices, reshapes and transpositions alone before a kernel
that reads its result only, if that is one of maps of elements too (rotary positions of a part of a product, say), or a
1x1 convolution of a part of the channels: a launch less, 5 to 7 us on an H200, a third of the kernels of ShuffleNet.
New rows of a cache are computed where they are written: rotated keys are read by nothing else. Invariant: the same
operators on the same values. Transpositions stay before a contraction, whose loads of four neighbours they would break
up.

    %0 = fn (%p0) { strided_slice(%p0) };  %1 = fn (%p0, %p1) { nn.conv2d(%p0, %p1) };  %1(%0(%x), %w)
    ->
    %0 = fn (%p0, %p1) { nn.conv2d(strided_slice(%p0), %p1) };  %0(%x, %w)
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import Found, Readers, op_name, rewrite_found
from armillary.relay.transform.fusion._joined_kernels import joined
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType
from armillary.relay.walk import children, not_primitive, post_order
from armillary.transform import define_pass

MOVES = ("strided_slice", "reshape", "transpose", "expand_dims", "squeeze")
CACHE_UPDATE = "nn.cache_update"
MOST_CALLS = 24  # of a kernel: an element that is read at many places is computed at each
CHANNELS = 1  # the axis of channels


@define_pass("fuse-moves", opt_level=1)
def fuse_moves(module: IRModule) -> IRModule:
    """Kernels that only move elements become part of the only kernel that reads them."""
    moved = infer_type(rewrite_found(module, _pair))
    return infer_type(rewrite_found(moved, _new_rows))


def _pair(expr: Expr, readers: Readers) -> Found | None:
    second = _kernel(expr)
    if second is None or not isinstance(expr, Call):
        return None
    for place, argument in enumerate(expr.args):
        first = _kernel(argument)
        if first is None or len(readers[id(argument)]) != 1 or not isinstance(argument, Call):
            continue
        if _is_moved(first) and _takes(second, place, first):
            return joined(argument, expr, place)
    return None


def _new_rows(expr: Expr, readers: Readers) -> Found | None:
    """An update of a cache, and the kernel of maps of elements that makes nothing but its new rows."""
    update = _kernel(expr)
    if update is None or not isinstance(expr, Call) or op_name(update.body) != CACHE_UPDATE:
        return None
    place = next((k for k, p in enumerate(update.params) if update.body.args[1] is p), None)  # type: ignore[attr-defined]
    argument = expr.args[place] if place is not None else None
    first = _kernel(argument) if argument is not None else None
    if place is None or first is None or not isinstance(argument, Call) or len(readers[id(argument)]) != 1:
        return None
    kinds = [call.op.kind if isinstance(call.op, Op) else Kind.OPAQUE for call in _calls(first)]
    is_small = len(kinds) <= MOST_CALLS and all(kind <= Kind.INJECTIVE for kind in kinds)
    return joined(argument, expr, place) if is_small else None


def _kernel(expr: Expr) -> Function | None:
    """The kernel that is called, if its result is one tensor."""
    is_call = isinstance(expr, Call) and isinstance(expr.op, Function) and not not_primitive(expr.op)
    return expr.op if is_call and isinstance(expr.checked_type, TensorType) else None  # type: ignore[attr-defined]


def _calls(function: Function) -> list[Call]:
    return [e for e in post_order(function.body) if isinstance(e, Call)]


def _is_moved(function: Function) -> bool:
    """Whether a kernel moves elements and computes nothing."""
    return len(function.params) == 1 and all(op_name(call) in MOVES for call in _calls(function))


def _takes(reader: Function, place: int, moves: Function) -> bool:
    """Whether a kernel reads the moved elements as well as those that were copied."""
    calls, parameter = _calls(reader), reader.params[place]
    kinds = [call.op.kind if isinstance(call.op, Op) else Kind.OPAQUE for call in calls]
    if all(kind <= Kind.INJECTIVE for kind in kinds):
        return len(calls) <= MOST_CALLS
    users = [call for call in calls if any(child is parameter for child in children(call))]
    return len(users) == 1 and _is_pointwise(users[0]) and users[0].args[0] is parameter and _is_part(moves)


def _is_pointwise(call: Call) -> bool:
    """Whether a convolution reads each pixel once, as the product of its channels."""
    if op_name(call) != "nn.conv2d":
        return False
    attrs, weight = call.attrs, call.args[1].checked_type
    is_plain = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW") and attrs.groups == 1
    once = set(attrs.strides) == {1} and not any(attrs.padding)
    return is_plain and once and isinstance(weight, TensorType) and weight.shape[2:] == (1, 1)


def _is_part(moves: Function) -> bool:
    """Whether a kernel gives some channels of images."""
    source, result = moves.params[0].checked_type, moves.body.checked_type
    if not isinstance(source, TensorType) or not isinstance(result, TensorType) or source.ndim != result.ndim:
        return False
    others = [k for k in range(source.ndim) if k != CHANNELS]
    is_slice = all(op_name(call) == "strided_slice" for call in _calls(moves))
    return is_slice and all(source.shape[k] == result.shape[k] for k in others)
