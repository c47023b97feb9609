"""What always holds of a run program, checked.

In: a program. Out: nothing, or an ArtifactError that names statement and value. Invariant of what passes: a value is
written before it is read and by one statement; inputs and constants are never written, states by one `write` that is
the last to touch them; each size is an axis of an input or bound once, before what has it; and no two
transients that are alive at the same time overlap in the arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from armillary.base.dtype import DType
from armillary.base.extent import as_size, sizes_of
from armillary.errors import ArtifactError
from armillary.program.nodes import (
    LEAVES,
    Bind,
    Equal,
    Lifetime,
    Loop,
    Move,
    Program,
    Return,
    Statement,
    Value,
    Variant,
    bodies,
    reads,
    writes,
)


def verify(program: Program) -> None:
    """Refuse a program that does not hold together."""
    values = {v.name: v for v in program.values}
    if len(values) != len(program.values):
        raise ArtifactError("program: two values have one name")
    _check_sizes(program)
    _check_order(program.body, values, {n for n, v in values.items() if v.storage.lifetime in LEAVES})
    _check_ends(program.body)
    _check_places(program, values)
    _check_states(program, values)


def _check_ends(body: Sequence[Statement]) -> None:
    """A program ends in a return, or in variants that do."""
    variants = [s for s in body if isinstance(s, Variant)]
    if variants and list(body[-len(variants) :]) != variants:
        raise ArtifactError("program: variants are its last statements")
    for ended in [v.body for v in variants] or [tuple(body)]:
        if not ended or not isinstance(ended[-1], Return):
            raise ArtifactError("program: its last statement is no return")


def _check_sizes(program: Program) -> None:
    declared = {size.name for size in program.sizes}
    axes = (d for v in program.values if v.storage.lifetime is Lifetime.INPUT for d in v.shape)
    bound = {size.name for d in axes if (size := as_size(d)) is not None}
    for value in program.values:
        unknown = sorted(set(sizes_of(value.shape)) - declared)
        if unknown:
            raise ArtifactError(f"program: %{value.name} has the size {unknown[0]}, which is not declared")
    _check_binds(program, declared - bound, declared)


def _check_binds(program: Program, unbound: set[str], declared: set[str]) -> None:
    """What no input gives is bound once, by a statement before all that has it, in the same body or one around it."""
    missing = sorted(unbound - {s.size for s, _, _ in _steps(program.body) if isinstance(s, Bind)})
    if missing:
        raise ArtifactError(f"program: the size {missing[0]} is no axis of an input, and nothing binds it")
    done: set[str] = set()
    values = {v.name: sizes_of(v.shape) for v in program.values}

    def walk(body: Sequence[Statement], known: set[str]) -> None:
        for statement in body:
            for name in (*reads(statement), *writes(statement)):
                early = sorted(unbound.intersection(values.get(name, ())) - known)
                if early:
                    raise ArtifactError(f"program: {_shown(statement)}: %{name} has the size {early[0]}, not bound yet")
            if isinstance(statement, Equal):
                missing = sorted(set(sizes_of(statement.sides)) - (known | declared - unbound))
                if missing:
                    raise ArtifactError(f"program: an equal compares the size {missing[0]}, not bound yet")
            if isinstance(statement, Bind):
                if statement.size not in unbound or statement.size in done:
                    raise ArtifactError(f"program: bind of {statement.size}, which has its value already")
                done.add(statement.size)
                known.add(statement.size)
            for part in bodies(statement):
                walk(part, set(known))

    walk(program.body, set())


def _check_order(body: Sequence[Statement], values: dict[str, Value], written: set[str]) -> set[str]:
    """Walk statements in order; gives the values that are there behind them."""
    for statement in body:
        for name in reads(statement):
            if name not in values:
                raise ArtifactError(f"program: {_shown(statement)} reads %{name}, which is no value")
            if name not in written:
                raise ArtifactError(f"program: {_shown(statement)} reads %{name} before it is written")
        outputs = set(writes(statement))
        inside = written | (outputs if isinstance(statement, Loop) else set())  # a body reads states as they are
        for part in bodies(statement):
            _check_order(part, values, set(inside))
        for name in () if _is_state_write(statement, values) else writes(statement):
            if name not in values or values[name].storage.lifetime in LEAVES or name in written:
                raise ArtifactError(f"program: {_shown(statement)} writes %{name}, which is not its own")
        written = written | outputs
    return written


def _is_state_write(statement: Statement, values: dict[str, Value]) -> bool:
    if not isinstance(statement, Move) or statement.kind != "write":
        return False
    return statement.output in values and values[statement.output].storage.lifetime is Lifetime.STATE


def _check_states(program: Program, values: dict[str, Value]) -> None:
    """A state is written once, and not read after that."""
    done: set[str] = set()
    for statement, _, _ in _steps(program.body):
        late = sorted(done.intersection((*reads(statement), *writes(statement))))
        if late:
            raise ArtifactError(f"program: {_shown(statement)} uses the state %{late[0]} after its next value is there")
        if _is_state_write(statement, values):
            done.update(writes(statement))


def _steps(body: Sequence[Statement]) -> Iterator[tuple[Statement, int, int]]:
    """Each statement with its step and the last step inside it, in order."""
    step = 0

    def walk(part: Sequence[Statement]) -> Iterator[tuple[Statement, int, int]]:
        nonlocal step
        for statement in part:
            own, step = step, step + 1
            inner = [row for inside in bodies(statement) for row in walk(inside)]
            yield statement, own, step - 1
            yield from inner

    yield from walk(body)


def _check_places(program: Program, values: dict[str, Value]) -> None:
    """No two slots with a planned place overlap while both are alive."""
    lives: dict[int, tuple[int, int]] = {}
    loops = [(own, last) for s, own, last in _steps(program.body) if isinstance(s, Loop)]
    for statement, own, last in _steps(program.body):
        for name in writes(statement):
            _extend(lives, values[name].storage.slot, own, last)
        for name in reads(statement):
            slot = values[name].storage.slot
            first = lives.get(slot, (own, own))[0]
            ends = [end for begin, end in loops if first <= begin <= own <= end]  # read again in each iteration
            _extend(lives, slot, own, max([own, *ends]))
    placed = {v.storage.slot: v for v in program.values if (v.storage.place or 0) >= 0 and v.storage.slot in lives}
    rows = [(s, v.storage.place, _bytes(program, s)) for s, v in placed.items() if v.storage.place is not None]
    joined = _joined(program, values)
    for n, (slot, start, size) in enumerate(rows):
        for other, begin, count in rows[n + 1 :]:
            alive = lives[slot][0] <= lives[other][1] and lives[other][0] <= lives[slot][1]
            apart = start + size <= begin or begin + count <= start
            same = values[placed[slot].name].storage.device == values[placed[other].name].storage.device
            if alive and not apart and same and (slot, other) not in joined and (other, slot) not in joined:
                names = f"%{placed[slot].name} and %{placed[other].name}"
                raise ArtifactError(f"program: {names} lie over one another in the arena while both are alive")


def _extend(lives: dict[int, tuple[int, int]], slot: int, first: int, last: int) -> None:
    begin, end = lives.get(slot, (first, last))
    lives[slot] = min(begin, first), max(end, last)


def _joined(program: Program, values: dict[str, Value]) -> set[tuple[int, int]]:
    """Slots of parts that a join has in place, with the slot of the whole; joins of joins share one place."""
    pairs: set[tuple[int, int]] = set()
    for statement, _, _ in _steps(program.body):
        if isinstance(statement, Move) and statement.kind != "copy":
            whole = values[statement.output].storage.slot
            parts = {values[name].storage.slot for name in statement.inputs}
            inner = {b for a, b in pairs if a in parts}
            pairs |= {(whole, part) for part in parts | inner}
    return pairs


def _bytes(program: Program, slot: int) -> int:
    sizes = []
    for value in program.values:
        if value.storage.slot == slot:
            count = DType(value.dtype).bytes
            for dim in value.shape:
                count *= dim if isinstance(dim, int) else 1
            sizes.append(count)
    return max(sizes)


def _shown(statement: Statement) -> str:
    outputs = ", ".join(f"%{name}" for name in writes(statement))
    return f"{type(statement).__name__.lower()} -> {outputs}" if outputs else type(statement).__name__.lower()
