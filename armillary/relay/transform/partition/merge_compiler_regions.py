"""merge-compiler-regions: neighbouring regions of one library become one.

In: a module after annotate-target. Out: the same with `compiler_begin(compiler_end(x))` gone where both regions are one
now. Invariant: no two regions depend on each other, so each can run at once when its inputs are there; regions with a
way between them through something else stay apart.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = annotation.compiler_begin(%x, compiler="lib");
      %1 = nn.relu(%0);
      %2 = annotation.compiler_end(%1, compiler="lib");
      %3 = annotation.compiler_begin(%2, compiler="lib");
      %4 = negative(%3);
      annotation.compiler_end(%4, compiler="lib")
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = annotation.compiler_begin(%x, compiler="lib");
      %1 = nn.relu(%0);
      %2 = negative(%1);
      annotation.compiler_end(%2, compiler="lib")
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.partition._regions import BEGIN, END, Regions, compiler_of
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.transform import define_pass


@define_pass("merge-compiler-regions")
def merge_compiler_regions(module: IRModule) -> IRModule:
    """Join regions of the same library."""
    return on_functions(module, _merge)


def _merge(function: Function) -> Expr:
    order = post_order(function, not_primitive)
    regions = Regions(order)
    pairs = [pair for expr in order if (pair := _passed_on(expr)) is not None]
    for begin, end in pairs:
        regions.join(regions.of(end), regions.of(begin))
    memo: dict[int, Expr] = {}
    for expr in order:
        pair = _passed_on(expr)
        if pair is not None and regions.of(pair[0]) == regions.of(pair[1]):
            memo[id(expr)] = memo[id(pair[1].args[0])]
        else:
            memo[id(expr)] = copy_type(map_children(expr, lambda e: memo.get(id(e), e)), expr)
    return memo[id(function)]


def _passed_on(expr: Expr) -> tuple[Call, Call] | None:
    """A compiler_begin and the compiler_end of the same library right before it."""
    name = compiler_of(expr, BEGIN)
    if not name or not isinstance(expr, Call) or compiler_of(expr.args[0], END) != name:
        return None
    end = expr.args[0]
    return (expr, end) if isinstance(end, Call) else None
