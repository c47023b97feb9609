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
from armillary.base.dtype import DType
from armillary.ir import IRModule
from armillary.ops._dot_operands import BFLOAT16
from armillary.relay.expr import Call, Expr, Function, Var
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import call, on_functions, op_name, tensor
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.transform import define_pass

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
    new: dict[int, Expr] = {}
    for expr in order:
        rebuilt = map_children(expr, lambda e: new.get(id(e), e))
        kernel = _kernel(expr)
        if kernel is not None and isinstance(expr, Call) and isinstance(rebuilt, Call):
            places = [k for k, arg in enumerate(expr.args) if id(arg) in stored]
            changed = _with_bfloat16(kernel, places, gives=id(expr) in stored)
            rebuilt = rebuilt if changed is kernel else Call(changed, rebuilt.args, None, expr.span)
        new[id(expr)] = rebuilt
    return new[id(function)]


def _kernel(expr: Expr) -> Function | None:
    """The kernel that an expression calls."""
    if isinstance(expr, Call) and isinstance(expr.op, Function) and not not_primitive(expr.op):
        return expr.op
    return None


def _gives_image(expr: Expr, stored: Set[int]) -> bool:
    """Whether a kernel that reads bfloat16, or will, gives a float32 image in blocks."""
    kernel, result = _kernel(expr), tensor(expr)
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
    kernel = _kernel(reader)
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


def _with_bfloat16(kernel: Function, places: Sequence[int], *, gives: bool) -> Function:
    """The kernel with parameters in bfloat16, and its result if it `gives` one."""
    if not places and not gives:
        return kernel
    params, values = list(kernel.params), {}
    for k in places:
        ty = infer_type(kernel.params[k])
        assert isinstance(ty, TensorType), "an image"
        params[k] = Var(kernel.params[k].name_hint, TensorType(ty.shape, DType(BFLOAT16)))
        values[id(kernel.params[k])] = params[k]
    body = _widened(kernel.body, values)
    if gives:
        body = _rounded(body)
    result = Function(tuple(params), body, None, kernel.attrs, kernel.span)
    infer_type(result)
    return result


def _rounded(body: Expr) -> Expr:
    """cast(x, dtype="float32")  ->  x   if x is bfloat16, else cast(body, dtype="bfloat16")"""
    if op_name(body) == "cast" and isinstance(body, Call):
        source = infer_type(body.args[0])
        if isinstance(source, TensorType) and source.dtype == BFLOAT16:
            return body.args[0]
    return call("cast", body, dtype=BFLOAT16)


def _widened(body: Expr, narrow: dict[int, Var]) -> Expr:
    """A kernel's body in which the uses of some parameters read others in bfloat16."""
    wide: dict[int, Expr] = {old: call("cast", new, dtype="float32") for old, new in narrow.items()}
    memo: dict[int, Expr] = {}

    def new(expr: Expr) -> Expr:
        return memo.get(id(expr)) or wide.get(id(expr), expr)

    for expr in post_order(body):
        if op_name(expr) == _DEPTHWISE and isinstance(expr, Call) and id(expr.args[0]) in narrow:
            attrs = dataclasses.replace(expr.attrs, out_dtype="float32")
            memo[id(expr)] = Call(expr.op, (narrow[id(expr.args[0])], new(expr.args[1])), attrs, expr.span)
        elif id(expr) not in narrow:
            memo[id(expr)] = map_children(expr, new)
    return memo.get(id(body)) or wide[id(body)]
