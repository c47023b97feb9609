"""Two rows times two columns of eight bytes in one instruction (Arm's smmla, ummla, usmmla), in LLVM IR.

In: statements in a row that add to sums in registers the products of a row's word of eight bytes, in every lane, and of
words of columns, one a lane. Out: what two rows add for the same columns as one instruction for two columns each, 32
products. Invariant: the registers of two such rows (`row_pairs`) hold their sums in the order of the instruction, two
columns of both rows after another, and are put in order wherever else they are read or written; statements that find
no second row, or on other processors, are two dot products of four bytes (bytes.py). Sums of int32 wrap, so their order
is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from armillary.base.dtype import DType
from armillary.base.node import children, structural_equal
from armillary.codegen.base import flat_index
from armillary.codegen.llvm.lane_loads import word_in_lane
from armillary.codegen.llvm.state import Emitter, RegisterFile
from armillary.codegen.llvm.types import register_type
from armillary.tir import expr as E
from armillary.tir import stmt as S

QUAD, WORDS = DType("int32x4"), DType("int64x2")  # of one instruction: its sums, and an operand
_NAMES = {("int", "int"): "smmla", ("uint", "uint"): "ummla", ("uint", "int"): "usmmla"}


@dataclass(slots=True)
class Term:
    """What one statement adds to `lanes` sums from `place` on: the products of a row's word and the columns' words."""

    buffer: S.Buffer
    place: int
    lanes: int
    row: E.Call
    columns: E.Call


Rows = tuple[Term, ...]


def term_of(statement: S.Stmt, name: str, word: str) -> Term | None:
    """A statement as a term, of dot products by that name and such words; None where it is something else."""
    if not isinstance(statement, S.BufferStore) or not isinstance(statement.value, E.Add):
        return None
    index, sums, dot = flat_index(statement.buffer, statement.indices), statement.value.a, statement.value.b
    if not isinstance(index, E.Ramp) or not isinstance(index.base, E.IntImm) or index.lanes % QUAD.lanes:
        return None
    if not isinstance(dot, E.Call) or dot.name != name or not isinstance(sums, E.BufferLoad):
        return None
    if sums.buffer is not statement.buffer or not structural_equal(flat_index(sums.buffer, sums.indices), index):
        return None
    row, columns = dot.args
    row = row.value if isinstance(row, E.Broadcast) else row
    if not _is_word(row, word, 1) or not _is_word(columns, word, index.lanes):
        return None
    assert isinstance(row, E.Call) and isinstance(columns, E.Call), "_is_word has told"
    return Term(statement.buffer, index.base.value, index.lanes, row, columns)


def _is_word(e: E.Expr, word: str, lanes: int) -> bool:
    return isinstance(e, E.Call) and e.name == word and e.dtype.lanes == lanes


def _term(statement: S.Stmt) -> Term | None:
    term = term_of(statement, "dot_bytes", "eight_bytes")
    return term if term is not None and (term.row.dtype.code, term.columns.dtype.code) in _NAMES else None


def row_pairs(m: Emitter, body: S.Stmt, buffer: S.Buffer, lanes: int, count: int) -> dict[int, int]:
    """Registers of a file of `count` of `lanes` lanes that hold the sums of two rows together, each with the other one.

    A last row has one beyond the file, whose sums nobody reads.
    """
    if not m.cpu.has_byte_matrices or buffer.dtype != "int32" or lanes % QUAD.lanes:
        return {}
    groups = [group for row in sequences(body) for group in _groups(row) if group[0][1].buffer is buffer]
    result: dict[int, int] = {}
    for group in sorted(groups, key=len, reverse=True):
        slots = [term.place // lanes for _, term in group if term.lanes == lanes]
        free = [slot for slot in dict.fromkeys(slots) if slot not in result]
        if len(free) % 2:
            free.append(count + len(result))
        for first, second in zip(free[::2], free[1::2], strict=True):
            result |= {first: second, second: first}
    return result


def sequences(root: S.Stmt) -> Iterator[tuple[S.Stmt, ...]]:
    """Statements in a row, of every such row."""
    stack: list[object] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, S.SeqStmt):
            yield item.statements
        if isinstance(item, S.Stmt):
            stack += children(item)


def _groups(statements: Sequence[S.Stmt]) -> list[list[tuple[int, Term]]]:
    """Terms of the same columns, with their numbers, with no statement but terms and prefetches in between."""
    result: list[list[tuple[int, Term]]] = []
    fresh = 0
    for at, statement in enumerate(statements):
        term = _term(statement)
        if term is None:
            fresh = fresh if isinstance(statement, S.Evaluate) else len(result)
            continue
        for group in result[fresh:]:
            other = group[0][1]
            if other.buffer is term.buffer and structural_equal(other.columns, term.columns):
                group.append((at, term))
                break
        else:
            result.append([(at, term)])
    return result


def paired(m: Emitter, statements: Sequence[S.Stmt]) -> dict[int, Rows]:
    """Statements by number: the rows of those that compute a pair, and () for those whose terms they take over.

    A row whose other one has no term, because it lies on padding, meets zeros.
    """
    if not any(file.pairs for file in m.files.values()):
        return {}
    result: dict[int, Rows] = {}
    for group in _groups(statements):
        file = m.files[group[0][1].buffer]
        by_slot = {term.place // file.lanes: (at, term) for at, term in group if term.lanes == file.lanes}
        for slot, (at, term) in by_slot.items():
            other = by_slot.get(file.pairs.get(slot, -1))
            if other is not None:
                result[at] = (term, other[1]) if at > other[0] else ()
            elif slot in file.pairs:
                result[at] = (term,)
    return result


def add_pair(m: Emitter, terms: Rows) -> None:
    """Add the terms of two rows to their registers."""
    one = terms[0]
    file, columns = m.files[one.buffer], m.value(one.columns)
    slots = sorted((one.place // file.lanes, file.pairs[one.place // file.lanes]))
    words = {term.place // file.lanes: term.row for term in terms}
    name = _NAMES[one.row.dtype.code, one.columns.dtype.code]
    rows = _as_bytes(m, _both_rows(m, [words.get(slot) for slot in slots]))
    of_columns = DType("int64").with_lanes(file.lanes)
    for side, slot in enumerate(slots):
        parts, sums = [], file.values[slot]
        for quad in range(file.lanes // QUAD.lanes):
            at = QUAD.lanes * quad
            old = _lanes(m, sums, file.dtype, range(at, at + QUAD.lanes))
            pair = (side * file.lanes + at) // 2
            two = _as_bytes(m, _lanes(m, columns, of_columns, range(pair, pair + WORDS.lanes)))
            kind = register_type(QUAD)
            operands = (kind, old), ("<16 x i8>", rows), ("<16 x i8>", two)
            parts.append(m.intrinsic(kind, f"llvm.aarch64.neon.{name}.v4i32.v16i8", *operands))
        file.values[slot] = joined(m, parts)


def _both_rows(m: Emitter, words: list[E.Call | None]) -> str:
    """The words of two rows in one register."""
    vectors, lanes = [], []
    for k, word in enumerate(words):
        vector, lane = ("zeroinitializer", 0) if word is None else word_in_lane(m, word) or _alone(m, word)
        vectors.append(vector)
        lanes.append(f"i32 {k * WORDS.lanes + lane}")
    kind = register_type(WORDS)
    text = f"shufflevector {kind} {vectors[0]}, {kind} {vectors[1]}, <2 x i32> <{', '.join(lanes)}>"
    return m.pure(text, *vectors)


def _alone(m: Emitter, word: E.Call) -> tuple[str, int]:
    value, kind = m.value(word), register_type(WORDS)
    return m.pure(f"insertelement {kind} poison, i64 {value}, i64 0", value), 0


def _as_bytes(m: Emitter, value: str) -> str:
    return m.pure(f"bitcast {register_type(WORDS)} {value} to <16 x i8>", value)


def _lanes(m: Emitter, value: str, dtype: DType, lanes: range) -> str:
    if len(lanes) == dtype.lanes:
        return value
    kind, mask = register_type(dtype), ", ".join(f"i32 {lane}" for lane in lanes)
    return m.pure(f"shufflevector {kind} {value}, {kind} poison, <{len(lanes)} x i32> <{mask}>", value)


def joined(m: Emitter, parts: list[str]) -> str:
    """Vectors of four sums as one."""
    lanes = QUAD.lanes
    while len(parts) > 1:
        kind, mask = register_type(DType("int32").with_lanes(lanes)), ", ".join(f"i32 {k}" for k in range(2 * lanes))
        parts = [
            m.pure(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{mask}>", a, b)
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        lanes *= 2
    return parts[0]


def read_row(m: Emitter, file: RegisterFile, slot: int) -> str:
    """The sums of one row of a pair, in order."""
    return _in_order(m, file, slot)[slot]


def write_row(m: Emitter, file: RegisterFile, slot: int, value: str) -> None:
    """New sums for one row of a pair."""
    other = file.pairs[slot]
    retained = "zeroinitializer" if file.values[other] == "poison" else _in_order(m, file, slot)[other]
    rows = {slot: value, other: retained}
    (low, a), (high, b) = sorted(rows.items())
    width, kind = file.lanes, register_type(file.dtype)
    order = [place for k in range(0, width, 2) for place in (k, k + 1, width + k, width + k + 1)]
    for k, to in enumerate((low, high)):
        mask = ", ".join(f"i32 {lane}" for lane in order[k * width : (k + 1) * width])
        file.values[to] = m.pure(f"shufflevector {kind} {a}, {kind} {b}, <{width} x i32> <{mask}>", a, b)


def _in_order(m: Emitter, file: RegisterFile, slot: int) -> dict[int, str]:
    """The sums of both rows of a pair, by their registers."""
    low, high = sorted((slot, file.pairs[slot]))
    a, b, kind = file.values[low], file.values[high], register_type(file.dtype)
    result = {}
    for k, to in enumerate((low, high)):
        mask = ", ".join(f"i32 {4 * (lane // 2) + 2 * k + lane % 2}" for lane in range(file.lanes))
        result[to] = m.pure(f"shufflevector {kind} {a}, {kind} {b}, <{file.lanes} x i32> <{mask}>", a, b)
    return result
