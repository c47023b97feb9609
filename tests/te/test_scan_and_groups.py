"""Recurrences lower to a time loop; groups of stages move together; prefetches name cache lines."""

from __future__ import annotations

import re

import numpy as np
import pytest

import armillary as tvm
from armillary import te
from armillary.errors import ScheduleError
from armillary.te.directives import apply_directives, from_json, to_json
from armillary.te.prefetch import Spread, Term
from armillary.te.schedule import Schedule
from armillary.te.tensor import Tensor
from armillary.tir.interpreter import interpret

WIDTH = 6


def cumulative_sum(steps: int) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    x, state = te.placeholder((steps, WIDTH), name="X"), te.placeholder((steps, WIDTH), name="state")
    init = te.compute((1, WIDTH), lambda _, i: x[0, i], name="init")
    update = te.compute((steps, WIDTH), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    out = te.scan(init, update, state, inputs=[x], name="total")
    return te.create_schedule(out.op), x, update, out


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_scan_is_the_recurrence(target: str) -> None:
    s, x, update, out = cumulative_sum(9)
    s[update].vectorize(s[update].op.axis[1])
    value, result = np.random.default_rng(1).random((9, WIDTH), "float32"), tvm.nd.empty((9, WIDTH))
    tvm.build(s, [x, out], target)(tvm.nd.array(value), result)
    want = value.copy()
    for t in range(1, 9):
        want[t] = want[t - 1] + value[t]
    np.testing.assert_array_equal(result.numpy(), want)


def test_the_steps_of_a_scan_are_one_serial_loop_over_one_buffer() -> None:
    s, x, _, out = cumulative_sum(9)
    text = str(te.lower_schedule(s, [x, out]))
    assert "for total_idx in range(8)" in text
    assert "alloc update" not in text
    assert "alloc state" not in text


def test_a_scan_prints_its_time_loop_and_the_steps_in_it() -> None:
    s, _, update, _ = cumulative_sum(9)
    s[update].split(s[update].op.axis[1], factor=3)
    lines = str(s).splitlines()
    at = lines.index("scan total:")
    inside = ["for total.idx in 8", "compute update[1, 6]:", "for t in 1"]
    assert [line.strip() for line in lines[at + 1 : at + 4]] == inside
    assert lines[-1].strip() == "for i.inner in 3"


def test_two_states_with_stages_between_and_a_symbolic_length() -> None:
    n = te.var("n")
    x, a, b = (te.placeholder((n, WIDTH), name=name) for name in ("X", "a", "b"))
    first = [te.compute((2, WIDTH), lambda t, i: x[t, i]), te.compute((2, WIDTH), lambda t, i: 1.0)]
    half = te.compute((n, WIDTH), lambda t, i: a[t - 2, i] * 0.5, name="half")
    new_a = te.compute((n, WIDTH), lambda t, i: half[t, i] + x[t, i], name="new_a")
    k = te.reduce_axis((0, WIDTH), name="k")
    new_b = te.compute((n, WIDTH), lambda t, i: te.sum(b[t - 1, k] * half[t, i], axis=k), name="new_b")
    out_a, out_b = te.scan(first, [new_a, new_b], [a, b], inputs=[x])
    s = te.create_schedule([out_a.op])
    s[new_b].split(new_b.op.axis[1], factor=4)
    value = np.random.default_rng(2).random((7, WIDTH), "float32")
    got = [np.zeros_like(value), np.zeros_like(value)]
    interpret(te.lower_schedule(s, [x, out_a, out_b]), value, *got)
    want_a, want_b = value.copy(), np.ones_like(value)
    for t in range(2, 7):
        row = want_a[t - 2] * np.float32(0.5)
        want_a[t], want_b[t] = row + value[t], want_b[t - 1].sum() * row
    np.testing.assert_allclose(got[0], want_a, rtol=1e-6)
    np.testing.assert_allclose(got[1], want_b, rtol=1e-5)


def test_a_value_of_the_steps_cannot_be_read_after_them() -> None:
    x, state = te.placeholder((4,), name="X"), te.placeholder((4,), name="state")
    double = te.compute((4,), lambda t: state[t - 1] * 2.0, name="double")
    update = te.compute((4,), lambda t: double[t] + x[t], name="update")
    out = te.scan(te.compute((1,), lambda _: x[0]), update, state)
    after = te.compute((4,), lambda t: out[t] + double[t], name="after")
    with pytest.raises(ScheduleError, match="stage double is computed in the steps of scan, but after reads it"):
        te.lower_schedule(te.create_schedule(after.op), [x, after])


def chain() -> tuple[Schedule, list[Tensor]]:
    a = te.placeholder((8, 16), name="A")
    b = te.compute((8, 16), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 16), lambda i, j: b[i, j] * 2.0, name="C")
    d = te.compute((8, 16), lambda i, j: c[i, j] + b[i, j], name="D")
    e = te.compute((8, 16), lambda i, j: d[i, j] - 3.0, name="E")
    return te.create_schedule(e.op), [a, b, c, d, e]


def test_a_group_is_computed_at_one_loop() -> None:
    s, (a, b, c, d, e) = chain()
    group = s.create_group(outputs=d, inputs=a)
    assert repr(group) == "StageGroup(B, C, D)"
    group.compute_at(s[e], s[e].op.axis[0])
    text = str(te.lower_schedule(s, [a, e]))
    assert all(f"alloc {name}: Buffer[(1, 16), float32]" in text for name in "BCD")
    value, got = np.random.default_rng(3).random((8, 16), "float32"), np.zeros((8, 16), "float32")
    interpret(te.lower_schedule(s, [a, e]), value, got)
    np.testing.assert_allclose(got, (value + 1) * 3 - 3, rtol=1e-6)
    group.compute_root()
    assert "alloc C: Buffer[(8, 16), float32]" in str(te.lower_schedule(s, [a, e]))
    again = te.apply_directives(chain()[0], s.directives())
    assert str(again) == str(s)
    assert s.create_group(outputs=[d], inputs=[b]).stages == (s[c], s[d])
    assert s.create_group(outputs=[d], inputs=[b], include_inputs=True).stages == (s[b], s[c], s[d])


def test_groups_that_make_no_sense_are_refused() -> None:
    s, (a, b, c, d, e) = chain()
    with pytest.raises(ScheduleError, match="output B does not depend on the inputs"):
        s.create_group(outputs=b, inputs=c)
    with pytest.raises(ScheduleError, match="D is one of its stages"):
        s.create_group(outputs=d, inputs=a).compute_at(s[d], s[d].op.axis[0])
    with pytest.raises(ScheduleError, match="needs inputs and outputs"):
        s.create_group(outputs=[], inputs=a)
    assert e.ndim == 2


def test_a_prefetch_is_an_instruction_per_cache_line() -> None:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, s[b].op.axis[0], 2)
    assert "eval prefetch:int32(A[i + 2, 0], A[i + 2, 63])" in str(te.lower_schedule(s, [a, b]))
    assert "prefetch:int32(A[i * 64 + line * 16 + 128], 0, 3, 1)" in str(tvm.lower(s, [a, b]))
    value, result = tvm.nd.array(np.random.default_rng(4).random((64, 64), "float32")), tvm.nd.empty((64, 64))
    compiled = tvm.build(s, [a, b], "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64")
    assert "call void @llvm.prefetch.p0(ptr" in compiled.get_source("ll")
    assert "prefetcht0" in compiled.get_source("asm")
    source = tvm.build(s, [a, b], "c")
    assert "ARMILLARY_PREFETCH(&A[" in source.get_source()
    source(value, result)
    np.testing.assert_array_equal(result.numpy(), value.numpy() * 2)


def test_a_prefetch_names_the_cache_it_is_for_and_survives_a_replay() -> None:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a(i, j) + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, s[b].op.axis[0], 2, locality=2)
    assert "eval prefetch:int32(A[i + 2, 0], A[i + 2, 63], 2)" in str(te.lower_schedule(s, [a, b]))
    assert "prefetch:int32(A[i * 64 + line * 16 + 128], 0, 2, 1)" in str(tvm.lower(s, [a, b]))
    again = te.create_schedule(b.op)
    apply_directives(again, from_json(to_json(s.directives())))
    assert str(te.lower_schedule(again, [a, b])) == str(te.lower_schedule(s, [a, b]))
    with pytest.raises(ScheduleError, match="the locality is 4, wanted 0 to 3"):
        s[b].prefetch(a, s[b].op.axis[0], 2, locality=4)


def spread_product() -> tuple[Schedule, list[Tensor], Tensor, te.IterVar, te.IterVar]:
    """x (4, 8) times w in 4 blocks of 4 columns, rows two at a time; the schedule, arguments, product, row and step."""
    x, w = te.placeholder((4, 8), name="X"), te.placeholder((4, 8, 4), name="W")
    k = te.reduce_axis((0, 8), name="k")
    y = te.compute((4, 16), lambda i, j: te.sum(x[i, k] * w[j // 4, k, j % 4], axis=[k]), name="Y")
    s = te.create_schedule(y.op)
    row, column = s[y].op.axis
    outer, inner = s[y].split(row, factor=2)
    block, lane = s[y].split(column, factor=4)
    s[y].reorder(block, outer, k, inner, lane)
    return s, [x, w, y], w, row, k


def test_a_spread_prefetch_shares_the_next_block_among_the_loops_further_out() -> None:
    s, arguments, w, row, k = spread_product()
    y = arguments[-1]
    # one block is 8 lines of 4; two tiles of rows with 8 steps each ask for half a line each time
    s[y].prefetch(w, k, 8, 2, spread=Spread((Term(((row, 1),), 8 * 2, 2), Term(((k, 1),), 2 - 4))))
    text = str(te.lower_schedule(s, arguments))
    (asked,) = (line.strip() for line in text.splitlines() if "prefetch" in line)
    found = re.fullmatch(r"eval prefetch:int32\(W\[(.*), (.*), (.*)\], W\[.*\], 2\)", asked)
    assert found is not None, asked
    places = set()
    for outer in range(2):
        for step in range(8):
            names = {"j_outer": 1, "i_outer": outer, "k": step}
            block, line, lane = (eval(text, {}, names) for text in found.groups())
            places.add(block * 32 + line * 4 + lane)
    assert places == {2 * 32 + n * 2 for n in range(16)}
    again = spread_product()
    apply_directives(fresh := te.create_schedule(again[1][-1].op), from_json(to_json(s.directives())))
    assert str(te.lower_schedule(fresh, again[1])) == text
    with pytest.raises(ScheduleError, match="wanted data axes and the loop"):
        again[0][again[1][-1]].prefetch(again[2], again[4], 8, 2, spread=Spread((Term(((again[4], 1),), 1, 0),)))


def test_a_prefetch_of_a_tile_asks_for_each_of_its_rows() -> None:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[j, i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    _, outer, _, _ = s[b].tile(*s[b].op.axis, 8, 8)
    s[b].prefetch(a, outer, 1)
    text = str(tvm.lower(s, [a, b]))
    assert all(f"eval prefetch:int32(A[j_outer * 512 + i_outer * 8 + {512 + 64 * row}]" in text for row in range(8))


def test_tiles_that_share_a_prefetch_ask_for_every_row_once_together() -> None:
    a, w = te.placeholder((12, 10), name="A"), te.placeholder((10, 3, 16), name="W")
    c, k = te.reduce_axis((0, 10), name="c"), te.reduce_axis((0, 3), name="k")
    b = te.compute((12, 16), lambda i, j: te.sum(a[i, c] * w[c, k, j], axis=[c, k]), name="B")
    s = te.create_schedule(b.op)
    local = s.cache_write(b, "local")
    outer, _ = s[b].split(s[b].op.axis[0], factor=6)
    s[local].compute_at(s[b], outer)
    i, j = s[local].op.axis
    s[local].reorder(*s[local].op.reduce_axis, i, j)
    s[local].prefetch(w, s[local].op.reduce_axis[0], 1, shared=[te.Sharer(i, 6, 2)])
    again = te.create_schedule(b.op)
    apply_directives(again, from_json(to_json(s.directives())))
    assert str(te.lower_schedule(again, [a, w, b])) == str(te.lower_schedule(s, [a, w, b]))
    text = str(tvm.lower(s, [a, w, b]))
    asked = [found[1] for found in re.finditer(r"prefetch:int32\(W\[(.*?)\], 0, 3, 1\)", text)]
    assert len(asked) == 2  # of three rows, so the second tile's last one is the first row again
    rows = [eval(e.replace("/", "//"), {"i_outer": tile, "c": 0}) // 16 - 3 for tile in (0, 1) for e in asked]
    assert sorted(rows) == [0, 0, 1, 2]
    with pytest.raises(ScheduleError, match="name an axis of the operation, a step and a count from 1 on"):
        s[local].prefetch(w, s[local].op.reduce_axis[0], 1, shared=[te.Sharer(outer, 6, 2)])


def test_injective_stages_are_inlined_unless_their_storage_is_asked_for() -> None:
    s, (a, b, c, d, e) = chain()
    s[c].set_scope("local")
    te.schedule.AutoInlineInjective(s)
    assert [s[t].is_inline for t in (b, c, d, e)] == [True, False, True, False]
    value, got = np.random.default_rng(5).random((8, 16), "float32"), np.zeros((8, 16), "float32")
    interpret(te.lower_schedule(s, [a, e]), value, got)
    np.testing.assert_allclose(got, (value + 1) * 3 - 3, rtol=1e-6)
