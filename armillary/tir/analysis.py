"""Questions about loop programs: which variables are free, which buffers are touched, does a call have effects.

In: expressions, statements, functions. Out: sets and lists in order of first appearance. Invariant: nothing
here changes
a program. Walks come from the nodes' fields (`node.children`), with the binding nodes known by name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from armillary.base.node import Node, Rules, children, post_order, reachable
from armillary.errors import TypeMismatch
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.intrinsics import INTRINSICS

_FOREIGN = ("call_extern", "call_pure_extern", "tvm_call_packed", "tvm_call_trace_packed")
_WRITES = 2  # of the ways an address is used
_LEAVES = (E.Var, E.IterVar, E.IntImm, E.FloatImm, E.StringImm)


def nodes_of(root: Node) -> Iterator[Node]:
    """Every node under `root` once, in any order."""
    return reachable(root)


def all_statements(root: S.Stmt, known: Container[int] = ()) -> Iterator[S.Stmt]:
    """Every statement under `root` once, children first, without a look at expressions or at what is `known`, by id."""
    seen: set[int] = set()
    stack: list[tuple[S.Stmt, bool]] = [(root, False)]
    while stack:
        item, done = stack.pop()
        if done:
            yield item
        elif id(item) not in seen and id(item) not in known:
            seen.add(id(item))
            parts = statements_inside(item)
            if parts:
                stack.append((item, True))
                stack.extend((part, False) for part in reversed(parts))
            else:
                yield item


def statements_inside(item: S.Stmt) -> tuple[S.Stmt, ...]:
    """The statements directly inside a statement, in order."""
    match item:
        case S.SeqStmt(statements):
            return statements
        case S.IfThenElse(_, then_body, else_body):
            return (then_body,) if else_body is None else (then_body, else_body)
        case S.BufferStore() | S.Evaluate():
            return ()
        case S.Stmt():
            return (item.body,)  # type: ignore[attr-defined]
    raise TypeMismatch(f"got {type(item).__name__}, wanted a statement")


def expressions_of(item: S.Stmt) -> list[E.Expr]:
    """The expressions of a statement, without those of statements inside it."""
    if not isinstance(item, S.Stmt):
        raise TypeMismatch(f"expressions_of: got {type(item).__name__}, wanted a statement")
    values = (getattr(item, name) for name in item._fields if name not in ("var", "node"))
    parts = (part for value in values for part in (value if isinstance(value, tuple) else (value,)))
    return [part for part in parts if isinstance(part, E.Expr)]


def free_vars(root: Node) -> tuple[E.Var, ...]:
    """Variables used but not bound under `root`, in order of appearance (a function's scalar params are bound).

    Sound for programs where each variable is bound at one place, as every pass keeps them.
    """
    bound: set[E.Var] = set()
    used: set[E.Var] = set()
    for item in reachable(root):
        kind = type(item)
        if kind is E.Var:
            used.add(item)  # type: ignore[arg-type]
        elif kind in BINDERS:
            bound.update(BINDERS[kind](item))
    variables: dict[E.Var, None] = {}
    if not used <= bound:
        variables = {item: None for item in post_order(root) if isinstance(item, E.Var)}
    if isinstance(root, S.PrimFunc):
        bound.update(p for p in root.params if isinstance(p, E.Var))
        for value in _expressions_in(root.attrs):
            variables.update(dict.fromkeys(free_vars(value)))
    return tuple(v for v in variables if v not in bound)


BINDERS: Rules[[], Iterable[E.Var]] = {
    **dict.fromkeys((S.For, S.LetStmt, E.Let), lambda item: (item.var,)),
    S.AttrStmt: lambda item: (item.node.var,) if isinstance(item.node, E.IterVar) else (),
    E.Reduce: lambda item: tuple(a.var for a in item.axis),
    E.CommReducer: lambda item: (*item.lhs, *item.rhs),
}


def _expressions_in(value: object) -> Iterator[E.Expr]:
    """The expressions inside an attribute value."""
    if isinstance(value, E.Expr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _expressions_in(item)


def uses_var(root: Node, var: E.Var) -> bool:
    """Whether `var` occurs under `root`."""
    return any(item is var for item in reachable(root))


def uses_any(root: Node, variables: set[E.Var] | frozenset[E.Var]) -> bool:
    """Whether one of `variables` occurs under `root`."""
    if not isinstance(variables, AbstractSet | Sequence | Mapping) or isinstance(variables, str | bytes):
        raise TypeMismatch(f"uses_any: got {type(variables).__name__}, wanted a set of variables")
    return any(item in variables for item in reachable(root) if type(item) is E.Var)


def is_pure(item: E.Expr) -> bool:
    """Whether evaluating the expression changes nothing (it may read memory)."""
    for part in reachable(item):
        if isinstance(part, E.Call):
            row = INTRINSICS.get(part.name)
            if row is None or not row.pure:
                return False
    return True


def has_loads(item: E.Expr) -> bool:
    """Whether evaluating the expression reads memory."""
    return any(isinstance(part, E.BufferLoad | E.ProducerLoad) for part in reachable(item))


def is_unsafe(item: E.Expr) -> bool:
    """Whether evaluating it where it was guarded could fault: a load, a division by a non-constant, a foreign call."""
    for part in reachable(item):
        if isinstance(part, E.BufferLoad | E.ProducerLoad):
            return True
        if isinstance(part, E.FloorDiv | E.FloorMod | E.TruncDiv | E.TruncMod) and not _is_nonzero(part.b):
            return True
        if isinstance(part, E.Call) and part.name in _FOREIGN:
            return True
    return False


def stores_of(item: S.Stmt) -> tuple[S.Buffer, ...]:
    """The buffers that a statement itself may write: of a store, and those whose addresses it gives away for that."""
    if isinstance(item, S.BufferStore):
        return (item.buffer, *_written_addresses(item.value)) if isinstance(item.value, E.Call) else (item.buffer,)
    return _written_addresses(item.value) if isinstance(item, S.Evaluate | S.LetStmt) else ()


def _written_addresses(value: E.Expr) -> tuple[S.Buffer, ...]:
    calls = (part for part in reachable(value) if isinstance(part, E.Call) and part.name == "address_of")
    return tuple(call.args[0].buffer for call in calls if isinstance(call.args[0], E.BufferLoad) and _is_written(call))


def _is_written(address: E.Call) -> bool:
    mask = address.args[1] if len(address.args) > 1 else None
    return not isinstance(mask, E.IntImm) or bool(mask.value & _WRITES)


def evaluated_by_both(a: E.Expr, b: E.Expr) -> list[E.Expr]:
    """The largest parts of `b` that `a` has too, and that both evaluate whatever their own choices come to."""
    in_a = {id(part) for part in _certain(a, frozenset())}
    return [part for part in _certain(b, in_a) if id(part) in in_a]


def _certain(root: E.Expr, stop: AbstractSet[int]) -> Iterator[E.Expr]:
    """The values that evaluating `root` always needs, indices of loads left out; none inside one of `stop`."""
    seen: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, _LEAVES) or not isinstance(item, E.Expr):
            continue
        seen.add(id(item))
        yield item
        if id(item) in stop or isinstance(item, E.BufferLoad | E.Let):
            continue
        is_choice = isinstance(item, E.Call) and item.name == "if_then_else"
        stack.extend(item.args[:1] if is_choice else children(item))  # type: ignore[attr-defined]


def _is_nonzero(item: E.Expr) -> bool:
    value = item.value if isinstance(item, E.Broadcast) else item
    return isinstance(value, E.IntImm | E.FloatImm) and value.value != 0
