"""Matrix tiles: the interpreter's meaning, the processor's where there is one, and refusals."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness import compiled, run

from armillary.base.dtype import DType
from armillary.errors import ExecutionError, UnsupportedError
from armillary.target.cpu import BYTE_TILES, HALF_TILES, TILES, cpu_model
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.interpreter import interpret

TARGET = "llvm -mcpu=sapphirerapids"
SIGNS = [(x, y) for x in ("uint8", "int8") for y in ("uint8", "int8")]
STEPS = 3


def ask_for_tiles() -> bool:
    """What the runtime does when it loads a package that needs them: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)."""
    return int(ctypes.CDLL(None).syscall(158, 0x1023, 18)) == 0


def call(name: str, *args: Any) -> S.Stmt:
    return S.Evaluate(B.call(name, *args, dtype="int32"))


def program(x: str, y: str, rows: int) -> S.PrimFunc:
    """sums[rows, 16] = a[rows, 64 STEPS] times the words of b[16 STEPS, 16, 4]; of bfloat16: half as many."""
    is_half = x == "bfloat16"
    deep, sums = (32, "float32") if is_half else (64, "int32")
    a = S.Buffer("a", (B.int32(rows), B.int32(deep * STEPS)), DType(x))
    b = S.Buffer("b", (B.int32(16 * deep * STEPS),), DType(y))
    c, one, step = S.Buffer("c", (B.int32(rows), B.int32(16)), DType(sums)), E.Var("one"), E.Var("step")
    zero = B.int32(0)
    signs = (int(x == "int8"), int(y == "int8"))
    body = S.seq(
        call("tile_load", 1, E.BufferLoad(a, (zero, step * deep)), 64 * STEPS, rows),
        call("tile_load", 2, E.BufferLoad(b, (step * 16 * deep,)), 64, 16),
        call("tile_dot_bf16", 0, 1, 2) if is_half else call("tile_dot", 0, 1, 2, *signs),
    )
    loop = S.For(step, zero, B.int32(STEPS), S.LoopKind.SERIAL, body)
    whole = S.seq(call("tile_zero", 0, rows), loop, call("tile_store", 0, E.BufferLoad(c, (zero, zero)), 64, rows))
    touch = S.BufferStore(c, B.const(0, sums), (zero, zero))  # c is written, which a call does not say
    return S.PrimFunc((a, b, c), S.For(one, zero, B.int32(1), S.LoopKind.PARALLEL, S.seq(touch, whole)))


@pytest.mark.parametrize("rows", [1, 5, 16])
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_products_of_tiles_are_exact(x: str, y: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    arrays = []
    for name, shape in ((x, (rows, 64 * STEPS)), (y, (16 * STEPS, 16, 4))):
        arrays.append(rng.integers(np.iinfo(name).min, np.iinfo(name).max, shape, dtype=name, endpoint=True))
    arrays[0][0], arrays[1][:, 0] = np.iinfo(x).max, np.iinfo(y).min
    columns = arrays[1].transpose(0, 2, 1).reshape(-1, 16).astype(np.int64)
    want = arrays[0].astype(np.int64) @ columns
    function, got = program(x, y, rows), np.zeros((rows, 16), np.int32)
    interpret(function, arrays[0], arrays[1].reshape(-1), got)
    np.testing.assert_array_equal(got, want)
    if cpu_model("llvm").has_tiles and ask_for_tiles():
        again = np.zeros_like(got)
        assert run(function, TARGET, arrays[0], arrays[1], again) == 0
        np.testing.assert_array_equal(again, want)


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_products_of_tiles_of_halves_have_sums_of_float32(rows: int) -> None:
    rng = np.random.default_rng(rows)
    shapes = ((rows, 32 * STEPS), (16 * STEPS, 16, 2))
    arrays = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    left, right = (v.astype(np.float64) for v in arrays)
    columns = right.transpose(0, 2, 1).reshape(-1, 16)
    want, near = left @ columns, np.abs(left) @ np.abs(columns) * 2.0**-22
    function, got = program("bfloat16", "bfloat16", rows), np.zeros((rows, 16), np.float32)
    interpret(function, arrays[0], arrays[1].reshape(-1), got)
    assert (np.abs(got - want) <= near).all()
    if cpu_model("llvm").has_bfloat16_tiles and ask_for_tiles():
        again = np.zeros_like(got)
        assert run(function, TARGET, *arrays, again) == 0
        assert (np.abs(again - want) <= near).all()


@pytest.mark.parametrize(
    ("x", "y", "dot", "feature"),
    [("uint8", "int8", "tdpbusd", BYTE_TILES), ("bfloat16", "bfloat16", "tdpbf16ps", HALF_TILES)],
)
def test_code_with_tiles_needs_them_and_frames_them(x: str, y: str, dot: str, feature: str) -> None:
    module = compiled([program(x, y, 16)], TARGET)
    assert {name for name in module.descriptor.needs if name.startswith("amx")} == {TILES, feature}
    words = [line.split()[0] for line in module.get_source("asm").splitlines() if line.split()]
    assert [w for w in words if w in ("ldtilecfg", "tilerelease", dot)] == ["ldtilecfg", dot, "tilerelease"]


@pytest.mark.parametrize("kind", ["uint8", "bfloat16"])
@pytest.mark.parametrize("target", ["llvm -mcpu=znver4", "c"])
def test_tiles_are_refused_where_there_are_none(kind: str, target: str) -> None:
    with pytest.raises(UnsupportedError, match="tile_"):
        compiled([program(kind, kind, 16)], target)


def test_a_tile_has_one_number_of_rows() -> None:
    a = S.Buffer("a", (B.int32(1024),), DType("uint8"))
    body = S.seq(call("tile_zero", 0, 4), call("tile_load", 0, E.BufferLoad(a, (B.int32(0),)), 64, 8))
    function = S.PrimFunc((a,), S.For(E.Var("i"), B.int32(0), B.int32(1), S.LoopKind.PARALLEL, body))
    with pytest.raises(UnsupportedError, match="tile 0 has 4 in this phase"):
        compiled([function], TARGET)


def test_the_interpreter_refuses_rows_beyond_a_buffer() -> None:
    a = S.Buffer("a", (B.int32(1000),), DType("uint8"))
    body = call("tile_load", 0, E.BufferLoad(a, (B.int32(0),)), 64, 16)
    function = S.PrimFunc((a,), S.For(E.Var("i"), B.int32(0), B.int32(1), S.LoopKind.SERIAL, body))
    with pytest.raises(ExecutionError, match="tile_load out of bounds: a"):
        interpret(function, np.zeros(1000, np.uint8))
