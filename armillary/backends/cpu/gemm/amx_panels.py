"""Panels of rows that matrix tiles (AMX) compute for a group of columns, a part of the sum for all rows after another.

In: sizes of a product, a `CpuModel` with tiles; buffers of rows, of weights in words and of sums. Out: panels with
their cycles, the best first; the loops of one. Invariant: a panel is whole blocks of tiles. A part of the weights of a
group stays in the first cache for all rows of a panel: else both sides come from L2, which gives less than the tiles
take (64 bytes a cycle). Sums wait in scratch between parts; while a group is computed, the weights of the next one are
asked for. User: gemm/amx.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.backends.cpu.conv2d.amx.cost import DEPTH
from armillary.backends.cpu.gemm.amx_panel_cost import COLUMNS, ROWS, Panel, part_of
from armillary.backends.cpu.loops import effect_of, element_of
from armillary.ops._dot_operands import BYTES
from armillary.target.cpu import CpuModel
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import Expr, ExprLike, Var

MANY_ROWS = 256  # for which all weights may come from L3 once
LOCALITY = 2  # of what is asked for: all caches but the first


@dataclass(frozen=True, slots=True)
class Operands:
    """Rows of terms `a`, of `steps` tiles, weights `b` in words by columns, sums `c`.

    `width`: terms of a word. `signs`: whether bytes have one. `is_prefetched`: whether what lies behind `b` is wanted
    next.
    """

    steps: int
    width: int
    signs: tuple[int, ...]
    is_prefetched: bool
    a: S.Buffer
    b: S.Buffer
    c: S.Buffer


def emit_panel(panel: Panel, x: Operands) -> S.Stmt:
    """The sums of a panel, from zero to their end, stored as rows of its columns."""
    part = part_of(panel, x.steps)
    whole, rest = divmod(x.steps, part)
    body = [_part(panel, x, T.int32(0), part, is_first=True)]
    if whole > 1:
        which = Var("part")
        later = _part(panel, x, which * part, part, is_first=False)
        body.append(S.For(which, T.int32(1), T.int32(whole - 1), S.LoopKind.SERIAL, later))
    if rest:
        body.append(_part(panel, x, T.int32(whole * part), rest, is_first=False))
    return S.seq(*body)


def _part(panel: Panel, x: Operands, begin: Expr, length: int, is_first: bool) -> S.Stmt:
    """Some steps of the sum for all blocks of rows; the first ones begin with zeros, others with what is in scratch."""
    block = Var("block")
    at = block if panel.blocks > 1 else T.int32(0)
    high, columns = panel.height, panel.columns
    places = [(i, j, i * columns + j) for i in range(panel.rows) for j in range(columns)]

    def move(name: str) -> list[S.Stmt]:
        sums = ((element_of(x.c, at * panel.lines + i * high, j, 0), t) for i, j, t in places)
        return [effect_of(name, t, place, columns * COLUMNS * 4, high) for place, t in sums]

    step = Var("step")
    body = [*_step(panel, x, at, begin + step, places), *_requests(panel, x, at, begin + step)]
    loop = S.For(step, T.int32(0), T.int32(length), S.LoopKind.SERIAL, S.seq(*body))
    start = [effect_of("tile_zero", t, high) for *_, t in places] if is_first else move("tile_load")
    whole = S.seq(*start, loop, *move("tile_store"))
    if panel.blocks == 1:
        return whole
    return S.For(block, T.int32(0), T.int32(panel.blocks), S.LoopKind.SERIAL, whole)


def _step(panel: Panel, x: Operands, block: Expr, step: Expr, places: Sequence[tuple[int, int, int]]) -> list[S.Stmt]:
    """One tile of terms: each product behind the loads it needs."""
    deep, high = DEPTH * x.width // BYTES, panel.height
    first, body = panel.rows * panel.columns, []
    second, stride = first + panel.rows, x.steps * DEPTH
    name = "tile_dot" if x.width == BYTES else "tile_dot_bf16"
    for i, j, tile in places:
        if j == 0:
            row = element_of(x.a, block * panel.lines + i * high, step * deep)
            body.append(effect_of("tile_load", first + i, row, stride, high))
        if i == 0:
            body.append(effect_of("tile_load", second + j, _weights(x, j, step * ROWS), DEPTH, ROWS))
        body.append(effect_of(name, tile, first + i, second + j, *x.signs))
    return body


def _requests(panel: Panel, x: Operands, block: Expr, step: Expr) -> list[S.Stmt]:
    """The lines of a step of the next group of columns, of which each block of rows asks for its share."""
    lines = panel.columns * ROWS
    if not x.is_prefetched or lines % panel.blocks or ROWS % (share := lines // panel.blocks):
        return []
    run, result = ROWS // share, []
    for k in range(share):
        at = _weights(x, panel.columns + T.floordiv(block, run), step * ROWS + T.floormod(block, run) * share + k)
        result.append(effect_of("prefetch", at, 0, LOCALITY, 1))
    return result


def _weights(x: Operands, column: ExprLike, word: ExprLike) -> Expr:
    return element_of(x.b, column, word, *[0] * (len(x.b.shape) - 2))


def rows_together(rows: int, steps: int, panel: Panel, cpu: CpuModel) -> int:
    """Panels of rows that go through all columns before the next ones, so that they are in L2 for each group."""
    panels, size = -(-rows // panel.whole), panel.whole * steps * DEPTH
    if panels * size <= cpu.l2 // 2:
        return panels
    most = max(1, min(max(cpu.l2 // 4 // size, -(-MANY_ROWS // panel.whole)), cpu.l2 // 2 // size))
    return max(n for n in range(1, most + 1) if panels % n == 0)
