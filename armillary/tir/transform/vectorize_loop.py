"""`vectorize-loop`: loops marked vectorized become vector statements.

In: For(kind=VECTORIZED) of constant extent over scalar statements. Out: the body once, over Ramp and Broadcast. A
statement that cannot be vectorised (its condition differs per lane, it stores to one place, it calls a foreign
function) becomes a serial loop over the lanes, alone; where a target stores some lanes of a vector (`masks`), a store
behind `i < n`, `n` a named size, is one of the lanes for which that holds. Invariant: no VECTORIZED loop is left, and
no load is made that the scalar program would not make. Configuration: `tir.disable_vectorize`.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.node import Visits, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars, is_unsafe, uses_any
from armillary.tir.intrinsics import INTRINSICS
from armillary.tir.rules import as_vector
from armillary.tir.substitute import ExprMapper, binary, map_stmt, substitute
from armillary.tir.transform.loop_pass import prim_pass, with_body
from armillary.transform import PassContext, register_config_option

DISABLE_VECTORIZE = register_config_option("tir.disable_vectorize", bool, False, "run vectorized loops serially")
MAX_LANES = 64
_NOT_ELEMENTWISE = frozenset(
    {
        "call_extern",
        "call_pure_extern",
        "vector_reduce_add",
        "shuffle",
        "prefetch",
        "thread_sync",
        "tile_zero",
        "tile_load",
        "tile_dot",
        "tile_dot_bf16",
        "tile_store",
        "call_llvm_pure_intrin",
        "call_llvm_intrin",
    }
)


def vectorize_loop(func: S.PrimFunc, enable_vectorize: bool = True, masks: bool = False) -> S.PrimFunc:
    """Turn vectorized loops into vector statements, or (`enable_vectorize` False) into serial loops; see above.

    for i in range(4) vectorized { B[i] = A[i] + 1.0 }
    ->
    B[ramp(0, 1, 4)] = A[ramp(0, 1, 4)] + broadcast(1.0, 4)
    """
    is_enabled = enable_vectorize and not PassContext.current().get(DISABLE_VECTORIZE)
    sizes: frozenset[E.Var] = frozenset(free_vars(func)) if masks else frozenset()

    def visit(item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.For) and item.kind is S.LoopKind.VECTORIZED:
            return _loop(item, visit, is_enabled, sizes)
        return map_stmt(item, _same, visit)

    return with_body(func, visit(func.body))


def _same(item: E.Expr) -> E.Expr:
    return item


def _loop(item: S.For, visit: Callable[[S.Stmt], S.Stmt], is_enabled: bool, sizes: frozenset[E.Var]) -> S.Stmt:
    lanes = build.as_int(item.extent)
    serial: S.For = replace(item, kind=S.LoopKind.SERIAL)
    if not is_enabled or lanes is None or lanes < 2 or _has_vector_loop(item.body):
        return map_stmt(serial, _same, visit)
    if lanes > MAX_LANES:
        width = next((w for w in range(MAX_LANES, 7, -1) if lanes % w == 0), None)
        if width is None:
            return map_stmt(serial, _same, visit)
        return visit(_split(item, width, lanes))
    base = item.min
    return Vectorizer(item.var, base, lanes, sizes).stmt(visit(item.body))


def _has_vector_loop(item: S.Stmt) -> bool:
    has_vectors = False

    def look(s: S.Stmt) -> S.Stmt:
        nonlocal has_vectors
        has_vectors = has_vectors or (isinstance(s, S.For) and s.kind is S.LoopKind.VECTORIZED)
        return map_stmt(s, _same, look)

    look(item)
    return has_vectors


def _split(item: S.For, width: int, lanes: int) -> S.Stmt:
    """A serial loop around a vectorized one of `width` lanes."""
    dtype = item.var.dtype
    outer, inner = E.Var(f"{item.var.name}_outer", dtype), E.Var(item.var.name, dtype)
    value = build.add(build.add(item.min, build.mul(outer, width)), inner)
    body = substitute(item.body, {item.var: value})
    zero = build.const(0, dtype)
    vector = S.For(inner, zero, build.const(width, dtype), S.LoopKind.VECTORIZED, body)
    return S.For(outer, zero, build.const(lanes // width, dtype), S.LoopKind.SERIAL, vector)


class CannotVectorize(Exception):
    """Raised inside this module only: the statement at hand must be run lane by lane."""


class Vectorizer:
    """Rewrites one loop body; `vectors` holds the variables that differ per lane, `sizes` the named sizes."""

    def __init__(self, var: E.Var, base: E.Expr, lanes: int, sizes: frozenset[E.Var] = frozenset()) -> None:
        self.var, self.base, self.lanes, self.sizes = var, base, lanes, sizes
        self.vectors: dict[E.Var, E.Expr] = {var: E.Ramp(base, build.const(1, var.dtype), lanes)}
        self.widened: dict[S.Buffer, S.Buffer] = {}
        self._memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    # statements

    def stmt(self, item: S.Stmt) -> S.Stmt:
        try:
            return _STMTS[type(item)](self, item)
        except CannotVectorize:
            return self.scalar_loop(item)

    def scalar_loop(self, item: S.Stmt) -> S.Stmt:
        """The statement once per lane, one after another."""
        if any(v is not self.var for v in self.vectors if uses_any(item, {v})):
            raise CannotVectorize  # a vector variable bound by a let outside: give up at that let
        var = E.Var(f"{self.var.name}_s", self.var.dtype)
        zero = build.const(0, var.dtype)
        body = substitute(item, {self.var: build.add(self.base, var)})
        body = self.widen_scalar(body, var) if self.widened else body
        return S.For(var, zero, build.const(self.lanes, var.dtype), S.LoopKind.SERIAL, body)

    def widen_scalar(self, item: S.Stmt, lane: E.Var) -> S.Stmt:
        """Accesses of one lane to buffers that now hold all lanes."""
        wide = self.widened

        def index(i: E.Expr) -> E.Expr:
            return build.add(build.mul(i, self.lanes), lane)

        def visit_expr(e: E.Expr) -> E.Expr | None:
            if type(e) is E.BufferLoad and e.buffer in wide:
                return E.BufferLoad(wide[e.buffer], (index(e.indices[0]),))
            return None

        mapper = ExprMapper(visit_expr)

        def visit(s: S.Stmt) -> S.Stmt:
            mapped = map_stmt(s, mapper, visit)
            if isinstance(mapped, S.BufferStore) and mapped.buffer in wide:
                return S.BufferStore(wide[mapped.buffer], mapped.value, (index(mapped.indices[0]),))
            return mapped

        return visit(item)

    # expressions

    def expr(self, item: E.Expr) -> E.Expr:
        """`item` for all lanes: a vector, or unchanged when it is the same in every lane."""
        memo = self._memo.get(id(item))
        if memo is None:
            rule = _EXPRS.get(type(item), _binary)
            memo = self._memo[id(item)] = (item, rule(self, item))
        return memo[1]

    def widen(self, item: E.Expr) -> E.Expr:
        """The vector of a value that may be the same in every lane."""
        return item if item.dtype.lanes == self.lanes else E.Broadcast(item, self.lanes)

    def uniform(self, item: E.Expr) -> E.Expr:
        """`item`, which must be the same in every lane."""
        result = self.expr(item)
        if result.dtype.lanes != item.dtype.lanes:
            raise CannotVectorize
        return result


def _var(v: Vectorizer, e: E.Var) -> E.Expr:
    return v.vectors.get(e, e)


def _leaf(v: Vectorizer, e: E.Expr) -> E.Expr:
    return e


def _binary(v: Vectorizer, e: E.Binary) -> E.Expr:
    a, b = v.expr(e.a), v.expr(e.b)
    if a is e.a and b is e.b:
        return e
    if type(e) in (E.Add, E.Sub) and e.dtype.is_int:
        return _sum(type(e), a, b)
    if type(e) is E.Mul and e.dtype.is_int and (scaled := _scaled(a, b)) is not None:
        return scaled
    return binary(type(e), v.widen(a), v.widen(b))


def _sum(kind: type, a: E.Expr, b: E.Expr) -> E.Expr:
    """Sums of ramps and scalars stay ramps."""
    if type(a) is E.Ramp and b.dtype.lanes == 1:
        return E.Ramp(binary(kind, a.base, b), a.stride, a.lanes)
    if type(b) is E.Ramp and a.dtype.lanes == 1:
        step = b.stride if kind is E.Add else build.sub(0, b.stride)
        return E.Ramp(binary(kind, a, b.base), step, b.lanes)
    if type(a) is E.Ramp and type(b) is E.Ramp and a.lanes == b.lanes:
        return as_vector(binary(kind, a.base, b.base), binary(kind, a.stride, b.stride), a.lanes)
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    a, b = (x if x.dtype.lanes == lanes else E.Broadcast(x, lanes) for x in (a, b))
    return binary(kind, a, b)


def _scaled(a: E.Expr, b: E.Expr) -> E.Expr | None:
    for one, other in ((a, b), (b, a)):
        if type(one) is E.Ramp and other.dtype.lanes == 1:
            return as_vector(build.mul(one.base, other), build.mul(one.stride, other), one.lanes)
    return None


def _cast(v: Vectorizer, e: E.Cast) -> E.Expr:
    value = v.expr(e.value)
    return e if value is e.value else E.Cast(e.dtype.with_lanes(value.dtype.lanes), value)


def _not(v: Vectorizer, e: E.Not) -> E.Expr:
    a = v.expr(e.a)
    return e if a is e.a else E.Not(a)


def _select(v: Vectorizer, e: E.Select) -> E.Expr:
    c, x, y = v.expr(e.condition), v.expr(e.true_value), v.expr(e.false_value)
    if c is e.condition and x is e.true_value and y is e.false_value:
        return e
    return E.Select(v.widen(c), v.widen(x), v.widen(y))


def _load(v: Vectorizer, e: E.BufferLoad) -> E.Expr:
    wide = v.widened.get(e.buffer)
    if wide is not None:
        return E.BufferLoad(wide, (_wide_index(v, v.expr(e.indices[0])),))
    indices = tuple([v.expr(i) for i in e.indices])
    if all(a is b for a, b in zip(indices, e.indices)):
        return e
    if any(i.dtype.lanes > 1 for i in indices[:-1]) or e.buffer.dtype.lanes > 1:
        raise CannotVectorize  # elements that are vectors are one instruction already
    return E.BufferLoad(e.buffer, indices)


def _wide_index(v: Vectorizer, index: E.Expr) -> E.Expr:
    """Element `index` of every lane of a buffer that was private to a lane."""
    one = build.const(1, index.dtype.element)
    if index.dtype.lanes == 1:
        return E.Ramp(build.mul(index, v.lanes), one, v.lanes)
    lane = E.Ramp(build.const(0, one.dtype), one, v.lanes)
    return build.add(build.mul(index, build.const(v.lanes, index.dtype)), lane)


def _let(v: Vectorizer, e: E.Let) -> E.Expr:
    value = v.expr(e.value)
    if value is e.value:
        body = v.expr(e.body)
        return e if body is e.body else E.Let(e.var, value, body)
    var = E.Var(e.var.name, value.dtype)
    v.vectors[e.var] = var
    return E.Let(var, value, v.expr(e.body))


def _call(v: Vectorizer, e: E.Call) -> E.Expr:
    args = tuple([v.expr(a) for a in e.args])
    if all(a is b for a, b in zip(args, e.args)) and (e.name not in INTRINSICS or INTRINSICS[e.name].pure):
        return e
    if e.name in _NOT_ELEMENTWISE or e.name not in INTRINSICS or not INTRINSICS[e.name].pure:
        raise CannotVectorize
    if e.name == "if_then_else":
        return _guard(v, e, args)
    return E.Call(e.dtype.with_lanes(v.lanes), e.name, tuple(v.widen(a) for a in args))


def _guard(v: Vectorizer, e: E.Call, args: tuple[E.Expr, ...]) -> E.Expr:
    """A condition alike in all lanes still guards; else both sides must be safe to evaluate."""
    test, yes, no = args
    if test.dtype.lanes == 1:
        return E.Call(e.dtype.with_lanes(v.lanes), e.name, (test, v.widen(yes), v.widen(no)))
    if v.sizes and is_unsafe(yes) and uses_any(test, v.sizes) and test.dtype.lanes == v.lanes:
        yes = _under_mask(v, test, yes)
    if _is_unguarded(yes) or is_unsafe(no):
        raise CannotVectorize
    return E.Select(test, v.widen(yes), v.widen(no))


def _under_mask(v: Vectorizer, mask: E.Expr, item: E.Expr) -> E.Expr:
    """`item` with its loads of vectors from memory made of the lanes of a mask alone."""

    def guarded(e: E.Expr) -> E.Expr | None:
        is_load = isinstance(e, E.BufferLoad) and e.dtype.lanes == v.lanes and e.buffer.scope == "global"
        return E.Call(e.dtype, "masked_load", (mask, e)) if is_load and e.dtype.bits >= 32 else None

    return ExprMapper(guarded)(item)


def _is_unguarded(item: E.Expr) -> bool:
    """Whether it is unsafe for another reason than loads under a mask."""

    def dropped(e: E.Expr) -> E.Expr | None:
        is_masked = isinstance(e, E.Call) and e.name == "masked_load"
        return E.Broadcast(build.const(0, e.dtype.element), e.dtype.lanes) if is_masked else None

    return is_unsafe(ExprMapper(dropped)(item))


def _already_vector(v: Vectorizer, e: E.Expr) -> E.Expr:
    if uses_any(e, set(v.vectors)):
        raise CannotVectorize
    return e


_EXPRS: Visits[Vectorizer, [], E.Expr] = {
    E.Var: _var,
    **dict.fromkeys((E.IntImm, E.FloatImm, E.StringImm), _leaf),
    **dict.fromkeys((E.Ramp, E.Broadcast), _already_vector),
    E.Cast: _cast,
    E.Not: _not,
    E.Select: _select,
    E.BufferLoad: _load,
    E.Let: _let,
    E.Call: _call,
}


def _store(v: Vectorizer, s: S.BufferStore) -> S.BufferStore:
    value = v.expr(s.value)
    wide = v.widened.get(s.buffer)
    if wide is not None:
        return S.BufferStore(wide, v.widen(value), (_wide_index(v, v.expr(s.indices[0])),))
    indices = tuple([v.expr(i) for i in s.indices])
    if s.buffer.dtype.lanes > 1 or indices[-1].dtype.lanes != v.lanes or any(i.dtype.lanes > 1 for i in indices[:-1]):
        raise CannotVectorize
    return S.BufferStore(s.buffer, v.widen(value), indices)


def _for(v: Vectorizer, s: S.For) -> S.Stmt:
    return replace(s, min=v.uniform(s.min), extent=v.uniform(s.extent), body=v.stmt(s.body))


def _if(v: Vectorizer, s: S.IfThenElse) -> S.Stmt:
    if v.sizes and s.else_body is None and isinstance(s.then_body, S.BufferStore):
        masked = _masked_store(v, s.condition, s.then_body)
        if masked is not None:
            return masked
    condition = v.uniform(s.condition)
    other = v.stmt(s.else_body) if s.else_body is not None else None
    return S.IfThenElse(condition, v.stmt(s.then_body), other)


def _masked_store(v: Vectorizer, condition: E.Expr, store: S.BufferStore) -> S.Stmt | None:
    """A store of the first lanes of a vector, if the condition bounds them: `first + lane < n`.

    Where it does not hold for the first lane, nothing is evaluated. None if it is of another form.
    """
    test = condition.args[0] if isinstance(condition, E.Call) and condition.name == "likely" else condition
    if (
        not isinstance(test, E.LT)
        or not uses_any(test, v.sizes)
        or v.widened
        or store.buffer.dtype.bits < 32
        or store.buffer.dtype.lanes > 1
    ):
        return None
    a, b = v.expr(test.a), v.expr(test.b)
    if not (isinstance(a, E.Ramp) and (build.as_int(a.stride) or 0) > 0 and b.dtype.lanes == 1):
        return None
    stored = _store(v, store)
    index, mask = stored.indices[-1], E.LT(a, E.Broadcast(b, v.lanes))
    if not (isinstance(index, E.Ramp) and build.as_int(index.stride) == 1):
        return None
    value = _under_mask(v, mask, stored.value)
    if stored.buffer.scope == "local":  # all of it is there: it stays in registers
        value = E.Select(mask, value, E.BufferLoad(stored.buffer, stored.indices))
    else:
        value = E.Call(value.dtype, "masked_value", (mask, value))
    return S.IfThenElse(build.less(a.base, b), S.BufferStore(stored.buffer, value, stored.indices), None)


def _while(v: Vectorizer, s: S.While) -> S.Stmt:
    """Lanes may want different numbers of turns."""
    raise CannotVectorize


def _allocate(v: Vectorizer, s: S.Allocate) -> S.Stmt:
    """A buffer private to each lane becomes one that holds all lanes, interleaved."""
    if len(s.buffer.shape) != 1:
        raise CannotVectorize
    shape = (build.mul(v.uniform(s.buffer.shape[0]), v.lanes),)
    wide = v.widened[s.buffer] = replace(s.buffer, shape=shape)
    return S.Allocate(wide, v.stmt(s.body))


def _attr(v: Vectorizer, s: S.AttrStmt) -> S.Stmt:
    return S.AttrStmt(s.key, v.uniform(s.value), v.stmt(s.body), s.node)


def _let_stmt(v: Vectorizer, s: S.LetStmt) -> S.Stmt:
    value = v.expr(s.value)
    if value is s.value:
        return S.LetStmt(s.var, value, v.stmt(s.body))
    var = E.Var(s.var.name, value.dtype)
    v.vectors[s.var] = var
    try:
        return S.LetStmt(var, value, v.stmt(s.body))
    finally:
        del v.vectors[s.var]


def _assert(v: Vectorizer, s: S.AssertStmt) -> S.Stmt:
    return S.AssertStmt(v.uniform(s.condition), s.message, v.stmt(s.body))


def _seq(v: Vectorizer, s: S.SeqStmt) -> S.Stmt:
    return S.seq(*(v.stmt(x) for x in s.statements))


def _evaluate(v: Vectorizer, s: S.Evaluate) -> S.Stmt:
    if isinstance(s.value, E.IntImm):
        return s
    raise CannotVectorize


_STMTS: Visits[Vectorizer, [], S.Stmt] = {
    S.BufferStore: _store,
    S.For: _for,
    S.IfThenElse: _if,
    S.While: _while,
    S.Allocate: _allocate,
    S.AttrStmt: _attr,
    S.LetStmt: _let_stmt,
    S.AssertStmt: _assert,
    S.SeqStmt: _seq,
    S.Evaluate: _evaluate,
}
VectorizeLoop = prim_pass("vectorize-loop", "tir.VectorizeLoop")(vectorize_loop)
