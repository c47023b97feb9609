"""fuse-ops: turn the graph into calls of kernels.

In: a typed module. Out: one whose operator calls all lie in primitive functions (`Primitive=1`), each to become one
kernel; constants of one element stay inside, all other values come in as parameters p0, p1, … Invariant: the result
computes the same; running the pass again changes nothing. Which calls join: _fusion_groups.py. At opt_level 0 each
call is a kernel of its own.

    def @main(%x: Tensor[(2,), float32]) { %0 = nn.relu(%x); negative(%0) }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %2 = fn (%p0: Tensor[(2,), float32], Primitive=1) -> Tensor[(2,), float32] {
        %0 = nn.relu(%p0);
        negative(%0)
      };
      %2(%x)
    }
"""

from __future__ import annotations

from functools import partial

from armillary.ir import IRModule
from armillary.relay.expr import LARGEST_SPLAT, Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import on_functions, rewrite_module
from armillary.relay.transform.fusion._fusion_groups import assigned, build_nodes, group
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order, scopes
from armillary.transform import PassContext, define_pass, register_config_option

MAX_DEPTH = register_config_option("relay.FuseOps.max_depth", int, 256, "largest number of calls in one kernel")
LINK_PARAMS = register_config_option(
    "relay.FuseOps.link_params", bool, False, "constants of a few elements are written into the kernels that read them"
)
DEEPEST = 96  # calls of a kernel: lowering a chain of them walks as many expressions deep, in Python's stack


@define_pass("fuse-ops")
def fuse_ops(module: IRModule, *, fuse_opt_level: int = -1, deepest: int = 0) -> IRModule:
    """Group calls into primitive functions; `fuse_opt_level` -1 means that of the PassContext.

    `deepest` is the largest number of calls in one kernel whatever the context says, 0 for none.
    """
    context = PassContext.current()
    level = context.opt_level if fuse_opt_level < 0 else fuse_opt_level
    depth = min(context.get(MAX_DEPTH), deepest or context.get(MAX_DEPTH)) if level > 0 else 1
    inside = LARGEST_SPLAT if context.get(LINK_PARAMS) else 1
    module = rewrite_module(module, _stop_at_fields)
    return on_functions(module, partial(_fuse, max_depth=depth if level > 0 else 0, inside=inside))


@define_pass("kernel-per-call")
def kernel_per_call(module: IRModule) -> IRModule:
    """Make each call that lies in no kernel a kernel of its own: a build works with fusion switched off.

    nn.relu(x)  ->  fn(p0) { nn.relu(p0) }(x)
    """
    wrapped: IRModule = fuse_ops(module, fuse_opt_level=0)
    return wrapped


def _stop_at_fields(expr: Expr) -> Expr | None:
    """stop_fusion((a, b))  ->  (stop_fusion(a), stop_fusion(b))"""
    if not has(expr, Fact.ENDS_KERNEL) or not isinstance(expr, Call) or not isinstance(expr.args[0], Tuple):
        return None
    return Tuple(tuple(Call(expr.op, (field,), None) for field in expr.args[0].fields))


def _fuse(function: Function, max_depth: int, inside: int) -> Expr | None:
    computed = [e for e in post_order(function, not_primitive) if not isinstance(e, Var | Constant)]
    order = [e for e in computed if not isinstance(e, Function) or not_primitive(e)]
    nodes = build_nodes(order, function.body, scopes(function)[0])
    groups = assigned(group(nodes, max_depth)) if max_depth else range(len(nodes))
    members: dict[int, list[Expr]] = {}
    for k, node in enumerate(nodes):
        members.setdefault(groups[k], []).append(node.expr)
    return _Builder(members, function, inside).run(order)


class _Builder:
    """Rebuilds the function; a group is built when its root, the last of its members, is met."""

    def __init__(self, members: dict[int, list[Expr]], function: Function, inside: int) -> None:
        self.function, self.inside = function, inside  # elements of constants that stay inside
        self.memo: dict[int, Expr] = {}
        self.group_of: dict[int, list[Expr]] = {}
        for group_members in members.values():
            if any(isinstance(e, Call) and isinstance(e.op, Op) for e in group_members):
                self.group_of.update((id(e), group_members) for e in group_members)

    def run(self, order: list[Expr]) -> Expr:
        for expr in order:
            group = self.group_of.get(id(expr))
            if has(expr, Fact.ENDS_KERNEL) and isinstance(expr, Call):
                self.memo[id(expr)] = self._get(expr.args[0])
            elif group is None:
                self.memo[id(expr)] = copy_type(map_children(expr, self._get), expr)
            elif group[-1] is expr:
                self.memo[id(expr)] = self._kernel(group)
        return self.memo.get(id(self.function), self.function)

    def _get(self, expr: Expr) -> Expr:
        return self.memo.get(id(expr), expr)

    def _stays(self, constant: Constant) -> bool:
        return constant.nbytes <= 16 * self.inside and 1 <= constant.data.size <= self.inside

    def _kernel(self, members: list[Expr]) -> Expr:
        """A call of a primitive function made of the members, in post order."""
        root = members[-1]
        inner: dict[int, Expr] = {}
        params: list[Var] = []
        args: list[Expr] = []
        inside = {id(e) for e in members}

        def local(expr: Expr) -> Expr:
            if id(expr) in inner or (isinstance(expr, Constant) and self._stays(expr)):
                return inner.get(id(expr), expr)
            if id(expr) in inside:
                raise AssertionError("members of a group are in post order")
            params.append(Var(f"p{len(params)}", expr.checked_type))
            args.append(self._get(expr))
            inner[id(expr)] = params[-1]
            return params[-1]

        for expr in members:
            inner[id(expr)] = copy_type(map_children(expr, local), expr)
        kernel = Function(tuple(params), inner[id(root)], root.checked_type, (("Primitive", 1),))
        span = root.span if isinstance(root, Call | Tuple | TupleGetItem) else None
        return copy_type(Call(kernel, tuple(args), None, span), root)
