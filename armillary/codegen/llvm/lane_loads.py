"""Neighbouring elements that products take one after another, in all lanes, come as one vector and are lanes of it.

In: statements in a row (`shared_loads`), then the loads in them (`broadcast_load`) and the words of bytes (`lane_of`).
Out: one load for up to four float32 or words of bytes and a shuffle for each, which an instruction that multiplies by a
lane takes for nothing (`CpuModel.multiplies_lanes`). Invariant: only elements that the statements read are touched:
there is no branch among them, and no memory that is read is written. Used by `llvm/emit.py`, `llvm/expr.py`,
`llvm/memory.py` and `llvm/dots`.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.base.node import Node, post_order
from armillary.codegen.base import flat_index
from armillary.codegen.llvm.index import Linear, address, linear
from armillary.codegen.llvm.state import Emitter, Neighbours
from armillary.codegen.llvm.types import register_type
from armillary.tir import expr as E
from armillary.tir import stmt as S

LANES, REGISTER = 4, 16  # float32 or words of four bytes in a register; its bytes
WORDS = ("four_bytes", "eight_bytes")
LOAD_AGAIN = 'fence syncscope("singlethread") seq_cst'  # no instruction: LLVM would keep what is loaded later again
Place = tuple[S.Buffer, str, int, int]  # a buffer, the terms of an index, its constant, elements that begin there


def shared_loads(m: Emitter, statements: tuple[S.Stmt, ...]) -> list[Neighbours | None]:
    """For each of the statements in a row, the vectors that its loads can share with those of others."""
    if m.neighbours is not None or not m.cpu.multiplies_lanes:
        return [m.neighbours] * len(statements)
    written = frozenset(s.buffer for s in statements if isinstance(s, S.BufferStore))
    places = [_places(m, s, written) for s in statements]
    result: list[Neighbours | None] = []
    for first, end in _windows(places):
        shared = _neighbours(places[first:end])
        result += [shared] * (end - first)
    return result


def _windows(places: list[set[Place] | None]) -> list[tuple[int, int]]:
    """Ranges of statements that load no place again later: a vector would wait for that in a register.

    A statement that has no places known (None) stands alone.
    """
    result, first, last = [], 0, dict[Place, int]()
    for at, own in enumerate(places):
        again = own is None or any(last.get(place, at) < at - 1 for place in own)
        if again and at > first:
            result.append((first, at))
            first = at
        if again:
            last.clear()
        if own is None:
            result.append((at, at + 1))
            first = at + 1
        last.update(dict.fromkeys(own or (), at))
    return [*result, (first, len(places))] if first < len(places) else result


def _places(m: Emitter, statement: S.Stmt, written: frozenset[S.Buffer]) -> set[Place] | None:
    """What a statement loads to every lane from memory that is not `written`; None for more than a plain store."""
    if isinstance(statement, S.Evaluate) and isinstance(statement.value, E.Call) and statement.value.name == "prefetch":
        return set()
    if not isinstance(statement, S.BufferStore):
        return None
    result: set[Place] = set()
    for part in post_order(statement.value):
        if isinstance(part, E.Select | E.Let) or (isinstance(part, E.Call) and part.name == "if_then_else"):
            return None
        place = _place(m, part)
        if place is not None and place[0] not in written:
            result.add(place)
    return result


def _place(m: Emitter, part: Node) -> Place | None:
    """Where a number lies that is loaded to every lane, or the first byte of such a word."""
    if isinstance(part, E.BufferLoad):
        at = _broadcast_index(m, part)
        total = None if at is None else linear(m, at)
        return None if total is None else (part.buffer, _terms(total), total.constant, 1)
    word = _word(m, part)
    return None if word is None else (word[0], _terms(word[1]), word[1].constant, word[2])


def _word(m: Emitter, word: Node) -> tuple[S.Buffer, Linear, int] | None:
    """The buffer of a word whose bytes lie side by side in memory, where its first one is, how many they are."""
    if not isinstance(word, E.Call) or word.name not in WORDS or word.dtype.lanes > 1:
        return None
    first = word.args[0]
    if not isinstance(first, E.BufferLoad) or first.buffer in m.files or first.buffer.dtype.lanes > 1:
        return None
    base = linear(m, flat_index(first.buffer, first.indices))
    for k, arg in enumerate(word.args[1:], 1):
        if not isinstance(arg, E.BufferLoad) or arg.buffer is not first.buffer:
            return None
        other = linear(m, flat_index(arg.buffer, arg.indices))
        if other.terms != base.terms or other.constant != base.constant + k:
            return None
    return first.buffer, base, len(word.args)


def _neighbours(places: list[set[Place] | None]) -> Neighbours | None:
    """The vectors of so many statements; None where no places are neighbours."""
    constants: dict[tuple[S.Buffer, str, int], set[int]] = {}
    for buffer, terms, at, size in (place for own in places for place in own or ()):
        constants.setdefault((buffer, terms, size), set()).add(at)
    neighbours: dict[Place, tuple[int, int]] = {}
    for (buffer, terms, size), all_ in constants.items():
        runs = _runs(all_, size, REGISTER // (size * buffer.dtype.bytes))
        neighbours |= {(buffer, terms, at, size): run for at, run in runs.items()}
    return Neighbours(neighbours) if neighbours else None


def _broadcast_index(m: Emitter, load: E.BufferLoad) -> E.Expr | None:
    """The index of one element of memory that a load gives, perhaps in all lanes."""
    if load.buffer in m.files or load.buffer.dtype != "float32":
        return None
    index = flat_index(load.buffer, load.indices)
    index = index.value if isinstance(index, E.Broadcast) else index
    return index if index.dtype.lanes == 1 else None


def _terms(total: Linear) -> str:
    return " ".join(f"{atom}*{weight}" for atom, weight in sorted(total.terms.items()))


def _runs(constants: set[int], step: int, most: int) -> dict[int, tuple[int, int]]:
    """For places with neighbours `step` apart: where their vector begins, and its lanes, at `most` as many."""
    result: dict[int, tuple[int, int]] = {}
    for at in sorted(constants):
        if at in result:
            continue
        widths = (n for n in (most, most // 2) if constants.issuperset(range(at, at + n * step, step)))
        width = next(widths, 1)
        result |= {at + k * step: (at, width) for k in range(width) if width > 1}
    return result


def lane_of(m: Emitter, e: E.Expr, dtype: DType) -> str | None:
    """`broadcast_load` of a scalar load, or of a word of four bytes."""
    if m.neighbours is None or m.mask is not None:
        return None
    if isinstance(e, E.BufferLoad):
        at = _broadcast_index(m, e)
        return None if at is None else broadcast_load(m, e.buffer, at, dtype)
    word = _word(m, e)
    return None if word is None else _lane(m, *word, dtype)


def word_in_lane(m: Emitter, word: E.Call) -> tuple[str, int] | None:
    """The vector of two words of eight bytes that has this one, and its lane; None where it has no neighbour."""
    word_place = _word(m, word) if m.neighbours is not None and m.mask is None else None
    vector = None if word_place is None else _vector(m, *word_place, word.dtype)
    return None if vector is None else (vector[0], vector[2])


def broadcast_load(m: Emitter, buffer: S.Buffer, index: E.Expr, dtype: DType) -> str | None:
    """One element in every lane of `dtype`, from a vector of its neighbours; None where it has none."""
    return None if m.neighbours is None else _lane(m, buffer, linear(m, index), 1, dtype)


def _lane(m: Emitter, buffer: S.Buffer, total: Linear, size: int, dtype: DType) -> str | None:
    """What begins at a place in every lane of `dtype`."""
    vector = _vector(m, buffer, total, size, dtype.element) if dtype.lanes % LANES == 0 else None
    if vector is None:
        return None
    whole, kind, lane = vector
    lanes = ", ".join([f"i32 {lane}"] * dtype.lanes)
    return m.pure(f"shufflevector {kind} {whole}, {kind} poison, <{dtype.lanes} x i32> <{lanes}>", whole)


def _vector(m: Emitter, buffer: S.Buffer, total: Linear, size: int, dtype: DType) -> tuple[str, str, int] | None:
    """The vector of neighbours that holds what begins at a place, its type, and the lane."""
    place: Place = (buffer, _terms(total), total.constant, size)
    run = m.neighbours.places.get(place) if m.neighbours is not None else None
    if m.neighbours is None or run is None:
        return None
    first, width = run
    kind, known, key = register_type(dtype.with_lanes(width)), m.neighbours.loaded, (*place[:2], first, size)
    lane, whole = (total.constant - first) // size, known.get(key)
    if whole is None:
        total.constant = first
        whole = known[key] = m.here(f"load {kind}, ptr {address(m, buffer, total)}, align {buffer.dtype.bytes}")
    return whole, kind, lane
