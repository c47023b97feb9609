"""Kernels whose parameters and results are stored in a 16-bit float, with their arithmetic in float32 as before.

In: the nodes of a function of kernels, which of them are stored in a type. Out: the function, in which these constants
and results are in it: kernels have casts behind their parameters and before their results. Invariant: between the casts
they are the same; operators that take the narrow type themselves read it without one.
Users: store_bfloat16 (backends/cpu/graph), store_half (backends/opencl/graph).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from armillary.backends.small_floats.graph.widen_small_floats import only_moves
from armillary.base.dtype import DType
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.infer import infer_type
from armillary.relay.op import Op
from armillary.relay.transform._rules import call, op_name
from armillary.relay.transform.simplify._narrow_values import narrowed
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, not_primitive, post_order

Takes = Callable[[Call], object]  # the attributes of a call whose first argument may be narrow, else None


def kernel_of(expr: Expr) -> Function | None:
    """The kernel that an expression calls."""
    if isinstance(expr, Call) and isinstance(expr.op, Function) and not not_primitive(expr.op):
        return expr.op
    return None


def takes_none(expr: Call) -> object:
    """No operator reads the narrow type."""
    return None


def with_stored(order: Sequence[Expr], stored: Set[int], dtype: str, takes: Takes = takes_none) -> Expr:
    """The last node of `order` anew, with the nodes that `stored` names in a narrow type, which only kernels read."""
    new: dict[int, Expr] = {}
    for expr in order:
        rebuilt = map_children(expr, lambda e: new.get(id(e), e))
        kernel = kernel_of(expr)
        if kernel is not None and isinstance(expr, Call) and isinstance(rebuilt, Call):
            places = [k for k, arg in enumerate(expr.args) if id(arg) in stored]
            changed = _with_narrow(kernel, places, dtype, takes, gives=id(expr) in stored)
            rebuilt = rebuilt if changed is kernel else Call(changed, rebuilt.args, None, expr.span)
        elif isinstance(expr, Constant) and id(expr) in stored:
            rebuilt = narrowed(expr, DType(dtype))
        new[id(expr)] = rebuilt
    return new[id(order[-1])]


def _with_narrow(kernel: Function, places: Sequence[int], dtype: str, takes: Takes, *, gives: bool) -> Function:
    """The kernel with parameters in a narrow type, and its result if it `gives` one."""
    if not places and not gives:
        return kernel
    params, values = list(kernel.params), {}
    only_moves = gives and len(places) == len(params) and all(map(_moves, post_order(kernel.body)))
    for k in places:
        ty = infer_type(kernel.params[k])
        assert isinstance(ty, TensorType), "what is narrow is a tensor"
        params[k] = Var(kernel.params[k].name_hint, TensorType(ty.shape, DType(dtype)))
        values[id(kernel.params[k])] = params[k]
    body = _moved(kernel.body, values) if only_moves else _widened(kernel.body, values, takes)
    if gives and not only_moves:
        body = _rounded(body, dtype)
    result = Function(tuple(params), body, None, kernel.attrs, kernel.span)
    infer_type(result)
    return result


def _moves(expr: Expr) -> bool:
    """Whether a node of a kernel computes nothing: such kernels move the narrow type."""
    return not isinstance(expr, Call) or (isinstance(expr.op, Op) and only_moves(expr))


def _moved(body: Expr, narrow: Mapping[int, Var]) -> Expr:
    """The same moves of parameters in the narrow type."""
    memo: dict[int, Expr] = dict(narrow)
    for expr in post_order(body):
        memo.setdefault(id(expr), map_children(expr, lambda e: memo.get(id(e), e)))
    return memo[id(body)]


def _rounded(body: Expr, dtype: str) -> Expr:
    """cast(x, dtype="float32")  ->  x   if x is of the narrow type, else cast(body, dtype=...)"""
    if op_name(body) == "cast" and isinstance(body, Call):
        source = infer_type(body.args[0])
        if isinstance(source, TensorType) and source.dtype == dtype:
            return body.args[0]
    return call("cast", body, dtype=dtype)


def _widened(body: Expr, narrow: Mapping[int, Var], takes: Takes) -> Expr:
    """A kernel's body in which the uses of some parameters read others in the narrow type."""
    wide: dict[int, Expr] = {old: call("cast", new, dtype="float32") for old, new in narrow.items()}
    memo: dict[int, Expr] = {}

    def new(expr: Expr) -> Expr:
        return memo.get(id(expr)) or wide.get(id(expr), expr)

    for expr in post_order(body):
        is_read = isinstance(expr, Call) and isinstance(expr.op, Op) and expr.args and id(expr.args[0]) in narrow
        attrs = takes(expr) if is_read else None  # type: ignore[arg-type]  # a Call, as is_read says
        if attrs is not None and isinstance(expr, Call):
            memo[id(expr)] = Call(expr.op, (narrow[id(expr.args[0])], *map(new, expr.args[1:])), attrs, expr.span)
        elif id(expr) not in narrow:
            memo[id(expr)] = map_children(expr, new)
    return memo.get(id(body)) or wide[id(body)]
