"""`tir.Schedule`: blocks over blocks, instructions in their place, padding, and traces."""

from __future__ import annotations

import json

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ArmillaryError, ScheduleError
from armillary.script import tir as T
from armillary.tir.schedule import InstructionKind, Trace

RNG = np.random.default_rng(5)


def _product(n: int = 16, m: int = 16, depth: int = 32) -> tir.Schedule:
    k = te.reduce_axis((0, depth), "k")
    a, b = te.placeholder((n, depth), name="a"), te.placeholder((m, depth), name="b")
    return tir.Schedule(
        te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="c")]),
        seed=3,
    )


def _check(s: tir.Schedule, n: int = 16, m: int = 16, depth: int = 32) -> None:
    a, b = RNG.random((n, depth), dtype=np.float32), RNG.random((m, depth), dtype=np.float32)
    c = np.full((n, m), np.nan, np.float32)
    armillary.build(s.mod, target="llvm")(a, b, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-5)


@T.prim_func
def _tile(x: T.handle, y: T.handle, z: T.handle) -> None:
    A = T.match_buffer(x, (4, 8), "float32", offset_factor=1)
    B = T.match_buffer(y, (4, 8), "float32", offset_factor=1)
    C = T.match_buffer(z, (4, 4), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:8], B[0:4, 0:8])
        T.writes(C[0:4, 0:4])
        for i, j, k in T.grid(4, 4, 8):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


@T.prim_func
def _tile_by_rows(x: T.handle, y: T.handle, z: T.handle) -> None:
    A = T.match_buffer(x, (4, 8), "float32", offset_factor=1)
    B = T.match_buffer(y, (4, 8), "float32", offset_factor=1)
    C = T.match_buffer(z, (4, 4), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:8], B[0:4, 0:8])
        T.writes(C[0:4, 0:4])
        for k in range(8):
            for i in range(4):
                for j in T.vectorized(4):
                    C[i, j] = C[i, j] + A[i, k] * B[j, k]


def _tiles(s: tir.Schedule, depth: int = 8) -> list[tir.schedule.LoopRV]:
    i, j, k = s.get_loops(s.get_block("c"))
    outer, inner = zip(*(s.split(loop, [None, n]) for loop, n in ((i, 4), (j, 4), (k, depth))), strict=True)
    s.reorder(*outer, *inner)
    return [*outer, *inner]


def test_a_tile_is_a_block_and_an_instruction_takes_its_place() -> None:
    tir.TensorIntrin.register("test.tile", _tile, _tile_by_rows, override=True)
    s = _product()
    loops = _tiles(s)
    block = s.blockize(loops[3])
    assert [a.kind for a in s.get(block).iter_vars] == ["data", "data", "reduce"]
    assert len(s.get_loops(s.get_block("c"))) == 3  # inside the block around it
    _check(s)
    s.decompose_reduction(block, loops[2])
    s.tensorize(block, "test.tile")
    assert "vectorized" in str(s.mod)
    with pytest.raises(ScheduleError, match="no block 'c'"):
        s.get_block("c")
    _check(s)


def test_an_instruction_takes_the_place_of_what_it_describes_only() -> None:
    tir.TensorIntrin.register("test.tile", _tile, _tile_by_rows, override=True)
    s = _product()
    with pytest.raises(ScheduleError, match="wanted loop k of 8"):
        s.tensorize(_tiles(s, 4)[3], "test.tile")
    s = _product()
    i, j, _ = s.get_loops(s.get_block("c"))
    inner = s.split(i, [None, 4])[1]
    with pytest.raises(ScheduleError, match="got j of 16"):
        s.tensorize(inner, "test.tile")
    s = _product(depth=8)
    with pytest.raises(ScheduleError, match="wanted no first values"):
        s.tensorize(_tiles(s)[3], "test.tile")
    with pytest.raises(ScheduleError, match="no tensor intrinsic 'none'"):
        s.tensorize(j, "none")
    with pytest.raises(ScheduleError, match="registered already"):
        tir.TensorIntrin.register("test.tile", _tile, _tile_by_rows)


def test_axes_are_padded_to_whole_tiles() -> None:
    s = _product(10, 7, 13)
    s.pad_einsum("c", [4, 8, 4])
    i, j, k = s.get_loops(s.get_block("c"))
    assert [int(s.get(loop).extent) for loop in (i, j, k)] == [12, 8, 16]
    s.vectorize(s.split(j, [None, 8])[1])
    _check(s, 10, 7, 13)
    with pytest.raises(ScheduleError, match="has 3 axes"):
        s.pad_einsum("c", [4])


def test_a_trace_prints_is_stored_and_repeats_itself() -> None:
    s = _product()
    c = s.get_block("c")
    i, j, _ = s.get_loops(c)
    s.get_block("c")  # used by nobody
    tiles = s.sample_perfect_tile(i, n=2, max_innermost_factor=8)
    s.split(i, tiles)
    s.split(j, [None, s.sample_categorical([4, 8], [0.5, 0.5])])
    s.enter_postproc()
    s.annotate(c, "note", "text")
    lines = s.trace.as_python()
    assert lines[:2] == ['b0 = sch.get_block(name="c", func_name=None)', "l1, l2, l3 = sch.get_loops(block=b0)"]
    factors = [s.get(tile) for tile in tiles]
    assert f"sch.sample_perfect_tile(loop=l1, n=2, max_innermost_factor=8, decision={factors})" in lines[3]
    assert len(s.trace.simplified(remove_postproc=True).insts) == len(lines) - 3
    again, by_text = _product(), _product()
    s.trace.apply_to_schedule(again)
    Trace.apply_json_to_schedule(json.loads(json.dumps(s.trace.as_json())), by_text)
    assert str(again.mod) == str(s.mod) == str(by_text.mod)
    inst = next(one for one in s.trace.insts if one.kind is InstructionKind.get("SamplePerfectTile"))
    other = _product()
    s.trace.with_decision(inst, [8, 2], remove_postproc=True).apply_to_schedule(other)
    assert int(other.get(other.get_loops("c")[0]).extent) == 8
    decided = _product()
    s.trace.apply_to_schedule(decided, False, lambda inst, *_: [4, 4] if "Perfect" in inst.kind.name else 0)
    assert int(decided.get(decided.get_loops("c")[0]).extent) == 4
    _check(decided)


def test_a_trace_is_checked_by_the_old_names() -> None:
    s = _product()
    s.parallel(s.get_loops("c")[0])
    func = te.create_prim_func([te.compute((4,), lambda i: i, name="b")])
    other = tir.schedule.testing.verify_trace_roundtrip(s, _product().mod)
    assert "parallel" in str(other.mod)
    tir.schedule.testing.assert_structural_equal_ignore_global_symbol(
        s.mod["main"].with_attr("global_symbol", "f"), other.mod["main"].without_attr("global_symbol")
    )
    with pytest.raises(ArmillaryError):
        tir.schedule.testing.assert_structural_equal_ignore_global_symbol(func, other.mod["main"])


def test_a_copy_goes_its_own_way() -> None:
    s = _product()
    i, _, _ = s.get_loops("c")
    other = s.copy()
    s.split(i, [None, 4])
    other.parallel(i)
    assert len(s.get_loops("c")) == 4 and len(other.get_loops("c")) == 3
    with pytest.raises(ScheduleError, match="write the same elements"):
        other.read_at(i, "c", 0, "local") and other.parallel(other.get_loops("c")[2])
    _check(other)


def test_what_was_refused_halfway_is_not_done() -> None:
    s = _product()
    before = s.mod
    with pytest.raises(ScheduleError):
        s.write_at(s.get_loops("c")[2], "c", 0, "local")
    assert s.mod is before and not any("cache" in line or "write_at" in line for line in s.trace.as_python())


def test_index_maps_lead_back() -> None:
    there = tir.IndexMap.from_func(lambda i, j: (j % 4, i, j // 4))
    back = there.inverse([6, 8])
    assert there.map_shape([6, 8]) == [4, 6, 2]
    for i in range(6):
        for j in range(8):
            assert [int(e) for e in back(*there(i, j))] == [i, j]
    with pytest.raises(ScheduleError, match="does not divide"):
        there.inverse([6, 10])
    with pytest.raises(ScheduleError, match="no digit"):
        tir.IndexMap.from_func(lambda i: ((i * i) // 3,)).inverse([6])


def test_loops_behind_one_another_become_one() -> None:
    a = te.placeholder((8, 6), name="a")
    b = te.compute((8, 6), lambda i, j: a[i, j] * 2, name="b")
    s = tir.Schedule(te.create_prim_func([a, te.compute((8, 6), lambda i, j: b[i, j] + 1, name="c")]))
    s.merge(s.get_loops("b")[1], s.get_loops("c")[1])
    assert s.get_loops("b") == s.get_loops("c")
    x, y = RNG.random((8, 6), dtype=np.float32), np.zeros((8, 6), np.float32)
    armillary.build(s.mod, target="llvm")(x, y)
    np.testing.assert_allclose(y, x * 2 + 1)
    s = tir.Schedule(te.create_prim_func([a, te.compute((8, 6), lambda i, j: b[7 - i, j] + 1, name="c")]))
    with pytest.raises(ScheduleError, match="other iterations touch"):
        s.merge(s.get_loops("b")[0], s.get_loops("c")[0])


def test_what_is_marked_is_not_taken_apart() -> None:
    s = _product()
    i, j, _ = s.get_loops("c")
    s.annotate(i, "note", {"a": 1})
    s.bind(j, "threadIdx.x")
    with pytest.raises(ScheduleError, match="has the note 'note'"):
        s.split(i, [None, 4])
    with pytest.raises(ScheduleError, match=r"is bound to threadIdx\.x"):
        s.fuse(j)
    with pytest.raises(ScheduleError, match="named twice"):
        s.reorder(i, i)
    assert tir.schedule.testing.verify_trace_roundtrip(s, _product().mod).trace.insts


def test_blocks_that_write_what_leaves_a_block() -> None:
    s = _product()
    outer = s.blockize(s.get_loops("c")[1])
    assert [b.name for b in s.get_output_blocks("root")] == [outer.name, "c"]
    assert s.get_sref(outer).same_as(s.get_sref(s.get_block(outer.name)))


def test_a_later_part_of_a_sum_does_not_begin_it_again() -> None:
    s = _product()
    _, second = s.loop_partition(s.get_loops("c")[2], [8, None])
    outer, inner = s.split(second, [None, 4])
    with pytest.raises(ScheduleError, match="no first values"):
        s.decompose_reduction("c_1", outer)
    with pytest.raises(ScheduleError, match="no first values"):
        s.rfactor(inner, 0)
    s.decompose_reduction("c_0", s.get_loops("c_0")[2])
    _check(s)


def test_what_there_is_not_says_so() -> None:
    s = _product()
    with pytest.raises(ScheduleError, match="one dimension"):
        s.set_axis_separator("c", ("write", 0), [1])
    with pytest.raises(ScheduleError, match="rows are not kept"):
        s.rolling_buffer("c", 0)
