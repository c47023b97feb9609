"""annotate-target: mark what external libraries compute.

In: a module and names of libraries, the preferred ones first. Out: the module with `annotation.compiler_begin` around
the arguments and `annotation.compiler_end` around the result of each call that a library takes: composite functions of
its own, and operators that its table (relay/offload_tables.py) accepts and that are not `disabled`. With
`include_non_call_ops`, tuples and fields of tuples between calls of one library belong to it too. Invariant: the graph
computes the same; what lies in a region already stays as it is.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = nn.relu(%x);
      negative(%0)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = annotation.compiler_begin(%x, compiler="lib");
      %1 = nn.relu(%0);
      %2 = annotation.compiler_end(%1, compiler="lib");
      negative(%2)
    }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from armillary.relay.offload_tables import is_supported, refuse_without_row
from armillary.relay.transform._rules import call, on_functions, op_name
from armillary.relay.transform.partition._regions import BEGIN, END, Regions, compiler_of
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.transform import define_pass


@define_pass("annotate-target")
def annotate_target(
    module: IRModule,
    *,
    targets: str | Sequence[str] = (),
    include_non_call_ops: bool = True,
    disabled: Sequence[str] = (),
) -> IRModule:
    """Wrap supported calls in compiler_begin and compiler_end."""
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("annotate-target: name at least one library", hint='AnnotateTarget("arm_compute_lib")')
    return on_functions(module, lambda function: _annotate(function, names, include_non_call_ops, disabled))


def _annotate(function: Function, names: Sequence[str], structure: bool, disabled: Sequence[str]) -> Expr:
    memo: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    order = post_order(function, not_primitive)
    taken = _inside_regions(order) | {id(e) for e in order if op_name(e) in disabled}
    for expr in order:
        name = "" if id(expr) in taken else _library(expr, names, memo, structure)
        memo[id(expr)] = wrapped(expr, name, get) if name else copy_type(map_children(expr, get), expr)
    return memo[id(function)]


def _inside_regions(order: Sequence[Expr]) -> set[int]:
    """The nodes that were annotated before."""
    if not any(compiler_of(expr, END) for expr in order):
        return set()
    regions = Regions(order)
    return {id(expr) for expr in order if regions.library[regions.of(expr)]}


def wrapped(expr: Expr, name: str, get: Callable[[Expr], Expr]) -> Expr:
    """The expression as a region of its own."""
    begins: dict[int, Expr] = {}
    callee: object = expr.op if isinstance(expr, Call) else None

    def begin(arg: Expr) -> Expr:
        if arg is not callee and id(arg) not in begins:
            begins[id(arg)] = call(BEGIN, get(arg), compiler=name)
        return begins.get(id(arg), arg)

    return call(END, map_children(expr, begin), compiler=name)


def _library(expr: Expr, names: Sequence[str], memo: dict[int, Expr], structure: bool) -> str:
    """The library that takes an expression, "" for none."""
    if isinstance(expr, Call):
        for name in names:
            refuse_without_row(name, expr)
        return next((name for name in names if is_supported(name, expr)), "")
    if not structure or not isinstance(expr, Tuple | TupleGetItem):
        return ""
    parts = expr.fields if isinstance(expr, Tuple) else (expr.tuple_value,)
    owners = {compiler_of(memo.get(id(part), part), END) for part in parts}
    return owners.pop() if len(owners) == 1 else ""
