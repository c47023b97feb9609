"""Questions about graphs: variables, operators, structure.

In: expressions. Out: lists, counts, hashes. Invariant: nothing here changes anything or recurses; `structural_hash` is
the same for structurally equal graphs, on every machine and in every run, so it can name kernels and cache entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from armillary.errors import TypeMismatch
from armillary.ir import FROM_EXPR, BaseFunc, GlobalVar, IRModule
from armillary.node import structural_equal
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from armillary.relay.infer import check_module, infer_type
from armillary.relay.op import Op
from armillary.relay.printer import literal_text
from armillary.relay.walk import children, post_order

__all__ = [
    "all_vars", "bound_vars", "check_module", "close_over", "count_ops", "free_vars", "infer_type", "op_frequency",
    "post_order_visit", "structural_equal", "structural_hash",
]  # fmt: skip


def post_order_visit(expr: Expr, visit: Callable[[Expr], Any]) -> None:
    """Call `visit` on every node once, children first; operators are nodes here, as Relay-era scripts expect."""
    seen: set[int] = set()
    for node in post_order(expr):
        if isinstance(node, Call) and isinstance(node.op, Op) and id(node.op) not in seen:
            seen.add(id(node.op))
            visit(node.op)
        visit(node)


def all_vars(expr: Expr) -> list[Var]:
    """Every variable, in post order."""
    return [e for e in post_order(expr) if isinstance(e, Var)]


def bound_vars(expr: Expr) -> list[Var]:
    """Variables bound by a let or a parameter list, in post order."""
    order = post_order(expr)
    bound = {id(e.var) for e in order if isinstance(e, Let)}
    bound |= {id(p) for e in order if isinstance(e, Function) for p in e.params}
    return [e for e in order if isinstance(e, Var) and id(e) in bound]


def free_vars(expr: Expr) -> list[Var]:
    """Variables used but not bound, in post order."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in all_vars(expr) if id(v) not in bound]




def close_over(expr: Expr) -> Function:
    """A function of the free variables of `expr`."""
    if not isinstance(expr, Expr):
        raise TypeMismatch(f"expected a relay expression, got {type(expr).__name__}")
    return Function(tuple(free_vars(expr)), expr)


def op_frequency(item: Expr | IRModule) -> dict[str, int]:
    """How many calls of each operator there are, by name; functions inside are counted too."""
    counts: dict[str, int] = {}
    roots = [f for _, f in item.items() if isinstance(f, Expr)] if isinstance(item, IRModule) else [item]
    for root in roots:
        for e in post_order(root):
            if isinstance(e, Call) and isinstance(e.op, Op):
                counts[e.op.name] = counts.get(e.op.name, 0) + 1
    return dict(sorted(counts.items()))


count_ops = op_frequency


def structural_hash(expr: Expr | BaseFunc) -> str:
    """32 hex digits that depend on structure only: not on names of variables, spans or sharing."""
    digests: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    order = post_order(expr) if isinstance(expr, Expr) else []
    for node in order:
        if isinstance(node, Var):
            numbers.setdefault(id(node), len(numbers))
        parts = [type(node).__name__.encode(), _own(node, numbers), *(digests[id(c)] for c in children(node))]
        digests[id(node)] = hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
    return digests[id(expr)].hex() if order else hashlib.blake2b(repr(expr).encode(), digest_size=16).hexdigest()


def _own(node: Expr, numbers: dict[int, int]) -> bytes:
    """What a node adds to its children."""
    match node:
        case Var():
            text = f"{numbers[id(node)]}:{node.type_annotation}"
        case Constant():
            header = f"{node.data.dtype.name}:{node.data.shape}:".encode()
            return header + hashlib.blake2b(node.data.tobytes(), digest_size=16).digest()
        case Call():
            callee = node.op.name if isinstance(node.op, Op) else ""
            callee = f"@{node.op.name_hint}" if isinstance(node.op, GlobalVar) else callee
            text = f"{callee}:{node.attrs!r}"
        case TupleGetItem():
            text = str(node.index)
        case Function():
            text = f"{node.ret_type}:" + ",".join(f"{k}={literal_text(v)}" for k, v in node.attrs)
        case Tuple() | Let() | If() | _:
            text = ""
    return text.encode()


FROM_EXPR.append(close_over)
