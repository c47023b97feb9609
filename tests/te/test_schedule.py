"""Misuse is refused where it is written; directives are values; random legal schedules keep results."""

from __future__ import annotations

import random

import numpy as np
import pytest
from common import matmul, randoms, run

from armillary import te
from armillary.errors import ScheduleError, TypeMismatch
from armillary.te.directives import from_json, to_json


def chain():
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2, name="C")
    return a, b, c, te.create_schedule(c.op)


MISUSE = {
    "split already": (lambda s, a, b, c: (s[c].split(c.op.axis[0], 2), s[c].split(c.op.axis[0], 2)), "already split"),
    "split zero": (lambda s, a, b, c: s[c].split(c.op.axis[0], 0), "wanted a positive integer"),
    "split both": (lambda s, a, b, c: s[c].split(c.op.axis[0], 2, 2), "one of factor and nparts"),
    "split by no step": (lambda s, a, b, c: s[c].split(c.op.axis[0], 2, step=0), "step is 0, wanted 1, or more beside"),
    "steps of parts": (lambda s, a, b, c: s[c].split(c.op.axis[0], nparts=2, step=2), "step is 2, wanted 1, or more"),
    "foreign axis": (lambda s, a, b, c: s[c].unroll(b.op.axis[0]), "axis i is not a loop"),
    "reorder twice": (lambda s, a, b, c: s[c].reorder(c.op.axis[0], c.op.axis[0]), "axis i is given twice"),
    "fuse order": (lambda s, a, b, c: s[c].fuse(c.op.axis[1], c.op.axis[0]), "not neighbouring"),
    "inline output": (lambda s, a, b, c: s[c].compute_inline(), "output of the schedule"),
    "at non-consumer": (lambda s, a, b, c: s[a].compute_at(s[c], c.op.axis[0]), "placeholder"),
    "at wrong axis": (lambda s, a, b, c: s[b].compute_at(s[c], b.op.axis[0]), "is not a loop"),
    "marked twice": (lambda s, a, b, c: (s[c].unroll(c.op.axis[0]), s[c].parallel(c.op.axis[0])), "already unrolled"),
    "cache late": (lambda s, a, b, c: (s[c].split(c.op.axis[0], 2), s.cache_write(c, "local")), "already scheduled"),
    "cache non-reader": (lambda s, a, b, c: s.cache_read(a, "local", [c]), "does not read it"),
    "rfactor map": (lambda s, a, b, c: s.rfactor(c, c.op.axis[0]), "not a reduction"),
    "bind no thread": (lambda s, a, b, c: s[c].bind(c.op.axis[0], b.op.axis[0]), "not a thread axis"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_refused_with_its_reason(case):
    a, b, c, s = chain()
    act, message = MISUSE[case]
    with pytest.raises(ScheduleError, match=message):
        act(s, a, b, c)


def test_reduction_axes_are_not_vectorized():
    _, _, c = matmul()
    s = te.create_schedule(c.op)
    with pytest.raises(ScheduleError, match="axis k is a reduction axis"):
        s[c].vectorize(c.op.reduce_axis[0])


def test_symbolic_extent_is_not_vectorized():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i], name="B")
    with pytest.raises(ScheduleError, match="not constant"):
        te.create_schedule(b.op)[b].vectorize(b.op.axis[0])


def test_split_of_an_attach_axis_is_refused():
    _, b, c, s = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(ScheduleError, match="stage B is computed at axis i"):
        s[c].split(c.op.axis[0], 2)


def test_nested_reduction_and_wrong_rank_are_refused():
    a = te.placeholder((4, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    with pytest.raises(TypeMismatch, match="whole body"):
        te.compute((4,), lambda i: te.sum(a[i, k], axis=k) + 1)
    with pytest.raises(TypeMismatch, match="2 dimensions"):
        te.compute((4,), lambda i: a(i))
    with pytest.raises(TypeMismatch, match="takes 2 axes"):
        te.compute((4,), lambda i, j: a[i, j])


def scheduled():
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    cached = s.cache_write(c, "local")
    s.cache_read(a, "local", [cached])
    _, yo, _, yi = s[c].tile(*c.op.axis, 4, 5)
    s[c].vectorize(yi)
    s[cached].compute_at(s[c], yo)
    s[cached].pragma(s[cached].op.axis[0], "note", 3)
    return s, [a, b, c]


def test_directives_survive_json_and_replay_to_the_same_schedule():
    s, _ = scheduled()
    text = to_json(s.directives())
    assert from_json(text) == s.directives()
    a, b, c = matmul()
    fresh = te.apply_directives(te.create_schedule(c.op), text)
    assert str(fresh) == str(s) and fresh.directives() == s.directives()
    x, y = randoms((9, 7), (7, 10))
    np.testing.assert_allclose(run(fresh, [a, b, c], [x, y])[0], x @ y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"stage": "C", "do": "melt"}]', '[{"stage": "C", "do": "fuse"}]'])
def test_damaged_directives_are_refused(text):
    _, _, c = matmul()
    with pytest.raises(ScheduleError):
        te.apply_directives(te.create_schedule(c.op), text)


@pytest.mark.parametrize("seed", range(40))
def test_random_legal_schedules_keep_results(seed):
    print(f"seed {seed}")
    pick = random.Random(seed)
    a, b, c = matmul()
    d = te.compute((9, 10), lambda i, j: c[i, j] + te.if_then_else(j > 0, c[i, te.max(j - 1, 0)], 0.0), name="D")
    s = te.create_schedule(d.op)
    if pick.random() < 0.5:
        s.cache_write(c, "local")
    if pick.random() < 0.3:
        s.cache_read(a, "local", [s.sources(s[d])[0] if c.op is s[c].op else s.stage("C.local")])
    for stage in s.in_order()[::-1]:
        if isinstance(stage.op, te.PlaceholderOp):
            continue
        for _ in range(pick.randrange(4)):
            if pick.random() < 0.7:
                stage.split(pick.choice(stage.leaf), factor=pick.randint(1, 6), step=pick.choice((1, 1, 2, 3)))
            else:
                at = pick.randrange(len(stage.leaf) - 1)
                if (stage.leaf[at].kind == "reduce") == (stage.leaf[at + 1].kind == "reduce"):
                    stage.fuse(stage.leaf[at], stage.leaf[at + 1])
        stage.reorder(*pick.sample(stage.leaf, len(stage.leaf)))
        data = [x for x in stage.leaf if x.kind != "reduce"]
        pick.choice([stage.unroll, stage.vectorize, stage.parallel])(pick.choice(data))
    for stage in s.in_order()[::-1]:
        readers = [r for r in s.in_order() if stage in s.sources(r)]
        if readers and not isinstance(stage.op, te.PlaceholderOp) and pick.random() < 0.7:
            stage.compute_at(readers[0], pick.choice(readers[0].leaf))
    print(s)
    x, y = randoms((9, 7), (7, 10), seed=seed)
    want = x @ y
    want = want + np.pad(want, ((0, 0), (1, 0)))[:, :-1]
    np.testing.assert_allclose(run(s, [a, b, d], [x, y])[0], want, rtol=1e-4, atol=1e-4)
