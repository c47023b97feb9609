"""Axes of more than 2^31 elements, and bounds beyond them: indices are as wide as the axis.

The long tensors are zeros that nobody wrote, which take no memory but the pages that are read.
"""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import ScheduleError
from armillary.te import Tensor
from armillary.tir import decl_buffer
from armillary.tir.transform.storage_flatten import flat_size, strides_of

LONG = 2**31 + 7


def compiled(result: Tensor, arguments: list[Tensor], target: str, values: list[np.ndarray]) -> np.ndarray:
    out = np.zeros(te.static_shape(result), str(result.dtype))
    function = armillary.build(te.create_schedule(result.op), [*arguments, result], target)
    held = [armillary.nd.from_dlpack(v) for v in (*values, out)]
    function(*held)
    return held[-1].numpy()


def long_tensor() -> np.ndarray:
    made = np.zeros(LONG, np.int8)
    made[[2**31 - 1, 2**31, LONG - 1]] = 3, 5, 9
    return made


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_reads_beyond_two_to_the_31(target: str, mode: str) -> None:
    a, places = te.placeholder((LONG,), "int8", name="a"), te.placeholder((5,), "int64", name="places")
    at = np.array([2**31 - 1, 2**31, LONG - 1, 1, LONG if mode == "wrap" else 2**40])
    got = compiled(topi.take(a, places, mode=mode), [a, places], target, [long_tensor(), at])
    assert got.tolist() == [3, 5, 9, 0, 0 if mode == "wrap" else 9]


def test_gather_reads_beyond_two_to_the_31_from_the_end_too() -> None:
    a, places = te.placeholder((LONG,), "int8", name="a"), te.placeholder((3,), "int64", name="places")
    at = np.array([2**31, -1, -LONG])
    assert compiled(topi.gather(a, 0, places), [a, places], "llvm", [long_tensor(), at]).tolist() == [5, 9, 0]


def test_narrow_positions_into_a_long_axis_are_widened() -> None:
    a, places = te.placeholder((LONG,), "int8", name="a"), te.placeholder((3,), "int32", name="places")
    at = np.array([2**31 - 1, -7, -8], np.int32)
    assert compiled(topi.gather(a, 0, places), [a, places], "llvm", [long_tensor(), at]).tolist() == [3, 5, 3]


@pytest.mark.parametrize("begin", [1, -3, -(2**32) + 1, -(2**63)])
def test_bounds_that_are_read_are_cut_to_the_axis(begin: int) -> None:
    a = te.placeholder((4,), "int32", name="a")
    first, last = (te.placeholder((1,), "int64", name=n) for n in ("first", "last"))
    wanted = np.arange(4, dtype=np.int32)[begin:][:1]
    sliced = topi.dynamic_strided_slice(a, first, last, None, (1,))
    held = [np.arange(4, dtype=np.int32), np.array([begin]), np.array([2**63 - 1])]
    assert compiled(sliced, [a, first, last], "llvm", held).tolist() == wanted.tolist()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_places_in_rows_of_a_long_tensor_are_counted_in_64_bits(target: str) -> None:
    """Each index fits into 32 bits, the place in memory does not."""
    rows, columns = 65537, 32769
    a, v = te.placeholder((rows, columns), "int8", name="a"), te.placeholder((2,), "int32", name="v")
    values = np.zeros((rows, columns), np.int8)
    values[rows - 1, columns - 1], values[rows - 2, columns - 1], values[rows - 1, columns - 2] = 7, 3, 2
    corner = topi.strided_slice(a, [rows - 2, columns - 2], [rows, columns])
    assert compiled(corner, [a], target, [values]).tolist() == [[0, 3], [2, 7]]
    read = te.compute((2,), lambda q: a[v[q], v[q] // 2], name="read")
    at = np.array([rows - 1, rows - 3], np.int32)
    assert compiled(read, [a, v], target, [values, at]).tolist() == [7, 0]
    step = te.reduce_axis((0, rows), "step")
    total = te.compute((1,), lambda q: te.sum(a[step, columns - 1].astype("int32"), axis=step), name="total")
    assert compiled(total, [a], target, [values]).tolist() == [10]


def test_strides_of_a_long_buffer_are_64_bits_wide() -> None:
    long = decl_buffer((2, 65536, 65536), "int8", name="b")
    assert [str(s.dtype) for s in strides_of(long)] == ["int64"] * 3
    assert [s.value for s in strides_of(long)] == [2**32, 65536, 1]
    assert flat_size(long).value == 2**33
    assert str(strides_of(decl_buffer((2, 3), "int8"))[0].dtype) == "int32"


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_long_tensor_is_reshaped(target: str) -> None:
    """Each axis fits into 32 bits, the place that an element of both shapes has does not."""
    a = te.placeholder((65537, 32769), "int8", name="a")
    values = np.zeros((65537, 32769), np.int8)
    values[-1, -1], values[-1, -2], values[-2, -1] = 7, 2, 3
    seen = topi.reshape(a, (32769, 65537))
    corner = te.compute((2,), lambda q: seen[32768, 65535 + q], name="corner")
    schedule = te.create_schedule(corner.op)
    schedule[seen].compute_inline()
    out, function = np.zeros(2, np.int8), armillary.build(schedule, [a, corner], target)
    held = [armillary.nd.from_dlpack(v) for v in (values, out)]
    function(*held)
    assert held[1].numpy().tolist() == [2, 7]


def test_more_iterations_than_int32_counts_are_not_fused() -> None:
    a = te.placeholder((65537, 32769), "int8", name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + te.const(1, "int8"), name="b")
    schedule = te.create_schedule(b.op)
    with pytest.raises(ScheduleError, match="2147581953 iterations together, more than int32 counts"):
        schedule[b].fuse(*b.op.axis)
    loops = armillary.tir.Schedule(te.create_prim_func([a, b]))
    with pytest.raises(ScheduleError, match="2147581953 iterations, more than int32 counts"):
        loops.fuse(*loops.get_loops(loops.get_block("b")))
