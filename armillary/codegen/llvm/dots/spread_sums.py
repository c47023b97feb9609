"""Dot products of symmetric bytes where no instruction computes one (Arm's NEON before dotprod), in LLVM IR.

In: statements in a row that add to sums in registers the products of a row's word of four bytes, in every lane, and of
words of columns (`dot_symmetric_bytes`). Out: `smull` for a word, `smlal` for the next one of the same sums, whose
products of 16 bits add up without overflow, as they are not both (-128)(-128), and `sadalp`, which adds neighbours to
32 bits: three instructions for 16 products. Invariant: such sums take two registers (`spread_slots`), in
which each has two lanes side by side, and are joined wherever else they are read or written. Sums of int32 wrap, so
their order is free. With instructions for dot products: bytes.py, byte_matrices.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from armillary.codegen.llvm.dots.byte_matrices import QUAD, Rows, Term, joined, sequences, term_of
from armillary.codegen.llvm.state import Emitter, RegisterFile
from armillary.codegen.llvm.types import register_type
from armillary.tir import expr as E
from armillary.tir import stmt as S

DOT, WORD = "dot_symmetric_bytes", "four_bytes"
_HALF, _PRODUCTS, _SUMS = "<8 x i8>", "<8 x i16>", register_type(QUAD)  # of an instruction
_SIGNED = ("int", "int")


def _term(statement: S.Stmt) -> Term | None:
    term = term_of(statement, DOT, WORD)
    return term if term is not None and (term.row.dtype.code, term.columns.dtype.code) == _SIGNED else None


def spread_slots(m: Emitter, body: S.Stmt, buffer: S.Buffer, lanes: int, count: int) -> dict[int, int]:
    """Registers of a file of `count` of `lanes` lanes whose sums take two, each with the other one, beyond the file."""
    if not m.cpu.widens_bytes or buffer.dtype != "int32" or lanes % QUAD.lanes:
        return {}
    terms = (_term(statement) for row in sequences(body) for statement in row)
    slots = sorted({t.place // lanes for t in terms if t is not None and t.buffer is buffer and t.lanes == lanes})
    return {slot: count + k for k, slot in enumerate(slots)}


def joined_terms(m: Emitter, statements: Sequence[S.Stmt]) -> dict[int, Rows]:
    """Statements by number: the terms of those that add one or two words, and () for those whose term they take over.

    Between two words of the same sums stand only terms and prefetches.
    """
    if not any(file.spread for file in m.files.values()):
        return {}
    result: dict[int, Rows] = {}
    waiting: dict[tuple[S.Buffer, int], tuple[int, Term]] = {}
    for at, statement in enumerate(statements):
        term = _term(statement)
        file = None if term is None else m.files.get(term.buffer)
        if term is None or file is None or term.lanes != file.lanes or term.place // file.lanes not in file.spread:
            if not isinstance(statement, S.Evaluate):
                waiting.clear()
            continue
        before = waiting.pop((term.buffer, term.place), None)
        if before is None:
            waiting[term.buffer, term.place] = at, term
            result[at] = (term,)
        else:
            result[before[0]], result[at] = (), (before[1], term)
    return result


@dataclass(slots=True)
class Order:
    """Statements in a row: the sums that the last of them left, and the row's words as it held them."""

    sums: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)


def add_words(m: Emitter, terms: Rows, order: Order) -> None:
    """Add one or two words' products to the sums of a row, after those of the statement before."""
    file = m.files[terms[0].buffer]
    slot = terms[0].place // file.lanes
    quads = file.lanes // QUAD.lanes
    rows, columns = _held(m, [term.row for term in terms], order), [m.value(term.columns) for term in terms]
    parts = [_quad(m, file, own, k) for own in (slot, file.spread[slot]) for k in range(quads)]
    for at, sums in enumerate(parts):
        products = ""
        for row, words in zip(rows, columns, strict=True):
            pair, other = _half(m, words, file.lanes, at), _half(m, row, QUAD.lanes, at % 2)
            product = m.intrinsic(_PRODUCTS, "llvm.aarch64.neon.smull.v8i16", (_HALF, pair), (_HALF, other))
            products = m.pure(f"add {_PRODUCTS} {products}, {product}", products, product) if products else product
        wide = m.intrinsic(_SUMS, "llvm.aarch64.neon.saddlp.v4i32.v8i16", (_PRODUCTS, products))
        parts[at] = m.pure(f"add {_SUMS} {sums}, {wide}", sums, wide)
    order.sums = parts
    file.values[slot] = joined(m, parts[:quads])
    file.values[file.spread[slot]] = joined(m, parts[quads:])


def _held(m: Emitter, words: list[E.Call], order: Order) -> list[str]:
    """A row's words, each in every lane, from where the sums of the statement before are complete.

    Assembly of no instructions says so. LLVM would multiply all rows before it adds their products up, in registers
    that it does not have; and it would make halves of a word in all lanes where instructions take the upper half.
    """
    values = [m.value(E.Broadcast(word, QUAD.lanes)) for word in words]
    names = list(dict.fromkeys(values))
    operands = ", ".join(f"{_SUMS} {value}" for value in (*(order.words.get(n, n) for n in names), *order.sums))
    outputs, inputs = ["=w"] * len(names), [str(k) for k in range(len(names))] + ["w"] * len(order.sums)
    kind = _SUMS if len(names) == 1 else f"{{ {', '.join([_SUMS] * len(names))} }}"
    held = m.here(f'call {kind} asm "", "{",".join(outputs + inputs)}"({operands})')
    for k, name in enumerate(names):
        order.words[name] = held if len(names) == 1 else m.here(f"extractvalue {kind} {held}, {k}")
    return [order.words[name] for name in values]


def _half(m: Emitter, words: str, lanes: int, pair: int) -> str:
    """Two neighbouring words as bytes."""
    kind = register_type(QUAD.with_lanes(lanes))
    two = m.pure(f"shufflevector {kind} {words}, {kind} poison, <2 x i32> <i32 {2 * pair}, i32 {2 * pair + 1}>", words)
    return m.pure(f"bitcast <2 x i32> {two} to {_HALF}", two)


def _quad(m: Emitter, file: RegisterFile, slot: int, number: int) -> str:
    kind, value = register_type(file.dtype), file.values[slot]
    if file.lanes == QUAD.lanes:
        return value
    lanes = ", ".join(f"i32 {QUAD.lanes * number + k}" for k in range(QUAD.lanes))
    return m.pure(f"shufflevector {kind} {value}, {kind} poison, <4 x i32> <{lanes}>", value)


def read_spread(m: Emitter, file: RegisterFile, slot: int) -> str:
    """The sums of a row, each joined."""
    quads = range(file.lanes // QUAD.lanes)
    parts = [_quad(m, file, own, k) for own in (slot, file.spread[slot]) for k in quads]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    name = "llvm.aarch64.neon.addp.v4i32"
    return joined(m, [m.intrinsic(_SUMS, name, (_SUMS, a), (_SUMS, b)) for a, b in pairs])


def write_spread(m: Emitter, file: RegisterFile, slot: int, value: str) -> None:
    """New sums for a row: in the first of the lanes of each, with 0 in the second."""
    kind, width = register_type(file.dtype), file.lanes
    for half, own in enumerate((slot, file.spread[slot])):
        lanes = (lane for k in range(width // 2) for lane in (half * width // 2 + k, width))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {kind} {value}, {kind} zeroinitializer, <{width} x i32> <{mask}>"
        file.values[own] = m.pure(text, value)
