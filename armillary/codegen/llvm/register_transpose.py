"""Tiles in registers that are written by columns and read by rows: transpositions without memory.

In: the accesses to a local buffer whose every store is one column, a vector with the row length as stride. Out:
`column_shape`, the length of a row and of a column; `transposed`, the rows of such a tile. Invariant: every index is a
constant; rows and columns are padded to powers of two with copies that nobody reads (of lanes that were undefined LLVM
makes extensions that it cannot select). A transposition is a few riffles:
interleaving the halves of a matrix rotates the bits of each element's place, so log2(columns) of them swap row and
column. 16 x 16 takes 64 shuffles, a quarter of one per element; loads of single lanes take two. AVX2 interleaves only
inside 128 bits: `_eights`. Used by llvm_memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.dtype import DType
from armillary.codegen.llvm.state import Emitter
from armillary.codegen.llvm.types import register_type
from armillary.tir import expr as E

Access = tuple[bool, E.Expr]  # is a store; the flat index
MAX_SIDE = 16  # rows and columns of a tile
_LOW, _HIGH = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)  # two vectors of 8, interleaved in each half
_LOWER, _UPPER = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)  # halves of two vectors, put together


def column_shape(accesses: Sequence[Access], size: int) -> tuple[int, int] | None:
    """(elements of a row, elements of a column) if all stores are columns and all loads lie in rows."""
    stores = [index for is_store, index in accesses if is_store]
    shapes = {(_stride(index), index.dtype.lanes) for index in stores}
    if len(shapes) != 1:
        return None
    row, column = shapes.pop()
    if not (1 < row <= MAX_SIDE and 1 < column <= MAX_SIDE and row * column <= size):
        return None
    for is_store, index in accesses:
        start = _start(index)
        if start is None or (is_store and start >= row):
            return None
        inside = start // row < column and start % row + index.dtype.lanes <= row and _stride(index) == 1
        if not is_store and not inside:
            return None
    return row, column


def _start(index: E.Expr) -> int | None:
    return index.base.value if isinstance(index, E.Ramp) and isinstance(index.base, E.IntImm) else None


def _stride(index: E.Expr) -> int:
    """The distance of the lanes of an index, 0 where it is not known."""
    known = isinstance(index, E.Ramp) and isinstance(index.stride, E.IntImm)
    return index.stride.value if known else 0  # type: ignore[attr-defined]


def transposed(m: Emitter, columns: Sequence[str], dtype: DType) -> tuple[list[str], int, int]:
    """The rows of a tile: vectors that hold row after row, their lanes, and the lanes from row to row."""
    width, pitch = _power(dtype.lanes), _power(len(columns))
    filler = next((c for c in columns if c != "poison"), "poison")
    vectors = [_widened(m, filler if c == "poison" else c, dtype, width) for c in columns]
    vectors += vectors[:1] * (pitch - len(columns))
    if m.cpu.vector_bits == 256 and dtype.bits == 32 and width % 8 == 0 and pitch % 8 == 0:
        return _by_eights(m, vectors, dtype.with_lanes(width)), pitch, pitch
    for _ in range(pitch.bit_length() - 1):
        half = len(vectors) // 2
        pairs = list(zip(vectors[:half], vectors[half:], strict=True))
        kind = dtype.with_lanes(width)
        if width < pitch:
            vectors, width = [_pick(m, kind, p, _riffle(width, 0, 2 * width)) for p in pairs], 2 * width
            continue
        low, high = _riffle(width, 0, width), _riffle(width, width, 2 * width)
        vectors = [_pick(m, kind, p, lanes) for p in pairs for lanes in (low, high)]
    return vectors, width, pitch


def _by_eights(m: Emitter, vectors: Sequence[str], dtype: DType) -> list[str]:
    """The rows of a tile of some squares of 8 x 8."""
    eight, rows = dtype.with_lanes(8), []
    for first in range(0, dtype.lanes, 8):
        lanes = range(first, first + 8)
        pieces = vectors if dtype.lanes == 8 else [_pick(m, dtype, (v, v), lanes) for v in vectors]
        squares = [_square(m, pieces[k : k + 8], eight) for k in range(0, len(pieces), 8)]
        rows += squares[0] if len(squares) == 1 else [_pick(m, eight, pair, range(16)) for pair in zip(*squares)]
    return rows


def _square(m: Emitter, columns: Sequence[str], dtype: DType) -> list[str]:
    """8 x 8 by 24 instructions: twice interleaved inside the halves of vectors, then the halves exchanged.

    Where whole vectors are interleaved, each step needs the exchange, which makes 48.
    """
    vectors = [columns[k % 2 * 4 + k // 4 * 2 + k // 2 % 2] for k in range(8)]
    for masks in ((_LOW, _HIGH), (_LOW, _HIGH)):
        vectors = [_pick(m, dtype, p, mask) for p in zip(vectors[:4], vectors[4:], strict=True) for mask in masks]
    pairs = list(zip(vectors[:4], vectors[4:], strict=True))
    return [_pick(m, dtype, pair, mask) for mask in (_LOWER, _UPPER) for pair in pairs]


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _widened(m: Emitter, vector: str, dtype: DType, width: int) -> str:
    if width == dtype.lanes:
        return vector
    return _pick(m, dtype, (vector, vector), [min(k, dtype.lanes - 1) for k in range(width)])


def _riffle(width: int, begin: int, end: int) -> list[int]:
    """Lanes [begin, end) of two vectors laid one by one side by side."""
    return [k // 2 + width * (k % 2) for k in range(begin, end)]


def _pick(m: Emitter, dtype: DType, pair: tuple[str, str], lanes: Sequence[int]) -> str:
    """Lanes of the concatenation of two vectors of `dtype`."""
    kind = register_type(dtype)
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return m.pure(f"shufflevector {kind} {pair[0]}, {kind} {pair[1]}, <{len(lanes)} x i32> <{mask}>", *pair)


def row_part(m: Emitter, columns: Sequence[str], dtype: DType, start: int, lanes: int) -> str:
    """Elements [start, start + lanes) of a tile with rows of `len(columns)` elements."""
    vectors, width, pitch = transposed(m, columns, dtype)
    row, column = divmod(start, len(columns))
    place = row * pitch + column
    vector, first = vectors[place // width], place % width
    if lanes == width:
        return vector
    return _pick(m, dtype.with_lanes(width), (vector, vector), range(first, first + lanes))
