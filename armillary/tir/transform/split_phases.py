"""`split-phases`: the packed form of a lowered function (the kernel ABI of docs/architecture.md).

In: a flat PrimFunc. Out: a `PhasedFunction`: each outermost parallel loop is a phase, serial statements
between them form
phases of extent 1, allocations outside parallel loops get offsets in the shared workspace (lives that do not overlap
share bytes), large ones inside get offsets in the thread workspace. Invariant: phase bodies hold no parallel
loop, and allocate only `local` buffers and at most STACK_BYTES of others. Emitters: `codegen/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from armillary.base.extent import Known, ceil_div, most
from armillary.base.node import post_order, replace
from armillary.errors import ScheduleError, UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, free_vars, has_loads
from armillary.tir.extents import from_expr
from armillary.tir.phases import Phase, PhasedFunction
from armillary.tir.substitute import fresh_copy, map_stmt, substitute
from armillary.tir.transform.loop_pass import NOTHING

STACK_BYTES = 16 * 1024
LOCAL_BYTES = 256 * 1024
LIFTED_ITERATIONS = 4
_ALIGN = 64
_ELSEWHERE = ("coproc_uop_scope", "coproc_scope")  # notes that change what a body means
Wrap = Callable[[S.Stmt], S.Stmt]


def split_phases(func: S.PrimFunc, name: str = "") -> PhasedFunction:
    """Cut a lowered function into phases.

    Raises UnsupportedError for loops bound to GPU threads.
    """
    label = name or func.get_attr("global_symbol", "main")
    if any(isinstance(item, S.AttrStmt) and item.key in _ELSEWHERE for item in all_statements(func.body)):
        message = f"{label}: what runs once, or on a coprocessor, has no code here"
        raise UnsupportedError(message, hint=f"leave out the note {_ELSEWHERE[0]}")
    tensors = tuple(p for p in func.params if isinstance(p, S.Buffer))
    scalars = (*(p for p in func.params if isinstance(p, E.Var)), *free_vars(func))
    splitter = _Splitter(label, frozenset(scalars))
    splitter.stmt(func.body, lambda s: s)
    splitter.flush()
    places = _Places(label)
    phases = tuple(places.phase(k, p) for k, p in enumerate(splitter.phases))
    shared, shared_bytes = _pack(_lives(splitter.shared, phases, places.serial))
    asserts = [n for p in phases for n in _in_order(p.body) if isinstance(n, S.AssertStmt)]
    return PhasedFunction(
        name=label,
        params=tensors,
        shapes=func.get_attr("tensor_shapes") or tuple(t.shape for t in tensors),
        vars=scalars,
        phases=phases,
        shared_workspace=shared,
        thread_workspace=places.thread,
        shared_bytes=shared_bytes,
        thread_bytes=places.thread_bytes,
        asserts=tuple(s.message for s in asserts),
        assert_codes={s: k for k, s in enumerate(asserts, 1)},
        noalias=bool(func.get_attr("noalias", True)),
        imports=str(func.get_attr("import_llvm", "")),
    )


def _in_order(body: S.Stmt) -> list[S.Stmt]:
    return list(all_statements(body))


@dataclass
class _Splitter:
    """Walks top-level statements; `wrap` puts back the conditions and lets around a phase body."""

    name: str
    scalars: frozenset[E.Var]
    phases: list[Phase] = field(default_factory=list)
    shared: list[S.Buffer] = field(default_factory=list)
    pending: list[S.Stmt] = field(default_factory=list)

    def stmt(self, item: S.Stmt, wrap: Wrap) -> None:
        if not _has_parallel(item):
            self.pending.append(wrap(item))
            return
        rule = {
            S.SeqStmt: self.seq,
            S.Allocate: self.allocate,
            S.AttrStmt: self.attr,
            S.AssertStmt: self.check,
            S.LetStmt: self.let,
            S.IfThenElse: self.branch,
            S.For: self.loop,
            S.While: self.repeat,
        }[type(item)]
        rule(item, wrap)  # type: ignore[operator]

    def flush(self) -> None:
        """Close the serial phase collected so far."""
        if self.pending:
            body = S.seq(*self.pending)
            self.pending = []
            one, zero = build.const(1), build.const(0)
            self.phases.append(Phase(E.Var("once"), zero, one, _without_parallel(body), is_parallel=False))

    def seq(self, item: S.SeqStmt, wrap: Wrap) -> None:
        for part in item.statements:
            self.stmt(part, wrap)

    def allocate(self, item: S.Allocate, wrap: Wrap) -> None:
        self.shared.append(item.buffer)
        self.stmt(item.body, wrap)

    def attr(self, item: S.AttrStmt, wrap: Wrap) -> None:
        if item.key in ("thread_extent", "virtual_thread"):
            raise UnsupportedError(f"{self.name}: {item.key} needs a GPU target")
        self.stmt(item.body, wrap)

    def check(self, item: S.AssertStmt, wrap: Wrap) -> None:
        self.pending.append(wrap(S.AssertStmt(item.condition, item.message, NOTHING)))
        self.stmt(item.body, wrap)

    def let(self, item: S.LetStmt, wrap: Wrap) -> None:
        if has_loads(item.value):
            self.pending.append(wrap(item))
            return
        self.stmt(item.body, lambda s: wrap(S.LetStmt(item.var, item.value, s)))

    def branch(self, item: S.IfThenElse, wrap: Wrap) -> None:
        if has_loads(item.condition):
            self.pending.append(wrap(item))
            return
        self.stmt(item.then_body, lambda s: wrap(S.IfThenElse(item.condition, s)))
        if item.else_body is not None:
            self.stmt(item.else_body, lambda s: wrap(S.IfThenElse(E.Not(item.condition), s)))

    def loop(self, item: S.For, wrap: Wrap) -> None:
        if item.kind is S.LoopKind.PARALLEL and self.is_known(item.min) and self.is_known(item.extent):
            self.flush()
            _refuse_race(self.name, item)
            dtype = item.var.dtype
            low, extent = build.cast(item.min, dtype), build.cast(item.extent, dtype)
            self.phases.append(Phase(item.var, low, extent, wrap(_without_parallel(item.body))))
            return
        extent_value = build.as_int(item.extent)
        if extent_value is None or extent_value > LIFTED_ITERATIONS or item.kind is S.LoopKind.PARALLEL:
            self.pending.append(wrap(item))
            return
        for k in range(extent_value):
            body = fresh_copy(item.body) if k else item.body
            self.stmt(substitute(body, {item.var: build.add(item.min, build.const(k, item.var.dtype))}), wrap)

    def repeat(self, item: S.While, wrap: Wrap) -> None:
        """How often it runs shows only inside: one phase, its loops one after another."""
        self.pending.append(wrap(item))

    def is_known(self, item: E.Expr) -> bool:
        return not has_loads(item) and self.scalars.issuperset(free_vars(item))


def _refuse_race(name: str, loop: S.For) -> None:
    """ScheduleError where all iterations of a parallel loop add to one element, as those of a reduction axis do."""
    inside = {s.buffer for s in all_statements(loop.body) if isinstance(s, S.Allocate)}
    moving = {loop.var}
    lets = [s for s in all_statements(loop.body) if isinstance(s, S.LetStmt)]
    while more := {s.var for s in lets if s.var not in moving and moving.intersection(free_vars(s.value))}:
        moving |= more  # in whichever order the statements come
    chosen = {  # what only some iterations do, as the last one where its elements are fewer
        id(inner)
        for s in all_statements(loop.body)
        if isinstance(s, S.IfThenElse) and moving.intersection(free_vars(s.condition))
        for inner in all_statements(s)
    }
    for item in all_statements(loop.body):
        if not isinstance(item, S.BufferStore) or item.buffer in inside or build.as_int(loop.extent) == 1:
            continue
        if id(item) in chosen:
            continue
        reads = any(isinstance(e, E.BufferLoad) and e.buffer is item.buffer for e in post_order(item.value))
        if reads and not any(moving.intersection(free_vars(index)) for index in item.indices):
            message = (
                f"{name}: iterations of the parallel loop {loop.var.name} add to one element of {item.buffer.name}"
            )
            raise ScheduleError(message, hint="run a data axis in parallel, or rfactor the reduction")


def _has_parallel(item: S.Stmt) -> bool:
    return any(isinstance(n, S.For) and n.kind is S.LoopKind.PARALLEL for n in all_statements(item))


def _without_parallel(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _without_parallel)
    if isinstance(mapped, S.For) and mapped.kind is S.LoopKind.PARALLEL:
        return replace(mapped, kind=S.LoopKind.SERIAL)
    return mapped


def constant_bytes(buffer: S.Buffer, function: str) -> int:
    """Bytes of an allocation, which must be known at compile time."""
    total = buffer.dtype.bytes
    for extent in buffer.shape:
        size = build.as_int(extent)
        if size is None:
            raise UnsupportedError(
                f"{function}: the intermediate tensor {buffer.name} has the symbolic size {extent!r}",
                hint="fix the shape (freeze_shapes), or compute this stage inline",
            )
        total *= size
    return total


def buffer_bytes(buffer: S.Buffer) -> Known:
    """Bytes of an allocation, as an extent where its sizes have names."""
    total: Known = buffer.dtype.bytes
    for size in map(from_expr, buffer.shape):
        total = total * size
    return total


class _Places:
    """Decides, per phase, which allocations stay on the stack and where the others live."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread: dict[S.Buffer, Known] = {}
        self.thread_bytes: Known = 0
        self.serial: dict[S.Buffer, int] = {}  # large buffers of serial phases -> the phase that uses them

    def phase(self, index: int, phase: Phase) -> Phase:
        budget = [STACK_BYTES]
        body = self.stmt(phase.body, index if not phase.is_parallel else -1, 0, budget)
        return _replace_body(phase, body)

    def stmt(self, item: S.Stmt, serial_phase: int, offset: Known, budget: list[int]) -> S.Stmt:
        if isinstance(item, S.For) and item.kind is S.LoopKind.THREAD:
            raise UnsupportedError(f"{self.name}: a loop is bound to {item.thread_tag}; that needs a GPU target")
        if not isinstance(item, S.Allocate):
            return map_stmt(item, lambda e: e, lambda s: self.stmt(s, serial_phase, offset, budget))
        size = buffer_bytes(item.buffer)
        if self.stays(item.buffer, size, budget):
            body = self.stmt(item.body, serial_phase, offset, budget)
            return replace(item, body=body)
        if serial_phase >= 0:
            self.serial[item.buffer] = serial_phase
            return self.stmt(item.body, serial_phase, offset, budget)
        self.thread[item.buffer] = offset
        end = _align(offset + size)
        self.thread_bytes = most(self.thread_bytes, end)
        return self.stmt(item.body, serial_phase, end, budget)

    def stays(self, buffer: S.Buffer, size: Known, budget: list[int]) -> bool:
        if not isinstance(size, int):
            return False
        if buffer.scope == "local" and size <= LOCAL_BYTES:
            return True
        if size > budget[0]:
            return False
        budget[0] -= size
        return True


def _replace_body(phase: Phase, body: S.Stmt) -> Phase:
    return Phase(phase.var, phase.min, phase.extent, body, phase.is_parallel)


def _align(value: Known) -> Known:
    return ceil_div(value, _ALIGN) * _ALIGN


def _lives(
    shared: list[S.Buffer], phases: tuple[Phase, ...], serial: dict[S.Buffer, int]
) -> dict[S.Buffer, tuple[int, int]]:
    """First and last phase that touches each shared buffer."""
    wanted = set(shared)
    lives: dict[S.Buffer, tuple[int, int]] = {b: (k, k) for b, k in serial.items()}
    for index, phase in enumerate(phases if wanted else ()):
        for item in post_order(phase.body):
            if isinstance(item, S.Buffer) and item in wanted:
                lives[item] = (lives.get(item, (index, index))[0], index)
    return lives


def _pack(lives: dict[S.Buffer, tuple[int, int]]) -> tuple[dict[S.Buffer, Known], Known]:
    """Offsets such that buffers alive at one time do not overlap; of named sizes they stand behind the rest."""
    fixed = {b: size for b in lives if isinstance(size := _align(most(1, buffer_bytes(b))), int)}
    offsets, total = _pack_fixed({b: lives[b] for b in fixed}, fixed)
    layout, end = dict[S.Buffer, Known](offsets), cast("Known", total)
    for buffer in lives:
        if buffer not in fixed:
            layout[buffer] = end
            end = end + _align(buffer_bytes(buffer))
    return {b: layout[b] for b in lives}, end


def _pack_fixed(lives: dict[S.Buffer, tuple[int, int]], sizes: dict[S.Buffer, int]) -> tuple[dict[S.Buffer, int], int]:
    """Of sizes that are numbers: largest first, lowest free place."""
    placed: dict[S.Buffer, int] = {}
    for buffer in sorted(lives, key=lambda b: -sizes[b]):
        first, last = lives[buffer]
        busy = sorted((placed[b], placed[b] + sizes[b]) for b in placed if lives[b][0] <= last and first <= lives[b][1])
        offset = 0
        for start, end in busy:
            if offset + sizes[buffer] <= start:
                break
            offset = max(offset, end)
        placed[buffer] = offset
    total = max((placed[b] + sizes[b] for b in placed), default=0)
    return {b: placed[b] for b in lives}, total
