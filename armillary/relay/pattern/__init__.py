"""Patterns over graphs: say a shape of expression, match it, rewrite what matches.

In: `conv = is_op("nn.conv2d")(wildcard(), is_constant()); pattern = is_op("nn.relu")(conv | conv.optional(...))`. Out:
`pattern.match(expr)`, `match(pattern, expr)` (which part matched what) and `rewrite(callbacks, expr)`. Invariant: one
pattern object stands for one expression within a match, so a pattern used twice demands the same value twice.
Users know this module as `relay.dataflow_pattern`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from armillary.base.boundary import boundary
from armillary.base.node import structural_equal
from armillary.errors import InternalError, TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, as_expr
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, get_op
from armillary.relay.pattern.partition import outline_matches, separate_matches
from armillary.relay.types import Type
from armillary.relay.walk import map_children, not_primitive, post_order

Bindings = dict["DFPattern", Expr]
Check = Callable[[Expr], str | bool | None]
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or"})
_MAX_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class DFPattern:
    """Base of patterns: call it, combine it with `|`, `+` …, narrow it with has_*."""

    # Whether `partition` puts what matched inside the function: always, a constant only, or never (an argument then).
    inside: ClassVar[Literal["yes", "constants", "no"]] = "no"

    @property
    def ancestor(self) -> DFPattern | None:
        """The pattern up to which everything above what this one matches belongs to the match."""
        return None

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

    def has_attr(self, attrs: Mapping[str, object]) -> DFPattern:
        """Narrow to calls or functions whose attributes have these values."""
        return AttrPattern(self, lambda e: _has_attrs(e, attrs), attrs)

    def has_type(self, ty: Type) -> DFPattern:
        return TypePattern(self, lambda e: e.checked_type == ty, ty)

    def has_dtype(self, dtype: str) -> DFPattern:
        return DataTypePattern(self, lambda e: getattr(e.checked_type, "dtype", None) == dtype, dtype)

    @boundary("has_shape", arguments=True, first=1)
    def has_shape(self, shape: Sequence[int]) -> DFPattern:
        return ShapePattern(self, lambda e: getattr(e.checked_type, "shape", None) == tuple(shape), tuple(shape))

    @boundary("optional", arguments=True, first=1)
    def optional(self, wrap: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """This pattern, with or without what `wrap` puts around it."""
        return AltPattern(wrap(self), self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This pattern, all of whose inputs come from `parent` through nodes that match `path`."""
        return DominatorPattern(parent, path if path is not None else wildcard(), self)

    def rewrite(self, callback: Callable[[Expr, Expr, Any], Expr], expr: Expr) -> Expr:
        """Replace what matches by `callback(pre, post, node_map)`."""
        own = DFPatternCallback()
        own.pattern = self
        own.callback = callback  # type: ignore[method-assign, assignment]
        return rewrite(own, expr)

    def partition(self, expr: Expr, attrs: dict[str, Any] | None = None, check: Check | None = None) -> Expr:
        """Put each match that `check` accepts into a function of its own, called in its place."""
        return partition(self, expr, attrs, check)


@dataclass(frozen=True, eq=False)
class WildcardPattern(DFPattern):
    """Anything; or, once it is redirected, what another pattern matches: patterns that contain themselves."""

    target: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Match what `pattern` matches from now on."""
        object.__setattr__(self, "target", pattern)


@dataclass(frozen=True, eq=False)
class ExprPattern(DFPattern):
    """One given expression, or operator."""

    inside = "constants"
    expr: Expr


@dataclass(frozen=True, eq=False)
class VarPattern(DFPattern):
    """A variable, of that name if one is given."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class ConstantPattern(DFPattern):
    """Matches any constant."""

    inside = "constants"


@dataclass(frozen=True, eq=False)
class CallPattern(DFPattern):
    """A call; args None means any."""

    inside = "yes"
    op: DFPattern
    args: tuple[DFPattern, ...] | None


@dataclass(frozen=True, eq=False)
class FunctionPattern(DFPattern):
    """A function; params None means any."""

    inside = "yes"
    params: tuple[DFPattern, ...] | None
    body: DFPattern


@dataclass(frozen=True, eq=False)
class TuplePattern(DFPattern):
    """A tuple; fields None means any."""

    inside = "yes"
    fields: tuple[DFPattern, ...] | None


@dataclass(frozen=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """A field of a tuple; index None means any."""

    inside = "yes"
    tuple_value: DFPattern
    index: int | None

    @property
    def tuple(self) -> DFPattern:
        """The pattern of the tuple, under its Relay-era name."""
        return self.tuple_value


@dataclass(frozen=True, eq=False)
class IfPattern(DFPattern):
    """Matches an `if` whose condition and branches match."""

    inside = "yes"
    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern


@dataclass(frozen=True, eq=False)
class LetPattern(DFPattern):
    """Matches a `let` whose variable, value and body match."""

    inside = "yes"
    var: DFPattern
    value: DFPattern
    body: DFPattern


@dataclass(frozen=True, eq=False)
class AltPattern(DFPattern):
    """What one of two patterns matches, the left one first."""

    left: DFPattern
    right: DFPattern


@dataclass(frozen=True, eq=False)
class CheckPattern(DFPattern):
    """A pattern and a condition."""

    pattern: DFPattern
    condition: Callable[[Any], bool]  # Any: expressions have different attributes


@dataclass(frozen=True, eq=False)
class TypePattern(CheckPattern):
    """A pattern and a type."""

    type: Type


@dataclass(frozen=True, eq=False)
class DataTypePattern(CheckPattern):
    """A pattern and a dtype."""

    dtype: str


@dataclass(frozen=True, eq=False)
class ShapePattern(CheckPattern):
    """A pattern and a shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AttrPattern(CheckPattern):
    """A pattern and values of attributes."""

    attrs: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class DominatorPattern(DFPattern):
    """`child`, fed only by `parent` through `path`."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    @property
    def ancestor(self) -> DFPattern:
        return self.parent


# --- constructors ---------------------------------------------------------------------------------------------------


def wildcard() -> DFPattern:
    """A pattern that matches any expression."""
    return WildcardPattern()


@boundary("is_op", arguments=True)
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


@boundary("is_tuple", arguments=True)
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


@boundary("has_attr", arguments=True)
def has_attr(attrs: Mapping[str, object], pattern: DFPattern | None = None) -> DFPattern:
    """Matches calls or functions with these attribute values."""
    return (pattern or wildcard()).has_attr(attrs)


@boundary("has_type", arguments=True)
def has_type(ty: Type, pattern: DFPattern | None = None) -> DFPattern:
    """Matches expressions of this type."""
    return (pattern or wildcard()).has_type(ty)


@boundary("has_dtype", arguments=True)
def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    """Matches tensors of this dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


@boundary("has_shape", arguments=True)
def has_shape(shape: Sequence[int], pattern: DFPattern | None = None) -> DFPattern:
    """Matches tensors of this shape."""
    return (pattern or wildcard()).has_shape(shape)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """Matches `child` where all its inputs come from `parent` through `path`."""
    return DominatorPattern(parent, path, child)


def _has_attrs(expr: object, wanted: Mapping[str, object]) -> bool:
    if isinstance(expr, Function):
        return all(expr.get_attr(name) == value for name, value in wanted.items())
    if isinstance(expr, Op):
        return wanted.keys() <= {"TOpPattern"} and all(int(expr.kind) == v for v in wanted.values())
    attrs = getattr(expr, "attrs", None)
    missing = object()

    def same(name: str, value: object) -> bool:
        if name == "TOpPattern" and isinstance(expr, Call) and isinstance(expr.op, Op):
            return bool(int(expr.op.kind) == value)
        have = getattr(attrs, name, missing)
        return bool(have == (tuple(value) if isinstance(value, list) else value))

    return all(same(name, value) for name, value in wanted.items())


# --- matching -------------------------------------------------------------------------------------------------------


def partition(pattern: DFPattern, expr: Expr, attrs: dict[str, Any] | None = None, check: Check | None = None) -> Expr:
    """Put what a pattern matches into functions with the given attributes, where `check` accepts it: partition.py."""
    return outline_matches(partial(_all_bindings, pattern), expr, attrs, check)


def match(pattern: DFPattern, expr: object) -> Bindings | None:
    """What each part of the pattern matched, or None."""
    if not isinstance(pattern, DFPattern):
        raise TypeMismatch(f"expected a pattern, got {type(pattern).__name__}", hint="start with is_op, wildcard…")
    return _match(pattern, expr, {})


def _all_bindings(pattern: DFPattern, expr: Expr) -> list[Bindings]:
    """What a pattern matched, then what it matched again below: where a wildcard was redirected to one around it."""
    first = match(pattern, expr)
    result = [] if first is None else [first]
    for bindings in result:
        for part, at in bindings.items():
            if isinstance(part, WildcardPattern) and part.target is not None:
                below = match(part.target, at)
                result += [] if below is None else [below]
    return result


def _match(pattern: DFPattern, expr: Any, have: Bindings) -> Bindings | None:
    if pattern in have:
        return have if have[pattern] is expr else None
    bindings = _MATCHERS[type(pattern)](pattern, expr, have)
    return None if bindings is None else {**bindings, pattern: expr}


def _match_all(patterns: Sequence[DFPattern], exprs: Sequence[object], have: Bindings) -> Bindings | None:
    if len(patterns) != len(exprs):
        return None
    result: Bindings | None = have
    for pattern, expr in zip(patterns, exprs, strict=True):
        if result is not None:
            result = _match(pattern, expr, result)
    return result


def _expr(p: ExprPattern, e: object, have: Bindings) -> Bindings | None:
    same = e is p.expr or (not isinstance(p.expr, Op) and structural_equal(p.expr, e))
    return have if same else None


def _var(p: VarPattern, e: object, have: Bindings) -> Bindings | None:
    return have if isinstance(e, Var) and p.name in ("", e.name_hint) else None


def _call(p: CallPattern, e: object, have: Bindings) -> Bindings | None:
    if not isinstance(e, Call):
        return None
    result = _as_written(p, e, have)
    for other in _quotients(p) if result is None else ():
        result = _as_written(other, e, have)
        if result is not None:
            return result
    return result


def _quotients(p: CallPattern) -> list[CallPattern]:
    """The other ways to write (a * b) / c, and a * (b / c)."""
    times, over = get_op("multiply"), get_op("divide")
    left, right = p.args if p.args is not None and len(p.args) == 2 else (p, p)
    if _calls(p, over) and _calls(left, times):
        a, b = left.args  # type: ignore[attr-defined]  # a call of two
        return [
            _call_pattern(times, a, _call_pattern(over, b, right)),
            _call_pattern(times, b, _call_pattern(over, a, right)),
        ]
    if not _calls(p, times):
        return []
    inner = [(one, other) for one, other in ((right, left), (left, right)) if _calls(one, over)]
    return [_call_pattern(over, _call_pattern(times, other, q.args[0]), q.args[1]) for q, other in inner]  # type: ignore[attr-defined]


def _calls(p: DFPattern, op: Op) -> bool:
    """Whether a pattern is a call of this operator with two arguments."""
    if not isinstance(p, CallPattern) or not isinstance(p.op, ExprPattern):
        return False
    return p.op.expr is op and p.args is not None and len(p.args) == 2


def _call_pattern(op: Op, *args: DFPattern) -> CallPattern:
    return CallPattern(ExprPattern(op), args)


def _as_written(p: CallPattern, e: Call, have: Bindings) -> Bindings | None:
    result = _match(p.op, e.op, have)
    if result is None:
        return None
    if p.args is None:
        return result
    straight = _match_all(p.args, e.args, result)
    if straight is not None or not (isinstance(e.op, Op) and e.op.name in _COMMUTATIVE and len(p.args) == 2):
        return straight
    return _match_all(p.args, e.args[::-1], result)


def _function(p: FunctionPattern, e: object, have: Bindings) -> Bindings | None:
    if not isinstance(e, Function):
        return None
    bindings = have if p.params is None else _match_all(p.params, e.params, have)
    return None if bindings is None else _match(p.body, e.body, bindings)


def _tuple(p: TuplePattern, e: object, have: Bindings) -> Bindings | None:
    if not isinstance(e, Tuple):
        return None
    return have if p.fields is None else _match_all(p.fields, e.fields, have)


def _item(p: TupleGetItemPattern, e: object, have: Bindings) -> Bindings | None:
    if not isinstance(e, TupleGetItem) or p.index not in (None, e.index):
        return None
    return _match(p.tuple_value, e.tuple_value, have)


def _if(p: IfPattern, e: object, have: Bindings) -> Bindings | None:
    if not isinstance(e, If):
        return None
    return _match_all((p.cond, p.true_branch, p.false_branch), (e.cond, e.true_branch, e.false_branch), have)


def _let(p: LetPattern, e: object, have: Bindings) -> Bindings | None:
    return _match_all((p.var, p.value, p.body), (e.var, e.value, e.body), have) if isinstance(e, Let) else None


def _alternative(p: AltPattern, e: object, have: Bindings) -> Bindings | None:
    left = _match(p.left, e, have)
    return left if left is not None else _match(p.right, e, have)


def _check(p: CheckPattern, e: object, have: Bindings) -> Bindings | None:
    result = _match(p.pattern, e, have)
    return result if result is not None and p.condition(e) else None


def _dominator(p: DominatorPattern, e: object, have: Bindings) -> Bindings | None:
    """Walk back from the child; every way ends at the parent, through nodes of the path, or at what is not computed."""
    result = _match(p.child, e, have)
    if result is None or not isinstance(e, Call):
        return None
    pending, seen = list(e.args), {id(e)}
    while pending:
        at = pending.pop()
        if id(at) in seen or isinstance(at, Constant):
            continue
        seen.add(id(at))
        parent = _match(p.parent, at, result)
        if parent is not None:
            result = parent
        elif (computed := _computed_inputs(at)) and _match(p.path, at, {}) is not None:
            pending.extend(computed)
        else:
            return None
    return result if p.parent in result else None


def _computed_inputs(expr: Expr) -> list[Expr]:
    """The arguments of a call that are no variables: a bias on the way from a dominator is fed by nobody."""
    return [arg for arg in expr.args if not isinstance(arg, Var | Constant)] if isinstance(expr, Call) else []


_MATCHERS: dict[type, Callable[[Any, Any, Bindings], Bindings | None]] = {
    WildcardPattern: lambda p, e, have: have if p.target is None else _match(p.target, e, have),
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
    **dict.fromkeys((CheckPattern, TypePattern, DataTypePattern, ShapePattern, AttrPattern), _check),
    DominatorPattern: _dominator,
}


# --- rewriting ------------------------------------------------------------------------------------------------------


class DFPatternCallback:
    """A pattern and what to put in the place of its matches: set `self.pattern`, override `callback`."""

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type, self.rewrite_once = require_type, rewrite_once
        self.pattern: DFPattern | None = None

    def callback(self, pre: Expr, post: Expr, node_map: object) -> Expr:  # {pattern: [expr]}
        """The replacement of `post`; `pre` is what it was before its inputs were rewritten."""
        raise InternalError(f"{type(self).__name__} does not define callback")

    def rewrite(self, expr: Expr) -> Expr:
        return rewrite(self, expr)


@boundary("rewrite", arguments=True)
def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Expr, mod: IRModule | None = None
) -> Expr:
    """Apply the callbacks one after another, each to its outermost matches, until none changes anything."""
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for round_ in range(_MAX_ROUNDS):
        before = expr
        for rule in rules:
            if round_ == 0 or not rule.rewrite_once:
                expr = _rewrite_once(rule, expr, mod)
        if expr is before or all(rule.rewrite_once for rule in rules) or structural_equal(expr, before):
            return expr
    name = ", ".join(type(rule).__name__ for rule in rules)
    raise TypeMismatch(f"{name}: still rewriting after {_MAX_ROUNDS} rounds", hint="use rewrite_once")


def _rewrite_once(rule: DFPatternCallback, root: Expr, module: IRModule | None) -> Expr:
    if rule.pattern is None:
        raise TypeMismatch(f"{type(rule).__name__}: its pattern is not set", hint="set self.pattern in __init__")
    if rule.require_type:
        infer_type(root, module)
    order = post_order(root, not_primitive)
    matches = separate_matches(partial(_all_bindings, rule.pattern), order, any_root=True)
    memo: dict[int, Expr] = {}
    for pre in order:
        memo[id(pre)] = post = map_children(pre, lambda e: memo.get(id(e), e))
        if id(pre) in matches:
            node_map: dict[DFPattern, list[Expr]] = {}
            for bindings in reversed(matches[id(pre)].bindings):
                for pattern, e in bindings.items():
                    node_map.setdefault(pattern, []).append(memo.get(id(e), e))
            memo[id(pre)] = as_expr(rule.callback(pre, post, node_map))
    return memo[id(root)]
