"""Rebuild expressions and statements with some parts replaced.

In: a node and a mapping of variables or buffers, or a function on sub-expressions. Out: the new node;
unchanged parts are
the same objects. Invariant: rebuilding goes through `tir/build.py`'s constructors, so constants fold on the way (an
unrolled index becomes a number), except where folding would hide a division by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from armillary.base.node import Node, Rules, children, map_children, post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S

Mapper = Callable[[E.Expr], E.Expr]
_NUMBERS = frozenset({E.IntImm, E.FloatImm})
_BUILDERS: dict[type, Callable[[E.Expr, E.Expr], E.Expr]] = {
    E.Add: build.add,
    E.Sub: build.sub,
    E.Mul: build.mul,
    E.Div: build.div,
    E.Min: build.minimum,
    E.Max: build.maximum,
    E.EQ: build.equal,
    E.NE: build.not_equal,
    E.LT: build.less,
    E.LE: build.less_equal,
    E.GT: build.greater,
    E.GE: build.greater_equal,
    E.And: build.logical_and,
    E.Or: build.logical_or,
}
_DIVISIONS: dict[type, Callable[[E.Expr, E.Expr], E.Expr]] = {
    E.FloorDiv: build.floordiv,
    E.FloorMod: build.floormod,
    E.TruncDiv: build.truncdiv,
    E.TruncMod: build.truncmod,
}


def binary(kind: type, a: E.Expr, b: E.Expr) -> E.Expr:
    """A binary node of this class, folded."""
    builder = _BUILDERS.get(kind)
    if builder is not None:
        return builder(a, b)
    if a.dtype.is_float or build.as_int(b) == 0:
        raw: E.Expr = kind(a, b)
        return raw
    return _DIVISIONS[kind](a, b)


def _binary(e: E.Binary, f: Mapper) -> E.Expr:
    a, b = f(e.a), f(e.b)
    return e if a is e.a and b is e.b and not _foldable(a, b) else binary(type(e), a, b)


def _foldable(a: E.Expr, b: E.Expr) -> bool:
    return type(a) in _NUMBERS and type(b) in _NUMBERS and not a.dtype.is_custom


def _leaf(e: E.Expr, f: Mapper) -> E.Expr:
    return e


def _generic(e: E.Expr, f: Mapper) -> E.Expr:
    result: E.Expr = map_children(e, lambda c: f(c) if isinstance(c, E.Expr) else c)  # type: ignore[assignment]
    return result


def _cast(e: E.Cast, f: Mapper) -> E.Expr:
    value = f(e.value)
    return e if value is e.value else build.cast(value, e.dtype)


def _not(e: E.Not, f: Mapper) -> E.Expr:
    a = f(e.a)
    return e if a is e.a else build.logical_not(a)


def _select(e: E.Select, f: Mapper) -> E.Expr:
    c, x, y = f(e.condition), f(e.true_value), f(e.false_value)
    if isinstance(c, E.IntImm):
        return x if c.value else y
    return e if c is e.condition and x is e.true_value and y is e.false_value else E.Select(c, x, y)


def _ramp(e: E.Ramp, f: Mapper) -> E.Expr:
    base, stride = f(e.base), f(e.stride)
    return e if base is e.base and stride is e.stride else E.Ramp(base, stride, e.lanes)


def _broadcast(e: E.Broadcast, f: Mapper) -> E.Expr:
    value = f(e.value)
    return e if value is e.value else E.Broadcast(value, e.lanes)


def _load(e: E.BufferLoad, f: Mapper) -> E.Expr:
    indices = tuple([f(i) for i in e.indices])
    return e if all(a is b for a, b in zip(indices, e.indices)) else E.BufferLoad(e.buffer, indices)


def _call(e: E.Call, f: Mapper) -> E.Expr:
    args = tuple([f(a) for a in e.args])
    if e.name == "if_then_else" and isinstance(args[0], E.IntImm):
        return args[1] if args[0].value else args[2]
    if e.name == "likely" and isinstance(args[0], E.IntImm):
        return args[0]
    return e if all(a is b for a, b in zip(args, e.args)) else E.Call(e.dtype, e.name, args)


REBUILD: Rules[[Mapper], E.Expr] = {
    **dict.fromkeys((E.Var, E.IntImm, E.FloatImm, E.StringImm), _leaf),
    **dict.fromkeys((*_BUILDERS, *_DIVISIONS), _binary),
    **dict.fromkeys((E.IterVar, E.ProducerLoad, E.Let, E.Reduce), _generic),
    E.Ramp: _ramp,
    E.Broadcast: _broadcast,
    E.Cast: _cast,
    E.Not: _not,
    E.Select: _select,
    E.BufferLoad: _load,
    E.Call: _call,
}


class ExprMapper:
    """Applies `rule` bottom-up to expressions, once per distinct node; None keeps the rebuilt node."""

    def __init__(self, rule: Callable[[E.Expr], E.Expr | None]) -> None:
        self.rule = rule
        self._memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def forget(self) -> None:
        self._memo = {}

    def __call__(self, item: E.Expr) -> E.Expr:
        memo = self._memo.get(id(item))
        if memo is not None:
            return memo[1]
        rebuilt = REBUILD[type(item)](item, self)
        changed = self.rule(rebuilt)
        result = rebuilt if changed is None else changed
        self._memo[id(item)] = (item, result)
        return result


class Substitution:
    """Puts expressions in the place of variables, and buffers in that of others; each distinct node is seen once.

    With `users` (see `users_of`), only these expressions are looked at.
    """

    def __init__(self, variables: Mapping[E.Var, E.Expr], users: frozenset[int] | None = None) -> None:
        self.variables, self.users = variables, users
        self.buffers: dict[S.Buffer, S.Buffer] = {}
        self._memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def forget(self) -> None:
        self._memo = {}

    def __call__(self, item: E.Expr) -> E.Expr:
        kind = type(item)
        if kind is E.Var:
            return self.variables.get(item, item)  # type: ignore[call-overload, no-any-return]
        if kind is E.IntImm or kind is E.FloatImm:
            return item
        memo = self._memo.get(id(item))
        if memo is not None:
            return memo[1]
        if self.users is not None and id(item) not in self.users:
            return item
        result = REBUILD[kind](item, self)
        if type(result) is E.BufferLoad and result.buffer in self.buffers:
            result = E.BufferLoad(self.buffers[result.buffer], result.indices)
        self._memo[id(item)] = (item, result)
        return result


class _Copy(Substitution):
    """A substitution that also renames what expressions bind."""

    def __call__(self, item: E.Expr) -> E.Expr:
        result = super().__call__(item)
        if type(result) is not E.Let or result.var is not item.var:  # type: ignore[attr-defined]
            return result
        var = E.Var(result.var.name, result.var.dtype)
        copied = E.Let(var, result.value, substitute_expr(result.body, {result.var: var}))
        self._memo[id(item)] = (item, copied)
        return copied


STATEMENTS: Rules[[Mapper, Callable[[S.Stmt], S.Stmt]], S.Stmt] = {}  # tir/blocks/block.py adds those of blocks


def map_stmt(item: S.Stmt, on_expr: Mapper, on_stmt: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    """`item` with its own expressions and its direct sub-statements mapped; buffers are left as they are."""
    kind = type(item)
    if kind is S.SeqStmt:
        parts = tuple([on_stmt(s) for s in item.statements])  # type: ignore[attr-defined]
        same = all(a is b for a, b in zip(parts, item.statements))  # type: ignore[attr-defined]
        return item if same else S.seq(*parts)
    if kind is S.BufferStore:
        return _store(item, on_expr)  # type: ignore[arg-type]
    special = STATEMENTS.get(kind)
    if special is not None:
        return special(item, on_expr, on_stmt)
    changes: dict[str, object] = {}
    for name in item._fields:
        value = getattr(item, name)
        if isinstance(value, S.Stmt):
            changes[name] = on_stmt(value)
        elif isinstance(value, E.Expr) and name not in ("var", "node"):
            changes[name] = on_expr(value)
    return replace(item, **changes)


def _store(item: S.BufferStore, on_expr: Mapper) -> S.BufferStore:
    value, indices = on_expr(item.value), tuple([on_expr(i) for i in item.indices])
    if value is item.value and all(a is b for a, b in zip(indices, item.indices)):
        return item
    return S.BufferStore(item.buffer, value, indices)


def substitute_expr(item: E.Expr, mapping: Mapping[E.Var, E.Expr]) -> E.Expr:
    """`item` with variables replaced."""
    return Substitution(mapping)(item)


def substitute(item: S.Stmt, mapping: Mapping[E.Var, E.Expr], users: frozenset[int] | None = None) -> S.Stmt:
    """A statement with variables replaced, also in the shapes of buffers allocated inside; `users` are theirs."""
    mapper = Substitution(mapping, users)
    return _with_shapes(item, mapper, mapper.buffers)


def users_of(item: S.Stmt, names: Set[Node]) -> frozenset[int]:
    """The expressions of a statement, by id, that hold one of the variables and buffers `names`, or bind one."""
    result: set[int] = set()
    for part in post_order(item):
        if part in names or type(part) is E.Let or any(id(c) in result for c in children(part)):
            result.add(id(part))
    return frozenset(result)


def map_all(item: S.Stmt, rule: Callable[[E.Expr], E.Expr | None]) -> S.Stmt:
    """Every expression of a statement mapped bottom-up by `rule`, shapes of allocated buffers included."""
    buffers: dict[S.Buffer, S.Buffer] = {}

    def expr_rule(e: E.Expr) -> E.Expr | None:
        if type(e) is E.BufferLoad and e.buffer in buffers:
            e = E.BufferLoad(buffers[e.buffer], e.indices)
            return rule(e) or e
        return rule(e)

    return _with_shapes(item, ExprMapper(expr_rule), buffers)


def _with_shapes(item: S.Stmt, mapper: Mapper, buffers: dict[S.Buffer, S.Buffer]) -> S.Stmt:
    """A statement mapped, shapes of allocated buffers included; `buffers` gets those whose shape changes."""

    def visit(s: S.Stmt) -> S.Stmt:
        if type(s) is S.Allocate:
            shape = tuple(mapper(x) for x in s.buffer.shape)
            if any(a is not b for a, b in zip(shape, s.buffer.shape)):
                buffers[s.buffer] = replace(s.buffer, shape=shape)
                return S.Allocate(buffers[s.buffer], visit(s.body))
        mapped = map_stmt(s, mapper, visit)
        if type(mapped) is S.BufferStore and mapped.buffer in buffers:
            return replace(mapped, buffer=buffers[mapped.buffer])
        return mapped

    return visit(item)


def rename_buffers(item: S.Stmt, mapping: Mapping[S.Buffer, S.Buffer]) -> S.Stmt:
    """A statement with every access to a buffer redirected; allocations stay as they are."""

    def redirect(e: E.Expr) -> E.Expr | None:
        return E.BufferLoad(mapping[e.buffer], e.indices) if type(e) is E.BufferLoad and e.buffer in mapping else None

    mapper = ExprMapper(redirect)

    def visit(s: S.Stmt) -> S.Stmt:
        mapped = map_stmt(s, mapper, visit)
        if type(mapped) is S.BufferStore and mapped.buffer in mapping:
            return replace(mapped, buffer=mapping[mapped.buffer])
        if type(mapped) is S.AttrStmt and mapped.node in mapping:
            return replace(mapped, node=mapping[mapped.node])  # type: ignore[index]
        return mapped

    return visit(item)


def fresh_copy(
    item: S.Stmt, mapping: Mapping[E.Var, E.Expr] | None = None, users: frozenset[int] | None = None
) -> S.Stmt:
    """A copy whose bound variables and allocated buffers are new (needed when a body is repeated).

    Variables of the mapping are replaced on the way; `users` are those of all that is new or replaced.
    """
    variables: dict[E.Var, E.Expr] = dict(mapping or {})
    mapper = _Copy(variables, users)
    buffers = mapper.buffers

    def visit(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.For | S.LetStmt):
            new = E.Var(s.var.name, s.var.dtype)
            variables[s.var] = new
            mapper.forget()  # the same variable may be bound again by a later loop
            return replace(map_stmt(s, mapper, visit), var=new)
        if isinstance(s, S.Allocate):
            buffers[s.buffer] = replace(s.buffer, name=s.buffer.name, shape=tuple(mapper(x) for x in s.buffer.shape))
            if buffers[s.buffer] is s.buffer:
                buffers[s.buffer] = type(s.buffer)(*(getattr(s.buffer, n) for n in s.buffer._fields))
            return S.Allocate(buffers[s.buffer], visit(s.body))
        mapped = map_stmt(s, mapper, visit)
        if isinstance(mapped, S.BufferStore) and mapped.buffer in buffers:
            return replace(mapped, buffer=buffers[mapped.buffer])
        if isinstance(mapped, S.AttrStmt) and isinstance(mapped.node, S.Buffer) and mapped.node in buffers:
            return replace(mapped, node=buffers[mapped.node])
        return mapped

    return visit(item)
