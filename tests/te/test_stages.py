"""The steps of Relay-era lowering: loops over tensors, then buffers. They come to what lowering makes at once."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from common import matmul

import armillary
from armillary import te, tir
from armillary.base.node import post_order, structural_equal
from armillary.errors import InternalError, ParseError, TypeMismatch
from armillary.tir.interpreter import interpret
from armillary.tir.parser import parse_stmt

Made = tuple[te.Schedule, list[te.Tensor]]


def _text() -> Made:
    a, b = (te.placeholder((10,), name=n) for n in "AB")
    c = te.compute((10,), lambda x: a[x] + b[x])
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[0], factor=5)
    return s, [a, b, c]


def _guarded() -> Made:
    s, args = _text()
    s = te.create_schedule(args[2].op)
    s[args[2]].split(args[2].op.axis[0], factor=4)
    return s, args


def _tiles() -> Made:
    a, b, c = matmul(8, 12, 6)
    d = te.compute((8, 12), lambda i, j: c[i, j] + 1.0, name="D")
    s = te.create_schedule(d.op)
    cached = s.cache_write(d, "local")
    _, inner, _, _ = s[d].tile(*d.op.axis, 4, 4)
    s[cached].compute_at(s[d], inner)
    s[c].compute_at(s[cached], cached.op.axis[0])
    s[c].reorder(*c.op.reduce_axis, *c.op.axis)
    return s, [a, b, d]


def _parts() -> Made:
    a = te.placeholder((3, 16), name="A")
    k = te.reduce_axis((0, 16), "k")
    b = te.compute((3,), lambda i: te.sum(a[i, k], k), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(k, 4)
    part = s.rfactor(b, inner)
    s[part].storage_align(part.op.axis[0], 8, 1)
    return s, [a, b]


def _window() -> Made:
    a = te.placeholder((20,), name="A")
    b = te.compute((20,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((18,), lambda i: b[i] + b[i + 1] * b[i + 2], name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], 6)
    s[b].compute_at(s[c], outer)
    return s, [a, c]


def _threads() -> Made:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, 7 - j], name="B")
    s = te.create_schedule(b.op)
    row = s.cache_read(a, "shared", [b])
    s[b].parallel(b.op.axis[0])
    s[row].compute_at(s[b], b.op.axis[0])
    s[row].double_buffer()
    s[b].vectorize(b.op.axis[1])
    return s, [a, b]


def _scan() -> Made:
    x = te.placeholder((5, 3), name="X")
    state = te.placeholder((5, 3), name="S")
    first = te.compute((1, 3), lambda _, i: x[0, i], name="first")
    step = te.compute((5, 3), lambda t, i: state[t - 1, i] + x[t, i], name="step")
    result = te.scan(first, step, state, inputs=[x])
    return te.create_schedule(result.op), [x, result]


def _foreign() -> Made:
    a = te.placeholder((6,), name="A")
    b = te.compute((6,), lambda i: a[i] + 1.0, name="B")

    def copied(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        builder = tir.ir_builder.create()
        source, into = builder.buffer_ptr(ins[0]), builder.buffer_ptr(outs[0])
        with builder.for_range(0, 6) as i:
            into[i] = source[i] * 3.0
        return builder.get()

    c = te.extern((6,), [b], copied, name="C")
    d = te.compute((6,), lambda i: c[i] - a[i], name="D")
    return te.create_schedule(d.op), [a, d]


def _scalar() -> Made:
    a = te.placeholder((), name="A")
    b = te.compute((), lambda: a() + 1.0, name="B")
    return te.create_schedule(b.op), [a, b]


ALL: list[Callable[[], Made]] = [_text, _guarded, _tiles, _parts, _window, _threads, _scan, _foreign, _scalar]


def _values(function: tir.PrimFunc, args: list[te.Tensor]) -> np.ndarray:
    random = np.random.default_rng(3)
    values = [random.random(te.static_shape(a)).astype(a.dtype) for a in args]
    values[-1][...] = np.nan
    interpret(function, *values)
    return values[-1]


@pytest.mark.parametrize("make", ALL, ids=lambda f: f.__name__.strip("_"))
def test_steps_come_to_what_lowering_makes(make: Callable[[], Made]) -> None:
    schedule, args = make()
    stages = te.schedule.ScheduleOps(schedule, te.schedule.InferBound(schedule))
    tir.verify_stages(stages, args[:-1])
    function = te.schedule.SchedulePostProcToPrimFunc(args, stages, None)
    at_once = te.lower_schedule(schedule, args)
    assert np.array_equal(_values(function, args), _values(at_once, args))
    flat = armillary.tir.transform.StorageFlatten(64)(armillary.IRModule({"main": function}))["main"]
    assert all(len(b.shape) == 1 for b in post_order(flat) if isinstance(b, tir.Buffer))
    assert np.array_equal(_values(flat, args), _values(at_once, args))


@pytest.mark.parametrize("make", [f for f in ALL if f not in (_foreign, _scan, _threads)], ids=lambda f: f.__name__)
def test_stages_are_read_back(make: Callable[[], Made]) -> None:
    schedule, _ = make()
    stages = te.schedule.ScheduleOps(schedule, None)
    of = {item.producer for item in post_order(stages) if hasattr(item, "producer")}
    names = {re.sub(r"\W", "_", t.name): t for t in of}
    assert len(names) == len(of)
    assert structural_equal(parse_stmt(str(stages), names), stages)


def test_stages_as_the_text_prints_them() -> None:
    schedule, (a, b, c) = _text()
    provide = te.schedule.BuildProvide(schedule[c], te.schedule.InferBound(schedule))
    assert str(provide) == (
        "for x_outer in range(2) {\n"
        '  attr loop_scope on axis(x_outer: int32, "data", "", 0, 2) = x_outer\n'
        "  for x_inner in range(5) {\n"
        '    attr loop_scope on axis(x_inner: int32, "data", "", 0, 5) = x_inner\n'
        "    compute(x_outer * 5 + x_inner) = A(x_outer * 5 + x_inner) + B(x_outer * 5 + x_inner)\n"
        "  }\n"
        "}\n"
    )
    after = tir.Evaluate(1)
    pipeline = te.schedule.MakePipeline(schedule[c], None, after)
    assert isinstance(pipeline, tir.ProducerRealize) and pipeline.producer is c
    assert structural_equal(pipeline.body, tir.stmt_seq(provide, after))
    store = tir.ProducerStore(c, a[0] + b[0], (tir.const(0),))
    nest = [[provide.body.body, provide.body.body.body], tir.AttrStmt("note", tir.const(1), after)]
    merged = te.schedule.MergeNest(nest, store)
    assert [type(x).__name__ for x in (merged, merged.body, merged.body.body)] == ["For", "AttrStmt", "AttrStmt"]
    assert merged.body.body.body is store


def test_what_does_not_hold_is_refused() -> None:
    schedule, (a, b, c) = _text()
    stages = te.schedule.ScheduleOps(schedule, None)
    with pytest.raises(InternalError, match="tensor B belongs to TE; lower it first"):
        tir.verify_stages(stages, [a])
    with pytest.raises(InternalError, match="realized inside itself"):
        tir.verify_stages(stages, [a, b, c])
    wrong = tir.ProducerStore(a, tir.const(1), (tir.const(0),))
    with pytest.raises(TypeMismatch, match="store of int32 into float32 elements of A, in: A\\(0\\) = 1"):
        tir.verify_stages(wrong, [a])
    with pytest.raises(TypeMismatch, match="MergeNest: a Evaluate has no body"):
        te.schedule.MergeNest([tir.Evaluate(0)], wrong)
    with pytest.raises(TypeMismatch, match="the loops use B, which is not among the arguments"):
        te.schedule.SchedulePostProcToPrimFunc([a, c], stages, None)
    with pytest.raises(ParseError, match="tensor A has 1 dimensions, got 2 indices"):
        parse_stmt("A(0, 0) = 1.0", {"A": a})


def test_buffers_can_be_chosen() -> None:
    schedule, (a, b, c) = _text()
    own = tir.decl_buffer((10,), "float32", "own")
    stages = te.schedule.ScheduleOps(schedule, None)
    function = te.schedule.SchedulePostProcToPrimFunc([a, b, c], stages, {a: own})
    assert function.params[0] is own and "own[" in str(function)
