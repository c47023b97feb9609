"""split-args: concatenations of more tensors than a kernel may have arguments, in steps.

In: a module; how many arguments a kernel may have (0: any number). Out: one in which a concatenation of more is one of
concatenations, each a kernel of its own: `annotation.stop_fusion` stands between them. Invariant: values stay. A tensor
of open sizes counts its sizes and strides, too, as kernels get them.

    def @main(%a: Tensor[(1,), int8], %b: Tensor[(1,), int8], %c: Tensor[(1,), int8]) {
      %0 = (%a, %b, %c);
      concatenate(%0)
    }
    ->
    def @main(%a: Tensor[(1,), int8], %b: Tensor[(1,), int8], %c: Tensor[(1,), int8]) {
      %0 = (%a, %b);
      %1 = annotation.stop_fusion(%0);
      %2 = concatenate(%1);
      %3 = (%2, %c);
      %4 = annotation.stop_fusion(%3);
      concatenate(%4)
    }
"""

from __future__ import annotations

from functools import partial

from armillary.base.lazy import deferred
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Tuple
from armillary.relay.op import Op
from armillary.relay.op.facts import Follows
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.types import TensorType, Type
from armillary.transform import define_pass

with deferred():
    from armillary.ops.misc.annotation import stop_fusion as _stop_fusion


@define_pass("split-args")
def split_args(module: IRModule, *, max_function_args: int = 0) -> IRModule:
    """Concatenate in steps of at most `max_function_args` tensors, the result among them."""
    if type(max_function_args) is not int or max_function_args < 0:
        raise ConfigError(f"split-args: max_function_args is a count, 0 for any number, got {max_function_args!r}")
    return rewrite_module(module, partial(_split, most=max_function_args)) if max_function_args else module


def _split(expr: Expr, most: int) -> Expr | None:
    """concatenate((a, b, c))  ->  concatenate((concatenate((a, b)), c))   if `most` allows three arguments"""
    joins = isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.layout_follows == Follows.JOIN
    if not joins or not isinstance(expr, Call) or not isinstance(expr.args[0], Tuple):
        return None
    fields, result = expr.args[0].fields, expr.checked_type
    strides = len(result.shape) if _open_sizes(result) and isinstance(result, TensorType) else 0
    counts = [1 + _sizes_and_strides(field.checked_type) for field in fields]
    limit = most - 1 - strides
    if sum(counts) < limit:
        return None
    if max(counts) * 2 > limit:
        raise ConfigError(f"split-args: max_function_args is {most}, too few to concatenate two tensors {result}")
    step, used = list[Expr](), 0
    for field, count in zip(fields, counts, strict=True):
        if used + count > limit:
            step, used = [_joined(step, expr)], count
        step.append(field)
        used += count
    return _joined(step, expr)


def _joined(step: list[Expr], source: Call) -> Expr:
    return Call(source.op, (_stop_fusion(Tuple(tuple(step))),), source.attrs, source.span)


def _open_sizes(ty: Type) -> int:
    return sum(type(size) is not int for size in ty.shape) if isinstance(ty, TensorType) else 0


def _sizes_and_strides(ty: Type) -> int:
    """What a kernel gets beside a tensor: its open sizes and, where there are any, its strides."""
    count = _open_sizes(ty)
    return count + len(ty.shape) if count and isinstance(ty, TensorType) else 0
