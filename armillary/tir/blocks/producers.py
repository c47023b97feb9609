"""Statements over tensors that have no memory yet: what `te.schedule.ScheduleOps` gives.

    stmt = ProducerStore(producer, value, indices)                     one element of a tensor is computed
         | ProducerRealize(producer, bounds, condition, body, storage_scope)   these elements of it exist in `body`

In: nodes of `expr.py` and `stmt.py`. Out: statements before `te.schedule.SchedulePostProcToPrimFunc`, which gives
tensors buffers (`te/stages/realize.py`). Invariant: indices count from the beginning of the tensor, wherever its region
begins. No pass and no back end knows these nodes: they are looked at, printed, parsed, checked. Text, which
`tir.parser.parse_stmt(text, {"A": a, …})` reads back:

    realize B([0, 4], [i, 1]) scope="local" if true {
      B(k, i) = A(k, i) + 1.0
    }
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.node import Coercion, Refuse, node, replace
from armillary.errors import InternalError, TypeMismatch
from armillary.tir import expr as E
from armillary.tir import printer, substitute, verifier
from armillary.tir import stmt as S

LOOP_SCOPE = "loop_scope"  # on an axis: the body is one iteration of its loop
BIND_SCOPE = "buffer_bind_scope"  # on a buffer: it is the memory of the tensor that the value reads

_ACCEPTED = {**S.Stmt._accepts, "Producer": "hasattr({0}, 'ndim')"}


class Producer(Protocol):
    """What is read and stored here of a te.Tensor, which lives a layer above."""

    dtype: DType

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def ndim(self) -> int:
        """How many indices an element has."""


@node
class ProducerStore(S.Stmt):
    """Element `indices` of the tensor `producer` is `value`."""

    _accepts: ClassVar[dict[str, str]] = _ACCEPTED
    producer: Producer
    value: E.Expr
    indices: tuple[E.Expr, ...]


@node
class ProducerRealize(S.Stmt):
    """The elements `bounds` of the tensor `producer` exist while `body` runs, where `condition` holds."""

    _accepts: ClassVar[dict[str, str]] = {
        **_ACCEPTED,
        "tuple[E.Range, ...]": "type({0}) is tuple and all(isinstance(one, Range) for one in {0})",
        "S.Stmt": S.Stmt._accepts["Stmt"],
    }
    _scope: ClassVar[dict[str, object]] = {**E.SCOPE, "Range": E.Range}
    _coerce: ClassVar[Coercion | None] = E.Expr._coerce
    _refuse: ClassVar[Refuse | None] = E.Expr._refuse
    producer: Producer
    bounds: tuple[E.Range, ...]
    condition: E.Expr
    body: S.Stmt
    storage_scope: str = ""


@boundary("te.schedule.MergeNest", arguments=True)
def merge_nest(nest: Iterable[S.Stmt | Sequence[S.Stmt]], body: S.Stmt) -> S.Stmt:
    """`body` inside the heads of `nest`, outermost first: statements or lists of them, whose own bodies go."""
    flat = [one for item in nest for one in ([item] if isinstance(item, S.Stmt) else item)]
    for head in reversed(flat):
        field = "then_body" if isinstance(head, S.IfThenElse) else "body"
        if not hasattr(head, field):
            raise TypeMismatch(f"MergeNest: a {type(head).__name__} has no body that something could be put in")
        body = replace(head, **{field: body})
    return body


@boundary("tir.verify_stages", arguments=True)
def verify_stages(statement: S.Stmt, tensors: Iterable[object] = ()) -> None:
    """Raise unless a statement over tensors is well formed; `tensors` exist from the start: the inputs.

    InternalError: a tensor, buffer or variable is used where it does not exist. TypeMismatch: indices or types of a
    store disagree with the tensor's.
    """
    if not isinstance(statement, S.Stmt):
        raise TypeMismatch(f"verify_stages: got {type(statement).__name__}, wanted a statement, as ScheduleOps gives")
    checks = verifier.Verifier()
    checks.producers.update(tensors)
    while isinstance(statement, S.AttrStmt) and statement.key == BIND_SCOPE:
        checks.producers.add(getattr(statement.value, "producer", None))
        checks.names.update({statement.node} if isinstance(statement.node, S.Buffer) else ())
        statement = statement.body
    checks.stmt(statement)


def _access(v: verifier.Verifier, producer: Producer, indices: tuple[E.Expr, ...]) -> None:
    if producer not in v.producers:
        raise InternalError(f"tensor {producer.name} belongs to TE; lower it first: no realize here gives it elements")
    if len(indices) != producer.ndim:
        raise TypeMismatch(f"tensor {producer.name} has {producer.ndim} dimensions, got {len(indices)} indices")
    for index in indices:
        v.index(index)


def _verify_store(v: verifier.Verifier, s: ProducerStore) -> None:
    def check() -> None:
        v.expr(s.value)
        _access(v, s.producer, s.indices)
        if s.value.dtype is not s.producer.dtype:
            raise TypeMismatch(f"store of {s.value.dtype} into {s.producer.dtype} elements of {s.producer.name}")

    v.located(s, check)


def _verify_realize(v: verifier.Verifier, s: ProducerRealize) -> None:
    def check() -> None:
        v.condition(s.condition)
        if len(s.bounds) != s.producer.ndim:
            raise TypeMismatch(f"realize of {s.producer.name}: {len(s.bounds)} ranges, {s.producer.ndim} dimensions")
        for one in s.bounds:
            v.index(one.min)
            v.index(one.extent)

    v.located(s, check)
    if s.producer in v.producers:
        raise InternalError(f"tensor {s.producer.name} is realized inside itself")
    v.producers.add(s.producer)
    v.stmt(s.body)
    v.producers.discard(s.producer)
    v.seen.clear()


def _map_store(item: ProducerStore, on_expr: substitute.Mapper, on_stmt: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    return ProducerStore(item.producer, on_expr(item.value), tuple(map(on_expr, item.indices)))


def _map_realize(item: ProducerRealize, on_expr: substitute.Mapper, on_stmt: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    bounds = tuple(E.Range.from_min_extent(on_expr(r.min), on_expr(r.extent)) for r in item.bounds)
    return replace(item, bounds=bounds, condition=on_expr(item.condition), body=on_stmt(item.body))


def _print_store(p: printer.Printer, s: ProducerStore, is_last: bool) -> None:
    p.writer.line(f"{p.names.of(s.producer, s.producer.name)}({p.exprs(s.indices)}) = {p.expr(s.value)}")


def _print_realize(p: printer.Printer, s: ProducerRealize, is_last: bool) -> None:
    bounds = ", ".join(f"[{p.expr(r.min)}, {p.expr(r.extent)}]" for r in s.bounds)
    scope = f" scope={printer.quote(s.storage_scope)}" if s.storage_scope else ""
    head = f"realize {p.names.of(s.producer, s.producer.name)}({bounds}){scope} if {p.expr(s.condition)} {{"
    with p.writer.block(head):
        p.stmt(s.body)


substitute.STATEMENTS[ProducerStore] = _map_store
substitute.STATEMENTS[ProducerRealize] = _map_realize
printer.STATEMENTS[ProducerStore] = _print_store
printer.STATEMENTS[ProducerRealize] = _print_realize
verifier.STMT_RULES[ProducerStore] = _verify_store
verifier.STMT_RULES[ProducerRealize] = _verify_realize
verifier.EXPR_RULES[E.ProducerLoad] = lambda v, e: _access(v, e.producer, e.indices)
