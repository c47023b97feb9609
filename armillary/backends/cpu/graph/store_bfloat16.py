"""store-bfloat16: between the kernels of a network with products in bfloat16, images are bfloat16.

In: a module after fuse-ops, whose functions say what may be in bfloat16 (_bf16_products.py). Out: a kernel that works
on bfloat16 and gives a blocked image in float32 rounds it, where all that read it are kernels that compute with its
elements or with windows of them, not such as only move it; these widen it again. Half as many bytes lie between them.
Invariant: arithmetic stays in float32, and so does what leaves the function or enters any other kernel.

    %0 = fn (%p0, %p1, Primitive=1) { nn.relu(cpu.conv2d_NCHWc_bf16(%p0, %p1)) };
    %1 = fn (%p0, Primitive=1) { nn.max_pool2d(%p0, layout="NCHW32c") };
    %1(%0(%x, weight))
    ->
    %0 = fn (%p0, %p1, Primitive=1) { cast(nn.relu(cpu.conv2d_NCHWc_bf16(%p0, %p1)), dtype="bfloat16") };
    %1 = fn (%p0, Primitive=1) { nn.max_pool2d(cast(%p0, dtype="float32"), layout="NCHW32c") };
    %1(%0(%x, weight))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set

from armillary.backends.cpu.graph._bf16_products import allowed
from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.ops._dot_operands import BFLOAT16
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import on_functions, op_name, tensor
from armillary.relay.walk import not_primitive, post_order, users
from armillary.transform import define_pass

with deferred():
    from armillary.backends.small_floats.graph._narrow_kernel import kernel_of, with_stored

_DEPTHWISE = "nn.contrib_depthwise_conv2d_NCHWc"
_MOVES = frozenset({"layout_transform", "reshape", "transpose", "strided_slice"})
_IMAGE_AXES = 5  # of one in blocks of channels


@define_pass("store-bfloat16", opt_level=3)
def store_bfloat16(module: IRModule) -> IRModule:
    """Round the images that lie between kernels."""
    return on_functions(module, _change)


def _change(function: Function) -> Expr | None:
    order = post_order(function, not_primitive) if allowed(function) else []
    readers = users(order)
    stored: set[int] = set()
    for expr in order:  # producers come first
        if _gives_image(expr, stored) and _can_store(expr, readers.get(id(expr), ()), function):
            stored.add(id(expr))
    if not stored:
        return None
    return with_stored(order, stored, BFLOAT16, _takes_bfloat16)


def _gives_image(expr: Expr, stored: Set[int]) -> bool:
    """Whether a kernel that reads bfloat16, or will, gives a float32 image in blocks."""
    kernel, result = kernel_of(expr), tensor(expr)
    if kernel is None or not isinstance(expr, Call) or result is None:
        return False
    if result.dtype != "float32" or result.ndim != _IMAGE_AXES:
        return False
    is_half = any(ty is not None and ty.dtype == BFLOAT16 for ty in map(tensor, kernel.params))
    return is_half or any(id(arg) in stored for arg in expr.args)


def _can_store(image: Expr, readers: Sequence[Expr], function: Function) -> bool:
    """Whether all readers are kernels that take their elements one by one, or in windows."""
    return image is not function.body and bool(readers) and all(_widens(reader, image) for reader in readers)


def _widens(reader: Expr, image: Expr) -> bool:
    kernel = kernel_of(reader)
    if kernel is None or not isinstance(reader, Call):
        return False
    order = post_order(kernel.body)
    if all(op_name(e) in _MOVES for e in order if isinstance(e, Call)):
        return False  # what it moves may leave the function
    inside = users(order)
    params = [p for p, arg in zip(kernel.params, reader.args, strict=True) if arg is image]
    return all(_takes_elements(use, p) for p in params for use in inside.get(id(p), [reader]))


def _takes_elements(use: Expr, parameter: Expr) -> bool:
    if not isinstance(use, Call) or not isinstance(use.op, Op):
        return False
    if use.op.name == _DEPTHWISE:
        return use.args[0] is parameter
    return use.op.kind <= Kind.REDUCE or "pool2d" in use.op.name


def _takes_bfloat16(expr: Call) -> object:
    """Those of a depthwise convolution of images in bfloat16."""
    return dataclasses.replace(expr.attrs, out_dtype="float32") if expr.op.name == _DEPTHWISE else None
