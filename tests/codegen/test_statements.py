"""Loops, branches, register buffers, vector accesses, asserts, scalars and symbolic sizes, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from harness import compiled, run

from armillary.base.dtype import DType
from armillary.codegen.base import phase_symbol
from armillary.errors import UnsupportedError
from armillary.target.cpu import cpu_model
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.phases import Phase, PhasedFunction

TARGETS = ("llvm", "llvm -mcpu=x86-64", "c")
F32, I32 = DType("float32"), DType("int32")
SERIAL, PARALLEL, UNROLLED = S.LoopKind.SERIAL, S.LoopKind.PARALLEL, S.LoopKind.UNROLLED


def buffer(name: str, size: int, dtype: DType = F32, scope: str = "global") -> S.Buffer:
    return S.Buffer(name, (B.int32(size),), dtype, scope)


def loop(var: E.Var, extent: int | E.Expr, body: S.Stmt, kind: S.LoopKind = SERIAL) -> S.For:
    return S.For(var, B.int32(0), B.convert(extent), kind, body)


def ramp(base: E.Expr | int, lanes: int, stride: int = 1) -> E.Expr:
    return E.Ramp(B.convert(base), B.int32(stride), lanes)


def tile(rows: int = 6, depth: int = 64, size: int = 16) -> S.PrimFunc:
    """c[rows][16] = relu(a[rows][depth] @ b[depth][16]) with a register tile."""
    a, b, c = buffer("a", rows * depth), buffer("b", depth * size), buffer("c", rows * size)
    acc = buffer("acc", rows * size, scope="local")
    i, j, k, r = E.Var("i"), E.Var("j"), E.Var("k"), E.Var("r")
    zero = E.Broadcast(E.FloatImm(F32, 0.0), size)
    start = loop(i, rows, S.BufferStore(acc, zero, (ramp(i * size, size),)), UNROLLED)
    product = E.Mul(E.Broadcast(E.BufferLoad(a, (j * depth + k,)), size), E.BufferLoad(b, (ramp(k * size, size),)))
    total = E.Add(E.BufferLoad(acc, (ramp(j * size, size),)), product)
    update = loop(k, depth, loop(j, rows, S.BufferStore(acc, total, (ramp(j * size, size),)), UNROLLED))
    relu = E.Max(E.BufferLoad(acc, (ramp(r * size, size),)), zero)
    finish = loop(r, rows, S.BufferStore(c, relu, (ramp(r * size, size),)), UNROLLED)
    once = E.Var("once")
    return S.PrimFunc((a, b, c), loop(once, 1, S.Allocate(acc, S.seq(start, update, finish)), PARALLEL))


@pytest.mark.parametrize("target", TARGETS)
def test_register_tile_computes_a_matrix_product(target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((6, 64)).astype("f"), rng.standard_normal((64, 16)).astype("f")
    c = np.zeros((6, 16), "f")
    assert run(tile(), target, a, b, c) == 0
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"])
def test_register_tile_never_touches_the_stack(target: str) -> None:
    text = compiled([tile(4)], target).get_source("asm")
    body = text[text.index("f0__p0.body:") :]
    fused = [line for line in body.split("\n") if "vfmadd" in line or "fmla" in line]
    assert len(fused) >= 4
    first, last = body.index(fused[0]), body.index(fused[-1])
    assert "rsp" not in body[first:last] and "[sp" not in body[first:last]


def test_spilled_vectors_are_aligned_on_the_stack() -> None:
    text = compiled([tile(40)], "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512").get_source("asm")
    spills = [line for line in text.splitlines() if "(%rsp)" in line and "%zmm" in line and "vmov" in line]
    assert spills and all("vmovaps" in line for line in spills), "40 sums in 32 registers"


def test_relu_is_one_instruction_on_x86() -> None:
    text = compiled([tile(2)], "llvm -mcpu=skylake-avx512").get_source("asm")
    assert text.count("vmaxps") == 2 and "vcmp" not in text


@pytest.mark.parametrize(("target", "lanes"), [("skylake-avx512", 32), ("skylake-avx512", 64), ("haswell", 16)])
def test_maxima_of_several_vectors_are_an_instruction_and_a_blend_for_each(target: str, lanes: int) -> None:
    a, b, out = (buffer(name, lanes) for name in "abo")
    index = E.Ramp(B.int32(0), B.int32(1), lanes)
    left, right = (E.BufferLoad(x, (index,)) for x in (a, b))
    function = S.PrimFunc((a, b, out), S.BufferStore(out, E.Max(left, right), (index,)))
    text = compiled([function], f"llvm -mtriple=x86_64-linux-gnu -mcpu={target}").get_source("asm")
    vectors = lanes * 32 // cpu_model(f"llvm -mcpu={target}").vector_bits
    assert text.count("vmaxps") == text.count("vcmpunordps") == vectors and "vcmpltps" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_register_values_merge_after_a_branch_and_an_empty_loop(target: str) -> None:
    out, acc = buffer("o", 8, I32), buffer("acc", 1, I32, "local")
    n, i, k = buffer("n", 8, I32), E.Var("i"), E.Var("k")
    zero = B.int32(0)
    here = E.BufferLoad(acc, (zero,))
    count = E.BufferLoad(n, (i,))
    bump = S.IfThenElse(
        E.EQ(E.FloorMod(k, B.int32(3)), zero),
        S.BufferStore(acc, E.Add(here, B.int32(10)), (zero,)),
        S.BufferStore(acc, E.Add(here, B.int32(1)), (zero,)),
    )
    only_then = S.IfThenElse(E.GT(count, B.int32(4)), S.BufferStore(acc, E.Mul(here, B.int32(2)), (zero,)))
    body = S.seq(
        S.BufferStore(acc, B.int32(5), (zero,)), loop(k, count, bump), only_then, S.BufferStore(out, here, (i,))
    )
    sizes, got = np.array([0, 1, 2, 3, 4, 5, 6, -7], np.int32), np.zeros(8, np.int32)
    assert run(S.PrimFunc((n, out), loop(i, 8, S.Allocate(acc, body), PARALLEL)), target, sizes, got) == 0
    want = [5 + sum(10 if k % 3 == 0 else 1 for k in range(max(0, s))) for s in sizes]
    assert got.tolist() == [w * 2 if s > 4 else w for w, s in zip(want, sizes, strict=True)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stride", [-1, 1, 2, 3])
def test_strided_vector_loads_and_stores_touch_exactly_their_elements(stride: int, target: str) -> None:
    lanes, size = 8, 7 * abs(stride) + 1
    base = 7 if stride < 0 else 0
    a, o = buffer("a", size), buffer("o", size)
    i = E.Var("i")
    body = S.BufferStore(o, E.BufferLoad(a, (ramp(base, lanes, stride),)), (ramp(base, lanes, stride),))
    x, got = np.arange(1, size + 1, dtype="f"), np.zeros(size, "f")
    assert run(S.PrimFunc((a, o), loop(i, 1, body, PARALLEL)), target, x, got) == 0
    want = np.zeros(size, "f")
    want[:: abs(stride)] = x[:: abs(stride)]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
def test_gather_takes_indices_from_memory(target: str) -> None:
    a, p, o = buffer("a", 32), buffer("p", 16, I32), buffer("o", 16)
    body = S.BufferStore(o, E.BufferLoad(a, (E.BufferLoad(p, (ramp(0, 16),)),)), (ramp(0, 16),))
    rng = np.random.default_rng(1)
    x, idx, got = rng.standard_normal(32).astype("f"), rng.integers(0, 32, 16).astype(np.int32), np.zeros(16, "f")
    assert run(S.PrimFunc((a, p, o), loop(E.Var("i"), 1, body, PARALLEL)), target, x, idx, got) == 0
    np.testing.assert_array_equal(got, x[idx])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_if_then_else_guards_loads_lane_by_lane(lanes: int, target: str) -> None:
    a, o, i = buffer("a", 8), buffer("o", 32), E.Var("i")
    index: E.Expr = i if lanes == 1 else ramp(i * lanes, lanes)
    at = B.sub(index, B.const(12, index.dtype))
    inside = E.And(E.GE(at, B.const(0, at.dtype)), E.LT(at, B.const(8, at.dtype)))
    shifted = at if lanes == 1 else ramp(i * lanes - 12, lanes)
    value = B.if_then_else(inside, E.BufferLoad(a, (shifted,)), B.const(-1.0, F32.with_lanes(lanes)))
    body = loop(i, 32 // lanes, S.BufferStore(o, value, (index,)), PARALLEL)
    x, got = np.arange(8, dtype="f"), np.zeros(32, "f")
    assert run(S.PrimFunc((a, o), body), target, x, got) == 0
    want = np.full(32, -1, "f")
    want[12:20] = x
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64", "int8", "uint8", "bool", "float16"])
def test_named_vector_keeps_the_value_it_had(kind: str, target: str) -> None:
    lanes, dtype = 8, DType(kind)
    a, o, at = buffer("a", lanes, dtype), buffer("o", 2 * lanes, dtype), ramp(0, lanes)
    name = E.Var("v", dtype.with_lanes(lanes))
    other = E.Var("w", dtype.with_lanes(lanes))
    twice = E.Select(E.EQ(name, other), name, other)
    inner = S.seq(
        S.BufferStore(a, E.Broadcast(B.const(0, dtype), lanes), (at,)),  # what was read does not change
        S.BufferStore(o, name, (at,)),
        S.LetStmt(other, name, S.BufferStore(o, twice, (ramp(2 * lanes - 1, lanes, -1),))),
    )
    body = S.LetStmt(name, E.BufferLoad(a, (at,)), inner)
    x = (np.arange(lanes) % 2 if kind == "bool" else np.arange(1, lanes + 1)).astype(dtype.numpy)
    got = np.zeros(2 * lanes, dtype.numpy)
    assert run(S.PrimFunc((a, o), loop(E.Var("i"), 1, body, PARALLEL)), target, given := x.copy(), got) == 0
    np.testing.assert_array_equal(got, np.concatenate([x, x[::-1]]))
    assert not given.any()


@pytest.mark.parametrize("target", TARGETS)
def test_named_vector_of_places_chooses_elements_in_every_turn_of_a_loop(target: str) -> None:
    a, o, i = buffer("a", 64), buffer("o", 64), E.Var("i")
    place = E.Var("place", I32.with_lanes(8))
    value = E.Add(E.BufferLoad(a, (place,)), E.Cast(F32.with_lanes(8), place))
    at = ramp(i * 8, 8)
    body = S.LetStmt(place, E.Sub(E.Broadcast(B.int32(63), 8), at), S.BufferStore(o, value, (at,)))
    x, got = np.random.default_rng(2).standard_normal(64).astype("f"), np.zeros(64, "f")
    for kind in (SERIAL, UNROLLED):
        got[:] = 0
        function = S.PrimFunc((a, o), loop(E.Var("once"), 1, loop(i, 8, body, kind), PARALLEL))
        assert run(function, target, x, got) == 0
        np.testing.assert_array_equal(got, x[::-1] + np.arange(64, dtype="f")[::-1])


@pytest.mark.parametrize("target", TARGETS)
def test_assert_returns_its_number_and_symbolic_extent_is_computed(target: str) -> None:
    n, i = E.Var("n"), E.Var("i")
    o = S.Buffer("o", (n,), I32)
    body = S.AssertStmt(E.LT(i, B.int32(5)), "too long", S.BufferStore(o, i * 3, (i,)))
    function = S.PrimFunc((o, n), loop(i, n, body, PARALLEL))
    got = np.zeros(8, np.int32)
    assert run(function, target, got, scalars=(4,)) == 0
    assert got.tolist() == [0, 3, 6, 9, 0, 0, 0, 0]
    assert run(function, target, got, scalars=(8,)) == 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["float32", "int32", "bfloat16", "uint8"])
def test_vector_sum_adds_all_lanes(kind: str, target: str) -> None:
    dtype = DType(kind)
    a, o = buffer("a", 8, dtype), buffer("o", 1, dtype)
    value = B.call("vector_reduce_add", E.BufferLoad(a, (ramp(0, 8),)), dtype=kind)
    x, got = np.arange(8).astype(dtype.numpy), np.zeros(1, dtype.numpy)
    function = S.PrimFunc((a, o), loop(E.Var("i"), 1, S.BufferStore(o, value, (B.int32(0),)), PARALLEL))
    assert run(function, target, x, got) == 0
    assert float(got[0]) == 28.0


@pytest.mark.parametrize("target", TARGETS)
def test_index_division_of_any_sign_floors(target: str) -> None:
    o, i = buffer("o", 64, I32), E.Var("i")
    index = E.FloorDiv(i * 6 - 31, B.int32(7)) + 20
    mod = E.FloorMod(i * 5 - 30, B.int32(12)) + 40
    body = S.seq(S.BufferStore(o, i, (index,)), S.BufferStore(o, i + 100, (mod,)))
    got, want = np.zeros(64, np.int32), np.zeros(64, np.int32)
    assert run(S.PrimFunc((o,), loop(E.Var("z"), 1, loop(i, 12, body), PARALLEL)), target, got) == 0
    for k in range(12):
        want[(k * 6 - 31) // 7 + 20] = k
        want[(k * 5 - 30) % 12 + 40] = k + 100
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_unknown_intrinsic_and_gpu_axis_are_refused_by_name(target: str) -> None:
    o, i = buffer("o", 4), E.Var("i")
    sync = loop(i, 4, S.Evaluate(E.Call(I32, "no_such_thing", ())), PARALLEL)
    with pytest.raises(UnsupportedError, match="no_such_thing"):
        compiled([S.PrimFunc((o,), sync)], target)


def test_equal_programs_give_equal_text() -> None:
    first, second = (compiled([tile()], "llvm").get_source() for _ in range(2))
    assert first == second
    phase = Phase(E.Var("i"), B.int32(0), B.int32(1), S.Evaluate(B.int32(0)))
    assert phase_symbol(PhasedFunction("a_b", (), (), (), (phase,)), 0) == "a_b__p0"
