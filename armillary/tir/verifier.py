"""Checks that a loop program is well formed.

In: a PrimFunc. Out: nothing. Raises TypeMismatch (operands, indices or stores disagree) or InternalError (a variable or
buffer is used where it does not exist, a node belongs to TE only), with the statement at fault in the message.
Invariant checked: the docstrings of `tir/expr.py` and `tir/stmt.py`. Run after passes by `tir.debug_verify`.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.node import Visits
from armillary.errors import ArmillaryError, InternalError, TypeMismatch
from armillary.ir import IRModule
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars
from armillary.tir.intrinsics import INTRINSICS
from armillary.tir.printer import print_stmt

_ONLY_TE = (E.ProducerLoad, E.Reduce, E.IterVar)


def verify(func: S.PrimFunc, module: IRModule | None = None) -> None:
    """Raise unless `func` is well formed; functions do not depend on the module they stand in."""
    verifier = Verifier()
    verifier.names.update(free_vars_of_shapes(func))
    for param in func.params:
        if param in verifier.names and isinstance(param, S.Buffer):
            raise InternalError(f"param {param.name} appears twice")
        verifier.names.add(param)
    for param in func.params:
        if isinstance(param, S.Buffer):
            verifier.shape(param)
    verifier.stmt(func.body)


def free_vars_of_shapes(func: S.PrimFunc) -> set[E.Var]:
    """Symbolic dimensions: variables of the params' shapes."""
    buffers = [p for p in func.params if isinstance(p, S.Buffer)]
    exprs = [e for b in buffers for e in (*b.shape, *b.strides)]
    exprs += [b.elem_offset for b in buffers if b.elem_offset is not None]
    exprs += [e for shape in func.get_attr("tensor_shapes") or () for e in shape]
    return {v for e in exprs for v in free_vars(e)}


class Verifier:
    """One check: which variables and buffers exist where it stands; in stages (blocks/producers.py) tensors do, too."""

    def __init__(self) -> None:
        self.names: set[E.Var | S.Buffer] = set()
        self.producers: set[object] = set()
        self.seen: set[int] = set()
        self.keep: list[E.Expr] = []

    def located(self, statement: S.Stmt, check: Callable[[], None]) -> None:
        """Run a check; what it raises gains the first line of the statement."""
        try:
            check()
        except ArmillaryError as error:
            line = print_stmt(statement).splitlines()[0]
            raise type(error)(f"{error.message}, in: {line.strip()}") from None

    def stmt(self, item: S.Stmt) -> None:
        rule = STMT_RULES.get(type(item))
        if rule is None:
            raise InternalError(f"{type(item).__name__} is not a statement of the loop language")
        rule(self, item)

    def scoped(self, name: E.Var | S.Buffer, body: S.Stmt) -> None:
        is_new = name not in self.names
        self.names.add(name)
        self.stmt(body)
        if is_new:
            self.names.discard(name)
            self.seen.clear()

    def expr(self, item: E.Expr) -> None:
        if id(item) in self.seen:
            return
        rule = EXPR_RULES.get(type(item))
        if rule is None:
            why = "belongs to TE; lower it first" if isinstance(item, _ONLY_TE) else "is unknown"
            raise InternalError(f"{type(item).__name__} {why}")
        rule(self, item)
        self.seen.add(id(item))
        self.keep.append(item)

    def shape(self, buffer: S.Buffer) -> None:
        for extent in (*buffer.shape, *buffer.strides):
            self.index(extent)
        if buffer.strides and len(buffer.strides) != len(buffer.shape):
            rank = len(buffer.shape)
            raise TypeMismatch(f"buffer {buffer.name}: {len(buffer.strides)} strides for {rank} dimensions")

    def index(self, item: E.Expr) -> None:
        self.expr(item)
        if not item.dtype.is_int:
            raise TypeMismatch(f"index {item!r} is {item.dtype}, not an integer")

    def condition(self, item: E.Expr) -> None:
        self.expr(item)
        if item.dtype is not E.BOOL:
            raise TypeMismatch(f"condition {item!r} is {item.dtype}, not bool")

    def access(self, buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> None:
        if buffer not in self.names:
            raise InternalError(f"buffer {buffer.name} is used outside its allocation")
        if len(indices) != len(buffer.shape):
            raise TypeMismatch(f"buffer {buffer.name} has {len(buffer.shape)} dimensions, got {len(indices)} indices")
        for index in indices:
            self.index(index)
        if any(i.dtype.lanes > 1 for i in indices[:-1]):
            raise TypeMismatch(f"buffer {buffer.name}: only the last index may be a vector")


def _same(a: E.Expr, b: E.Expr, what: str) -> None:
    if a.dtype is not b.dtype:
        raise TypeMismatch(f"{what}: operands have {a.dtype} and {b.dtype}")


def _var(v: Verifier, e: E.Var) -> None:
    if e not in v.names:
        raise InternalError(f"variable {e.name} is used outside its scope")


def _binary(v: Verifier, e: E.Binary) -> None:
    v.expr(e.a)
    v.expr(e.b)
    _same(e.a, e.b, type(e).__name__)


def _logical(v: Verifier, e: E.Binary) -> None:
    _binary(v, e)
    if not e.a.dtype.is_bool:
        raise TypeMismatch(f"{type(e).__name__} of {e.a.dtype}, wanted bool")


def _division(v: Verifier, e: E.Binary) -> None:
    _binary(v, e)
    if isinstance(e, E.Div) and not e.dtype.is_float:
        raise TypeMismatch(f"Div of {e.dtype}; use FloorDiv or TruncDiv for integers")


def _int(v: Verifier, e: E.IntImm) -> None:
    if not (e.dtype.is_int or e.dtype.is_bool) or not e.dtype.min_value <= e.value <= e.dtype.max_value:
        raise TypeMismatch(f"{e.value} is no {e.dtype}")


def _float(v: Verifier, e: E.FloatImm) -> None:
    if not e.dtype.is_float:
        raise TypeMismatch(f"a float constant of {e.dtype}")


def _not(v: Verifier, e: E.Not) -> None:
    v.expr(e.a)
    if not e.a.dtype.is_bool:
        raise TypeMismatch(f"Not of {e.a.dtype}, wanted bool")


def _select(v: Verifier, e: E.Select) -> None:
    for part in (e.condition, e.true_value, e.false_value):
        v.expr(part)
    _same(e.true_value, e.false_value, "Select")
    if not e.condition.dtype.is_bool or e.condition.dtype.lanes not in (1, e.dtype.lanes):
        raise TypeMismatch(f"Select of {e.dtype} by a condition of {e.condition.dtype}")


def _ramp(v: Verifier, e: E.Ramp) -> None:
    v.expr(e.base)
    v.expr(e.stride)
    _same(e.base, e.stride, "Ramp")


def _let(v: Verifier, e: E.Let) -> None:
    v.expr(e.value)
    _same(e.var, e.value, "Let")
    v.names.add(e.var)
    v.expr(e.body)


def _call(v: Verifier, e: E.Call) -> None:
    row = INTRINSICS.get(e.name)
    if row is None:
        raise InternalError(f"there is no intrinsic {e.name!r}")
    if row.arity >= 0 and len(e.args) != row.arity:
        raise TypeMismatch(f"{e.name} takes {row.arity} arguments, got {len(e.args)}")
    for arg in e.args:
        v.expr(arg)
    if e.name == "if_then_else":
        v.condition(e.args[0])
        _same(e.args[1], e.args[2], e.name)


def _string(v: Verifier, e: E.StringImm) -> None:
    if e.dtype != "string":
        raise TypeMismatch(f"a string of {e.dtype}")


EXPR_RULES: Visits[Verifier, [], None] = {
    E.Var: _var,
    E.IntImm: _int,
    E.FloatImm: _float,
    E.StringImm: _string,
    E.Cast: lambda v, e: v.expr(e.value),
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Min, E.Max), _binary),
    **dict.fromkeys((E.Div, E.TruncDiv, E.TruncMod, E.FloorDiv, E.FloorMod), _division),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), _binary),
    **dict.fromkeys((E.And, E.Or), _logical),
    E.Not: _not,
    E.Select: _select,
    E.BufferLoad: lambda v, e: v.access(e.buffer, e.indices),
    E.Ramp: _ramp,
    E.Broadcast: lambda v, e: v.expr(e.value),
    E.Let: _let,
    E.Call: _call,
}


def _for(v: Verifier, s: S.For) -> None:
    def check() -> None:
        v.index(s.min)
        v.index(s.extent)
        _same(s.var, s.min, "For")
        _same(s.var, s.extent, "For")

    v.located(s, check)
    v.scoped(s.var, s.body)


def _if(v: Verifier, s: S.IfThenElse) -> None:
    v.located(s, lambda: v.condition(s.condition))
    v.stmt(s.then_body)
    if s.else_body is not None:
        v.stmt(s.else_body)


def _while(v: Verifier, s: S.While) -> None:
    v.located(s, lambda: v.condition(s.condition))
    v.stmt(s.body)


def _store(v: Verifier, s: S.BufferStore) -> None:
    def check() -> None:
        v.expr(s.value)
        v.access(s.buffer, s.indices)
        lanes = s.indices[-1].dtype.lanes if s.indices else 1
        wanted = s.buffer.dtype.with_lanes(s.buffer.dtype.lanes * lanes)
        if s.value.dtype is not wanted:
            raise TypeMismatch(f"store of {s.value.dtype} into {wanted} elements of {s.buffer.name}")

    v.located(s, check)


def _allocate(v: Verifier, s: S.Allocate) -> None:
    v.located(s, lambda: v.shape(s.buffer))
    if s.buffer in v.names:
        raise InternalError(f"buffer {s.buffer.name} is allocated inside itself")
    v.scoped(s.buffer, s.body)


def _attr(v: Verifier, s: S.AttrStmt) -> None:
    v.located(s, lambda: v.expr(s.value))
    if isinstance(s.node, E.IterVar):
        v.scoped(s.node.var, s.body)
    else:
        v.stmt(s.body)


def _let_stmt(v: Verifier, s: S.LetStmt) -> None:
    def check() -> None:
        v.expr(s.value)
        _same(s.var, s.value, "LetStmt")

    v.located(s, check)
    v.scoped(s.var, s.body)


def _assert(v: Verifier, s: S.AssertStmt) -> None:
    v.located(s, lambda: v.condition(s.condition))
    v.stmt(s.body)


def _seq(v: Verifier, s: S.SeqStmt) -> None:
    if len(s.statements) < 2 or any(isinstance(x, S.SeqStmt) for x in s.statements):
        raise InternalError("a SeqStmt holds at least two statements, and no SeqStmt")
    for item in s.statements:
        v.stmt(item)


STMT_RULES: Visits[Verifier, [], None] = {
    S.For: _for,
    S.IfThenElse: _if,
    S.While: _while,
    S.BufferStore: _store,
    S.Allocate: _allocate,
    S.AttrStmt: _attr,
    S.LetStmt: _let_stmt,
    S.AssertStmt: _assert,
    S.SeqStmt: _seq,
    S.Evaluate: lambda v, s: v.located(s, lambda: v.expr(s.value)),
}
