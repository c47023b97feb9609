"""Patterns over graphs: say a shape of expression, match it, rewrite what matches.

In: `conv = is_op("nn.conv2d")(wildcard(), is_constant()); pattern = is_op("nn.relu")(conv | conv.optional(...))`. Out:
`pattern.match(expr)`, `match(pattern, expr)` (which part matched what) and `rewrite(callbacks, expr)`. Invariant: one
pattern object stands for one expression within a match, so a pattern used twice demands the same value twice.
Users know this module as `relay.dataflow_pattern`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.base.node import structural_equal
from armillary.errors import InternalError, TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, as_expr, has_untyped
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, get_op
from armillary.relay.types import Type
from armillary.relay.walk import children, map_children, not_primitive, post_order, users

Bindings = dict["DFPattern", Expr]
Check = Callable[[Expr], str | bool | None]
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or"})
_MAX_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class DFPattern:
    """Base of patterns: call it, combine it with `|`, `+` …, narrow it with has_*."""

    def match(self, expr: Expr) -> bool:
        """Whether an expression has this form."""
        return match(self, expr) is not None

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        if len(args) == 1 and args[0] is None:
            return CallPattern(self, None)  # any arguments
        if len(args) == 1 and isinstance(args[0], list | tuple):
            args = tuple(args[0])
        return CallPattern(self, tuple(a for a in args if a is not None))

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: dict[str, Any]) -> DFPattern:
        """Narrow to calls or functions whose attributes have these values."""
        return CheckPattern(self, lambda e: _has_attrs(e, attrs))

    def has_type(self, ty: Type) -> DFPattern:
        return CheckPattern(self, lambda e: e.checked_type == ty)

    def has_dtype(self, dtype: str) -> DFPattern:
        return CheckPattern(self, lambda e: getattr(e.checked_type, "dtype", None) == dtype)

    def has_shape(self, shape: Sequence[int]) -> DFPattern:
        return CheckPattern(self, lambda e: getattr(e.checked_type, "shape", None) == tuple(shape))

    def optional(self, wrap: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """This pattern, with or without what `wrap` puts around it."""
        return AltPattern(wrap(self), self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This pattern, all of whose inputs come from `parent` through nodes that match `path`."""
        return DominatorPattern(parent, path if path is not None else wildcard(), self)

    def rewrite(self, callback: Callable[[Expr, Expr, Any], Expr], expr: Expr) -> Expr:
        """Replace what matches by `callback(pre, post, node_map)`."""
        made = DFPatternCallback()
        made.pattern = self
        made.callback = callback  # type: ignore[method-assign, assignment]
        return rewrite(made, expr)

    def partition(self, expr: Expr, attrs: dict[str, Any] | None = None, check: Check | None = None) -> Expr:
        """Put each match that `check` accepts into a function of its own, called in its place."""
        return partition(self, expr, attrs, check)


@dataclass(frozen=True, eq=False)
class WildcardPattern(DFPattern):
    """Anything."""


@dataclass(frozen=True, eq=False)
class ExprPattern(DFPattern):
    """One given expression, or operator."""

    expr: Expr


@dataclass(frozen=True, eq=False)
class VarPattern(DFPattern):
    """A variable, of that name if one is given."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class ConstantPattern(DFPattern):
    """A constant."""


@dataclass(frozen=True, eq=False)
class CallPattern(DFPattern):
    """A call; args None means any."""

    op: DFPattern
    args: tuple[DFPattern, ...] | None


@dataclass(frozen=True, eq=False)
class FunctionPattern(DFPattern):
    """A function; params None means any."""

    params: tuple[DFPattern, ...] | None
    body: DFPattern


@dataclass(frozen=True, eq=False)
class TuplePattern(DFPattern):
    """A tuple; fields None means any."""

    fields: tuple[DFPattern, ...] | None


@dataclass(frozen=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """A field of a tuple; index None means any."""

    tuple_value: DFPattern
    index: int | None


@dataclass(frozen=True, eq=False)
class IfPattern(DFPattern):
    """A branch."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern


@dataclass(frozen=True, eq=False)
class LetPattern(DFPattern):
    """A let."""

    var: DFPattern
    value: DFPattern
    body: DFPattern


@dataclass(frozen=True, eq=False)
class AltPattern(DFPattern):
    """Either."""

    left: DFPattern
    right: DFPattern


@dataclass(frozen=True, eq=False)
class CheckPattern(DFPattern):
    """A pattern and a condition."""

    pattern: DFPattern
    condition: Callable[[Any], bool]  # Any: expressions have different attributes


@dataclass(frozen=True, eq=False)
class DominatorPattern(DFPattern):
    """`child`, fed only by `parent` through `path`."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern


# --- constructors ---------------------------------------------------------------------------------------------------


def wildcard() -> DFPattern:
    """Matches anything."""
    return WildcardPattern()


def is_op(name: str) -> DFPattern:
    """Matches the operator; `is_op("add")(a, b)` matches its calls."""
    return ExprPattern(get_op(name))


def is_expr(expr: Expr) -> DFPattern:
    """Matches an expression structurally equal to `expr`."""
    return ExprPattern(expr)


def is_var(name: str = "") -> DFPattern:
    """Matches a variable, of that name if one is given."""
    return VarPattern(name)


def is_constant() -> DFPattern:
    """Matches a constant."""
    return ConstantPattern()


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """Matches a tuple, of these fields if given."""
    return TuplePattern(None if fields is None else tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """Matches a field of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> DFPattern:
    """Matches a branch."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> DFPattern:
    """Matches a let."""
    return LetPattern(var, value, body)


def has_attr(attrs: dict[str, Any], pattern: DFPattern | None = None) -> DFPattern:
    """Matches calls or functions with these attribute values."""
    return (pattern or wildcard()).has_attr(attrs)


def has_type(ty: Type, pattern: DFPattern | None = None) -> DFPattern:
    """Matches expressions of this type."""
    return (pattern or wildcard()).has_type(ty)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    """Matches tensors of this dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[int], pattern: DFPattern | None = None) -> DFPattern:
    """Matches tensors of this shape."""
    return (pattern or wildcard()).has_shape(shape)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """Matches `child` where all its inputs come from `parent` through `path`."""
    return DominatorPattern(parent, path, child)


def _has_attrs(expr: Any, wanted: dict[str, Any]) -> bool:
    if isinstance(expr, Function):
        return all(expr.get_attr(name) == value for name, value in wanted.items())
    if isinstance(expr, Op):
        return wanted.keys() <= {"TOpPattern"} and all(int(expr.kind) == v for v in wanted.values())
    attrs = getattr(expr, "attrs", None)
    missing = object()

    def same(name: str, value: Any) -> bool:
        if name == "TOpPattern" and isinstance(expr, Call) and isinstance(expr.op, Op):
            return bool(int(expr.op.kind) == value)
        have = getattr(attrs, name, missing)
        return bool(have == (tuple(value) if isinstance(value, list) else value))

    return all(same(name, value) for name, value in wanted.items())


# --- matching -------------------------------------------------------------------------------------------------------


def match(pattern: DFPattern, expr: Any) -> Bindings | None:
    """What each part of the pattern matched, or None."""
    if not isinstance(pattern, DFPattern):
        raise TypeMismatch(f"expected a pattern, got {type(pattern).__name__}", hint="start with is_op, wildcard…")
    return _match(pattern, expr, {})


def _match(pattern: DFPattern, expr: Any, have: Bindings) -> Bindings | None:
    if pattern in have:
        return have if have[pattern] is expr else None
    found = _MATCHERS[type(pattern)](pattern, expr, have)
    return None if found is None else {**found, pattern: expr}


def _match_all(patterns: Sequence[DFPattern], exprs: Sequence[Any], have: Bindings) -> Bindings | None:
    if len(patterns) != len(exprs):
        return None
    found: Bindings | None = have
    for pattern, expr in zip(patterns, exprs, strict=True):
        if found is not None:
            found = _match(pattern, expr, found)
    return found


def _expr(p: ExprPattern, e: Any, have: Bindings) -> Bindings | None:
    same = e is p.expr or (not isinstance(p.expr, Op) and structural_equal(p.expr, e))
    return have if same else None


def _var(p: VarPattern, e: Any, have: Bindings) -> Bindings | None:
    return have if isinstance(e, Var) and p.name in ("", e.name_hint) else None


def _call(p: CallPattern, e: Any, have: Bindings) -> Bindings | None:
    if not isinstance(e, Call):
        return None
    found = _match(p.op, e.op, have)
    if found is None:
        return None
    if p.args is None:
        return found
    straight = _match_all(p.args, e.args, found)
    if straight is not None or not (isinstance(e.op, Op) and e.op.name in _COMMUTATIVE and len(p.args) == 2):
        return straight
    return _match_all(p.args, e.args[::-1], found)


def _function(p: FunctionPattern, e: Any, have: Bindings) -> Bindings | None:
    if not isinstance(e, Function):
        return None
    found = have if p.params is None else _match_all(p.params, e.params, have)
    return None if found is None else _match(p.body, e.body, found)


def _tuple(p: TuplePattern, e: Any, have: Bindings) -> Bindings | None:
    if not isinstance(e, Tuple):
        return None
    return have if p.fields is None else _match_all(p.fields, e.fields, have)


def _item(p: TupleGetItemPattern, e: Any, have: Bindings) -> Bindings | None:
    if not isinstance(e, TupleGetItem) or p.index not in (None, e.index):
        return None
    return _match(p.tuple_value, e.tuple_value, have)


def _if(p: IfPattern, e: Any, have: Bindings) -> Bindings | None:
    if not isinstance(e, If):
        return None
    return _match_all((p.cond, p.true_branch, p.false_branch), (e.cond, e.true_branch, e.false_branch), have)


def _let(p: LetPattern, e: Any, have: Bindings) -> Bindings | None:
    return _match_all((p.var, p.value, p.body), (e.var, e.value, e.body), have) if isinstance(e, Let) else None


def _alternative(p: AltPattern, e: Any, have: Bindings) -> Bindings | None:
    left = _match(p.left, e, have)
    return left if left is not None else _match(p.right, e, have)


def _check(p: CheckPattern, e: Any, have: Bindings) -> Bindings | None:
    found = _match(p.pattern, e, have)
    return found if found is not None and p.condition(e) else None


def _dominator(p: DominatorPattern, e: Any, have: Bindings) -> Bindings | None:
    """Walk back from the child; every way must end at the parent, through nodes of the path, or at a constant."""
    found = _match(p.child, e, have)
    if found is None or not isinstance(e, Call):
        return None
    pending, seen = list(e.args), {id(e)}
    while pending:
        at = pending.pop()
        if id(at) in seen or isinstance(at, Constant):
            continue
        seen.add(id(at))
        parent = _match(p.parent, at, found)
        if parent is not None:
            found = parent
        elif isinstance(at, Call) and _match(p.path, at, {}) is not None:
            pending.extend(at.args)
        else:
            return None
    return found if p.parent in found else None


_MATCHERS: dict[type, Callable[[Any, Any, Bindings], Bindings | None]] = {
    WildcardPattern: lambda p, e, have: have,
    ExprPattern: _expr,
    VarPattern: _var,
    ConstantPattern: lambda p, e, have: have if isinstance(e, Constant) else None,
    CallPattern: _call,
    FunctionPattern: _function,
    TuplePattern: _tuple,
    TupleGetItemPattern: _item,
    IfPattern: _if,
    LetPattern: _let,
    AltPattern: _alternative,
    CheckPattern: _check,
    DominatorPattern: _dominator,
}


# --- rewriting ------------------------------------------------------------------------------------------------------


class DFPatternCallback:
    """A pattern and what to put in the place of its matches: set `self.pattern`, override `callback`."""

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type, self.rewrite_once = require_type, rewrite_once
        self.pattern: DFPattern | None = None

    def callback(self, pre: Expr, post: Expr, node_map: Any) -> Expr:  # Any: {pattern: [expr]}
        """The replacement of `post`; `pre` is what it was before its inputs were rewritten."""
        raise InternalError(f"{type(self).__name__} does not define callback")

    def rewrite(self, expr: Expr) -> Expr:
        return rewrite(self, expr)


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Expr, mod: IRModule | None = None
) -> Expr:
    """Apply the callbacks bottom-up until nothing changes."""
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for rule in rules:
        for _ in range(_MAX_ROUNDS):
            changed = _rewrite_once(rule, expr, mod)
            if changed is expr or rule.rewrite_once or structural_equal(changed, expr):
                expr = changed
                break
            expr = changed
        else:
            name = type(rule).__name__
            raise TypeMismatch(f"{name}: still rewriting after {_MAX_ROUNDS} rounds", hint="use rewrite_once")
    return expr


def _rewrite_once(rule: DFPatternCallback, root: Expr, module: IRModule | None) -> Expr:
    if rule.pattern is None:
        raise TypeMismatch(f"{type(rule).__name__}: its pattern is not set", hint="set self.pattern in __init__")
    if rule.require_type:
        infer_type(root, module)
    memo: dict[int, Expr] = {}
    for pre in post_order(root):
        post = map_children(pre, lambda e: memo.get(id(e), e))
        found = match(rule.pattern, post)
        if found is not None:
            post = as_expr(rule.callback(pre, post, {pattern: [e] for pattern, e in found.items()}))
        memo[id(pre)] = post
    return memo[id(root)]


# --- partitioning ---------------------------------------------------------------------------------------------------

_INNER = (CallPattern, TuplePattern, TupleGetItemPattern, IfPattern, LetPattern, FunctionPattern)


def refusal(verdict: str | bool | None) -> str | None:
    """Why a predicate refuses, None where it accepts. Predicates answer None or a reason; older ones True or False."""
    if verdict is None or isinstance(verdict, str):
        return verdict
    return None if verdict else "the predicate of the library refuses it"


def partition(pattern: DFPattern, expr: Expr, attrs: dict[str, Any] | None = None, check: Check | None = None) -> Expr:
    """Put matches into functions with the given attributes, the last in the graph first; matches never overlap.

    What a wildcard or variable pattern matched becomes an argument; constants matched by is_constant go inside. A match
    whose inner values are used elsewhere too is left alone.
    """
    order = post_order(expr, not_primitive)
    position = {id(e): k for k, e in enumerate(order)}
    used_by = users(order)
    taken: set[int] = set()
    groups: dict[int, list[Expr]] = {}
    for root in reversed(order):
        found = match(pattern, root) if id(root) not in taken else None
        inside = _inner_nodes(found) if found is not None else {}
        if id(root) not in inside or inside.keys() & taken or _leaks(inside, root, used_by):
            continue
        if check is None or refusal(check(root)) is None:
            taken |= {key for key, e in inside.items() if not isinstance(e, Constant)}  # each match has its own copy
            groups[id(root)] = sorted(inside.values(), key=lambda e: position[id(e)])
    return _with_groups(order, groups, attrs or {}) if groups else expr


def _leaks(inside: dict[int, Expr], root: Expr, used_by: dict[int, list[Expr]]) -> bool:
    """Whether a value other than the root's is used outside; constants may be, they are copied."""
    inner = (e for e in inside.values() if e is not root and not isinstance(e, Constant))
    return any(id(user) not in inside for e in inner for user in used_by.get(id(e), ()))


def _inner_nodes(found: Bindings) -> dict[int, Expr]:
    """The nodes a match puts inside its function, by id."""
    inside: dict[int, Expr] = {}
    for pattern, expr in found.items():
        if isinstance(pattern, _INNER) or (isinstance(pattern, ConstantPattern) and isinstance(expr, Constant)):
            inside[id(expr)] = expr
        if isinstance(pattern, DominatorPattern):
            inside |= _between(expr, found[pattern.parent])
    return inside


def _between(child: Expr, parent: Expr) -> dict[int, Expr]:
    """The calls on the ways from a dominated child up to its parent, which is not included."""
    pending, seen = [child], {id(child): child}
    while pending:
        for arg in children(pending.pop()):
            if id(arg) not in seen and arg is not parent and isinstance(arg, Call | Tuple):
                seen[id(arg)] = arg
                pending.append(arg)
    return seen


def _with_groups(order: list[Expr], groups: dict[int, list[Expr]], attrs: dict[str, Any]) -> Expr:
    memo: dict[int, Expr] = {}
    for expr in order:
        members = groups.get(id(expr))
        made = map_children(expr, lambda e: memo.get(id(e), e)) if members is None else _outlined(members, memo, attrs)
        memo[id(expr)] = made
    return memo[id(order[-1])]


def _outlined(members: list[Expr], memo: dict[int, Expr], attrs: dict[str, Any]) -> Expr:
    """A call of a function made of the members, which are in post order, the last being the result."""
    inner: dict[int, Expr] = {id(e): e for e in members if isinstance(e, Constant)}
    params: list[Var] = []
    args: list[Expr] = []

    def local(expr: Expr) -> Expr:
        if id(expr) not in inner:
            params.append(Var(f"p{len(params)}", _type_if_known(expr)))
            args.append(memo.get(id(expr), expr))
            inner[id(expr)] = params[-1]
        return inner[id(expr)]

    for expr in members:
        if not isinstance(expr, Constant):
            inner[id(expr)] = map_children(expr, local)
    names = [e.op.name for e in members if isinstance(e, Call) and isinstance(e.op, Op)]
    pairs = (*attrs.items(), ("PartitionedFromPattern", "".join(f"{name}_" for name in names)))
    root = members[-1]
    return Call(Function(tuple(params), inner[id(root)], _type_if_known(root), pairs), tuple(args), None, None)


def _type_if_known(expr: Expr) -> Type | None:
    """The type of an expression; None below variables that have none yet."""
    return None if has_untyped(expr) else expr.checked_type
