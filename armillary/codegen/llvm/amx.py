"""Matrix tiles of 16 rows of 64 bytes (AMX) in LLVM IR.

In: the calls `tile_zero`, `tile_load`, `tile_dot`, `tile_dot_bf16` and `tile_store` (tir/intrinsics.py). Out: IR,
through rules that `llvm_calls.CALLS` lists. Invariant: a phase that uses tiles sets them up when it begins and gives
them back when it ends (`framed`); the tiles are named, so LLVM assigns none, and each has one number of rows in a
phase. The process must have asked the system for them: packages whose code uses tiles need `amx-tile`, which
`runtime/native/arm_cpu.c` asks for.
"""

from __future__ import annotations

from armillary.codegen.base import flat_index, refuse
from armillary.codegen.llvm.index import address, linear
from armillary.codegen.llvm.state import Emitter
from armillary.target.cpu import BYTE_TILES, HALF_TILES, TILES
from armillary.tir import expr as E

_FEATURES = {"tile_dot": BYTE_TILES, "tile_dot_bf16": HALF_TILES}
_SETUP = "@armillary_tiles"
_TILES, _ROWS, _BYTES = 8, 16, 64


def _numbers(m: Emitter, e: E.Call, *args: E.Expr) -> list[int]:
    numbers = [m.static_int(a) for a in args]
    feature = _FEATURES.get(e.name, TILES)
    if m.cpu.arch != "x86_64" or not m.cpu.has(feature) or any(n is None for n in numbers):
        raise refuse("llvm", f"{e.name} on {m.cpu.name}", f"tiles have constant numbers, on processors with {feature}")
    return [n for n in numbers if n is not None]


def _run(m: Emitter, name: str, *arguments: tuple[str, str]) -> str:
    m.effects += 1
    immediate = {"i8": "i8 immarg"}
    m.declare("void", f"llvm.x86.{name}", ", ".join(immediate.get(kind, kind) for kind, _ in arguments))
    m.do(f"call void @llvm.x86.{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")
    return "0"


def _place(m: Emitter, e: E.Call, element: E.Expr) -> str:
    if not isinstance(element, E.BufferLoad) or element.dtype.lanes > 1 or element.buffer in m.files:
        raise refuse("llvm", f"{e.name} of what does not lie in memory")
    return address(m, element.buffer, linear(m, flat_index(element.buffer, element.indices)))


def _has_rows(m: Emitter, e: E.Call, tile: int, rows: int) -> None:
    if m.tiles.setdefault(tile, rows) != rows or not 0 < rows <= _ROWS:
        raise refuse("llvm", f"{e.name} of {rows} rows", f"tile {tile} has {m.tiles[tile]} in this phase, at most 16")


def tile_zero(m: Emitter, e: E.Call) -> str:
    """tile_zero(tile, rows)."""
    tile, rows = _numbers(m, e, *e.args)
    _has_rows(m, e, tile, rows)
    return _run(m, "tilezero", ("i8", str(tile)))


def tile_load(m: Emitter, e: E.Call) -> str:
    """tile_load(tile, first element, bytes from row to row, rows)."""
    return _moved(m, e, "tileloadd64")


def tile_store(m: Emitter, e: E.Call) -> str:
    """tile_store(tile, first element, bytes from row to row, rows)."""
    return _moved(m, e, "tilestored64")


def _moved(m: Emitter, e: E.Call, name: str) -> str:
    tile, stride, rows = _numbers(m, e, e.args[0], *e.args[2:])
    _has_rows(m, e, tile, rows)
    return _run(m, name, ("i8", str(tile)), ("ptr", _place(m, e, e.args[1])), ("i64", str(stride)))


def tile_dot(m: Emitter, e: E.Call) -> str:
    """tile_dot(sums, left, right, is left signed, is right signed)."""
    *tiles, left, right = _numbers(m, e, *e.args)
    name = f"tdpb{'s' if left else 'u'}{'s' if right else 'u'}d"
    return _run(m, name, *(("i8", str(tile)) for tile in tiles))


def tile_dot_bf16(m: Emitter, e: E.Call) -> str:
    """tile_dot_bf16(sums, left, right)."""
    m.flushes_bfloat16 = True
    return _run(m, "tdpbf16ps", *(("i8", str(tile)) for tile in _numbers(m, e, *e.args)))


def framed(m: Emitter, lines: list[str]) -> list[str]:
    """The lines of a phase, which ends with its last one, with tiles set up in front and given back at the end."""
    if not m.tiles:
        return lines
    m.declare("void", "llvm.x86.ldtilecfg", "ptr")
    m.declare("void", "llvm.x86.tilerelease", "")
    rows = [m.tiles.get(tile, 0) for tile in range(_TILES)]
    shape = [1, *[0] * 15, *(byte for n in rows for byte in (_BYTES if n else 0, 0)), *[0] * 16, *rows, *[0] * 8]
    name, text = f"{_SETUP}.{'.'.join(map(str, rows))}", ", ".join(f"i8 {byte}" for byte in shape)
    m.math[name] = f"{name} = internal constant [{len(shape)} x i8] [{text}], align 64\n"
    head, tail = f"  call void @llvm.x86.ldtilecfg(ptr {name})", "  call void @llvm.x86.tilerelease()"
    return [head, *lines[:-1], tail, lines[-1]]
