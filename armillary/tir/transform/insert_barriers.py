"""Barriers of a kernel: between what one work-item of a group writes to shared memory and another reads or overwrites.

In: the body of a kernel over `threadIdx` variables, with allocations of scope `shared`. Out: the body with
`thread_sync` statements. Invariant: between two accesses of a shared buffer of which one writes, and which are not
both by the same work-item alone, a barrier is passed, by all work-items of the group: barriers stand in no condition
or loop that work-items see differently. Global memory is looked at on demand (`tir.detect_global_barrier`). Caller:
`split_host_device.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from armillary.base.node import post_order, replace, structural_equal
from armillary.errors import UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, expressions_of

DOUBLE_BUFFER_WRITE = "double_buffer_write"  # a note: stores to the copy that its iteration of a loop does not read
Places = Mapping[S.Buffer, tuple[E.Expr, ...]]  # two unlike ones of a buffer at most: with those it meets any other


@dataclass(frozen=True)
class _Access:
    """What was read and written since the last barrier."""

    reads: Places = field(default_factory=dict)
    writes: Places = field(default_factory=dict)

    def __add__(self, other: _Access) -> _Access:
        return _Access(_joined(self.reads, other.reads), _joined(self.writes, other.writes))


def _joined(some: Places, others: Places) -> Places:
    if not some or not others:
        return some or others
    total = dict(some)
    for buffer, places in others.items():
        for place in places:
            before = total.get(buffer, ())
            if len(before) < 2 and not any(_are_alike(place, other) for other in before):
                total[buffer] = (*before, place)
    return total


def _are_alike(one: E.Expr, other: E.Expr) -> bool:
    named = [n for n in post_order(one) if isinstance(n, E.Var)]
    return one is other or structural_equal([*named, one], [*named, other])


def insert_barriers(
    body: S.Stmt, threads: frozenset[E.Var], name: str, watched: frozenset[S.Buffer] | None = None
) -> S.Stmt:
    """The body of a kernel with the barriers it needs; `threads` are its threadIdx variables of more than one value.

    `watched` are the buffers that work-items tell each other something by: without them, what is shared.
    """
    chosen = shared_buffers(body) if watched is None else watched
    return _Inserter(threads, name, chosen).stmt(body, _Access())[0] if chosen else body


def shared_buffers(body: S.Stmt) -> frozenset[S.Buffer]:
    """What is allocated for a group."""
    buffers = (n.buffer for n in all_statements(body) if isinstance(n, S.Allocate))
    return frozenset(b for b in buffers if b.scope == "shared")


def global_buffers(body: S.Stmt, threads: frozenset[E.Var], groups: frozenset[E.Var], name: str) -> frozenset[S.Buffer]:
    """What work-items write to and others of their group read from global memory; UnsupportedError across groups.

    `threads` and `groups` are the variables of more than one value.
    """
    own = {n.buffer for n in all_statements(body) if isinstance(n, S.Allocate)}
    stored = {n.buffer for n in all_statements(body) if isinstance(n, S.BufferStore)} - own
    every = _Inserter(threads | groups, name, frozenset(stored))
    total = every.accesses(body)
    met = {b for b, places in total.writes.items() if every.meet({b: places}, total.reads)}
    if met and groups:
        names = ", ".join(sorted(b.name for b in met))
        message = f"{name}: a work-item may read of {names} what one of another group writes, for which it cannot wait"
        raise UnsupportedError(message, hint="read it in loops of their own: kernels run one after another")
    return frozenset(met)


def _seen(before: _Access, item: S.Stmt) -> _Access:
    """What a statement may conflict with: not with reads of the copy of a double buffer that it does not write."""
    if not isinstance(item, S.AttrStmt) or item.key != DOUBLE_BUFFER_WRITE:
        return before
    return _Access({b: places for b, places in before.reads.items() if b is not item.node}, before.writes)


@dataclass
class _Inserter:
    threads: frozenset[E.Var]
    name: str
    watched: frozenset[S.Buffer]
    varying: set[E.Var] = field(default_factory=set)  # named by lets that depend on the work-item

    def barrier(self) -> S.Stmt:
        """Wait for the other work-items of the group, and see what they wrote."""
        scope = "shared" if all(b.scope == "shared" for b in self.watched) else "global"
        return S.Evaluate(build.call("thread_sync", scope, dtype="int32"))

    def stmt(self, item: S.Stmt, before: _Access) -> tuple[S.Stmt, _Access]:
        """The statement with barriers inside, and what is open behind it."""
        if isinstance(item, S.SeqStmt):
            return self.sequence(item, before)
        if isinstance(item, S.For) and item.kind is S.LoopKind.THREAD:  # its iterations do not follow one another
            inner, after = self.stmt(item.body, before)
            return replace(item, body=inner), after
        if isinstance(item, S.For) and not self.varies(item.min) and not self.varies(item.extent):
            return self.loop(item, before)
        if isinstance(item, S.IfThenElse) and not self.varies(item.condition):
            then, one = self.stmt(item.then_body, before)
            other, two = self.stmt(item.else_body, before) if item.else_body is not None else (None, before)
            return replace(item, then_body=then, else_body=other), one + two
        if isinstance(item, S.AssertStmt) and not self.varies(item.condition):
            inner, after = self.stmt(item.body, before)
            return replace(item, body=inner), after
        if isinstance(item, S.AttrStmt) and item.key == DOUBLE_BUFFER_WRITE:
            inner, after = self.stmt(item.body, _seen(before, item))
            return replace(item, body=inner), before + after
        if isinstance(item, S.Allocate | S.AttrStmt | S.LetStmt):
            if isinstance(item, S.LetStmt) and self.varies(item.value):
                self.varying.add(item.var)
            inner, after = self.stmt(item.body, before)
            own = self.of_expressions(item)
            return replace(item, body=inner), after + own
        self.refuse_conflicts(item)
        return item, before + self.accesses(item)

    def sequence(self, item: S.SeqStmt, before: _Access) -> tuple[S.Stmt, _Access]:
        statements: list[S.Stmt] = []
        for part in item.statements:
            if self.conflict(_seen(before, part), self.accesses(part)):
                statements.append(self.barrier())
                before = _Access()
            inner, before = self.stmt(part, before)
            statements.append(inner)
        return S.seq(*statements), before

    def loop(self, item: S.For, before: _Access) -> tuple[S.Stmt, _Access]:
        """A barrier at the start of each iteration, if one iteration's end and the next one's start conflict."""
        body, after = self.stmt(item.body, _Access())
        if self.conflict(after, self.accesses(item.body)):
            body, after = self.stmt(item.body, _Access())
            return replace(item, body=S.seq(self.barrier(), body)), after
        return replace(item, body=body), before + after

    def varies(self, item: E.Expr) -> bool:
        """Whether work-items of a group may see different values."""
        return any(isinstance(n, E.BufferLoad) or n in self.threads or n in self.varying for n in post_order(item))

    def accesses(self, item: S.Stmt) -> _Access:
        total = _Access()
        for part in all_statements(item):
            total = total + self.of_expressions(part)
            if isinstance(part, S.BufferStore) and part.buffer in self.watched:
                total = total + _Access({}, {part.buffer: (part.indices[-1],)})
        return total

    def of_expressions(self, item: S.Stmt) -> _Access:
        loads: Iterable[E.BufferLoad] = (
            n for e in expressions_of(item) for n in post_order(e) if isinstance(n, E.BufferLoad)
        )
        total = _Access()
        for load in loads:
            if load.buffer in self.watched:
                total = total + _Access({load.buffer: (load.indices[-1],)})
        return total

    def conflict(self, before: _Access, after: _Access) -> bool:
        return self.meet(before.writes, after.reads) or self.meet(before.reads, after.writes)

    def meet(self, some: Places, others: Places) -> bool:
        return any(not self.is_own(i, j) for b, places in some.items() for i in places for j in others.get(b, ()))

    def is_own(self, one: E.Expr, other: E.Expr) -> bool:
        """Whether each work-item has an element of its own there: the same place, told apart by every threadIdx."""
        return self.threads.issubset(n for n in post_order(one) if isinstance(n, E.Var)) and _are_alike(one, other)

    def refuse_conflicts(self, item: S.Stmt) -> None:
        """A barrier inside what only some work-items run would never be passed by all."""
        for part in all_statements(item):
            if not isinstance(part, S.SeqStmt):
                continue
            for number, one in enumerate(part.statements[:-1], 1):
                rest = S.seq(*part.statements[number:])
                if self.conflict(self.accesses(one), self.accesses(rest)):
                    message = f"{self.name}: a barrier would stand inside a condition that depends on the work-item"
                    raise UnsupportedError(message, hint="let the bound axes divide by their numbers of threads")
