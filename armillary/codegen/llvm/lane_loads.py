"""Neighbouring elements that products take one after another, in all lanes, come as one vector and are lanes of it.

In: statements in a row (`shared_loads`), then the loads in them (`broadcast_load`). Out: one load for up to four
float32 and a shuffle for each, which an instruction that multiplies by a lane takes for nothing
(`CpuModel.multiplies_lanes`). Invariant: only elements that the statements read are touched: there is no branch among
them, and no memory that is read is written. Used by `llvm/emit.py` and `llvm/memory.py`.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.base.node import post_order
from armillary.codegen.base import flat_index
from armillary.codegen.llvm.index import Linear, address, linear
from armillary.codegen.llvm.state import Emitter, Neighbours
from armillary.codegen.llvm.types import memory_element, vector
from armillary.tir import expr as E
from armillary.tir import stmt as S

LANES, BITS = 4, 32


LOAD_AGAIN = 'fence syncscope("singlethread") seq_cst'  # no instruction: LLVM would keep what is loaded later again
Place = tuple[S.Buffer, str, int]  # a buffer, the terms of an index, its constant


def shared_loads(m: Emitter, statements: tuple[S.Stmt, ...]) -> list[Neighbours | None]:
    """For each of the statements in a row, the vectors that its loads can share with those of others."""
    if m.neighbours is not None or not m.cpu.multiplies_lanes:
        return [m.neighbours] * len(statements)
    written = frozenset(s.buffer for s in statements if isinstance(s, S.BufferStore))
    places = [_places(m, s, written) for s in statements]
    found: list[Neighbours | None] = []
    for first, end in _windows(places):
        shared = _neighbours(places[first:end])
        found += [shared] * (end - first)
    return found


def _windows(places: list[set[Place] | None]) -> list[tuple[int, int]]:
    """Ranges of statements that load no place again later: a vector would wait for that in a register.

    A statement that has no places known (None) stands alone.
    """
    found, first, last = [], 0, dict[Place, int]()
    for at, own in enumerate(places):
        again = own is None or any(last.get(place, at) < at - 1 for place in own)
        if again and at > first:
            found.append((first, at))
            first = at
        if again:
            last.clear()
        if own is None:
            found.append((at, at + 1))
            first = at + 1
        last.update(dict.fromkeys(own or (), at))
    return [*found, (first, len(places))] if first < len(places) else found


def _places(m: Emitter, statement: S.Stmt, written: frozenset[S.Buffer]) -> set[Place] | None:
    """What a statement loads to every lane from memory that is not `written`; None for more than a plain store."""
    if isinstance(statement, S.Evaluate) and isinstance(statement.value, E.Call) and statement.value.name == "prefetch":
        return set()
    if not isinstance(statement, S.BufferStore):
        return None
    found: set[Place] = set()
    for part in post_order(statement.value):
        if isinstance(part, E.Select | E.Let) or (isinstance(part, E.Call) and part.name == "if_then_else"):
            return None
        at = _broadcast_index(m, part) if isinstance(part, E.BufferLoad) and part.buffer not in written else None
        if isinstance(part, E.BufferLoad) and at is not None:
            total = linear(m, at)
            found.add((part.buffer, _terms(total), total.constant))
    return found


def _neighbours(places: list[set[Place] | None]) -> Neighbours | None:
    """The vectors of so many statements; None where no places are neighbours."""
    constants: dict[tuple[S.Buffer, str], set[int]] = {}
    for buffer, terms, at in (place for own in places for place in own or ()):
        constants.setdefault((buffer, terms), set()).add(at)
    found = {(*key, at): run for key, all_ in constants.items() for at, run in _runs(all_).items()}
    return Neighbours(found) if found else None


def _broadcast_index(m: Emitter, load: E.BufferLoad) -> E.Expr | None:
    """The index of one element of memory that a load gives, perhaps in all lanes."""
    if load.buffer in m.files or load.buffer.dtype != "float32":
        return None
    index = flat_index(load.buffer, load.indices)
    index = index.value if isinstance(index, E.Broadcast) else index
    return index if index.dtype.lanes == 1 else None


def _terms(total: Linear) -> str:
    return " ".join(f"{atom}*{weight}" for atom, weight in sorted(total.terms.items()))


def _runs(constants: set[int]) -> dict[int, tuple[int, int]]:
    """For places that have neighbours: where their vector begins, and how many lanes it has."""
    found: dict[int, tuple[int, int]] = {}
    for at in sorted(constants):
        if at in found:
            continue
        width = next((n for n in (LANES, LANES // 2) if constants.issuperset(range(at, at + n))), 1)
        found |= {at + k: (at, width) for k in range(width) if width > 1}
    return found


def lane_of(m: Emitter, e: E.BufferLoad, dtype: DType) -> str | None:
    """`broadcast_load` of a scalar load."""
    at = _broadcast_index(m, e) if m.neighbours is not None and m.mask is None else None
    return None if at is None else broadcast_load(m, e.buffer, at, dtype)


def broadcast_load(m: Emitter, buffer: S.Buffer, index: E.Expr, dtype: DType) -> str | None:
    """One element in every lane of `dtype`, from a vector of its neighbours; None where it has none."""
    if m.neighbours is None or dtype.lanes != LANES:
        return None
    total = linear(m, index)
    place: Place = (buffer, _terms(total), total.constant)
    run = m.neighbours.places.get(place)
    if run is None:
        return None
    first, width = run
    lane, total.constant = total.constant - first, first
    kind, known, key = vector(memory_element(buffer.dtype), width), m.neighbours.loaded, (*place[:2], first)
    whole = known.get(key)
    if whole is None:
        pointer = address(m, buffer, total)
        whole = known[key] = m.here(f"load {kind}, ptr {pointer}, align {buffer.dtype.bytes}")
    lanes = ", ".join([f"i32 {lane}"] * LANES)
    return m.pure(f"shufflevector {kind} {whole}, {kind} poison, <{LANES} x i32> <{lanes}>", whole)
