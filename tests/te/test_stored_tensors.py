"""Tensors, operations and schedules as JSON, and schedules as pickles."""

from __future__ import annotations

import contextlib
import json
import pickle

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ArmillaryError, ModelError, UnsupportedError
from armillary.ir import load_json, save_json

RNG = np.random.default_rng(3)


def _run(schedule, arguments, *arrays):
    armillary.build(schedule, arguments)(*arrays)
    return arrays[-1]


def _product():
    k = te.reduce_axis((0, 6), "k")
    a, b = te.placeholder((4, 6), name="a"), te.placeholder((5, 6), name="b")
    c = te.compute((4, 5), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), "c", tag="gemm", attrs={"x": 1, "y": [2, 3]})
    return a, b, te.compute((4, 5), lambda i, j: te.exp(c[i, j]) * 0.5, "d")


def _inputs_of(tensor):
    found, stack = {}, [tensor.op]
    while stack:
        op = stack.pop()
        if isinstance(op, te.PlaceholderOp):
            found[op.name] = op.output(0)
        stack.extend(t.op for t in op.input_tensors)
    return found


def test_loaded_tensor_prints_and_computes_alike():
    *_, d = _product()
    loaded = load_json(save_json(d))
    assert isinstance(loaded, te.Tensor)
    assert str(loaded) == str(d)
    assert save_json(loaded) == save_json(d)
    given = _inputs_of(loaded)
    x, y = RNG.standard_normal((4, 6)).astype("float32"), RNG.standard_normal((5, 6)).astype("float32")
    arguments = [given["a"], given["b"], loaded]
    got = _run(te.create_schedule(loaded.op), arguments, x, y, np.zeros((4, 5), "float32"))
    np.testing.assert_allclose(got, np.exp(x @ y.T) * 0.5, rtol=1e-5)
    source = loaded.op.input_tensors[0].op
    assert (source.tag, source.attrs["x"], list(source.attrs["y"])) == ("gemm", 1, [2, 3])


def test_what_is_read_twice_stays_one():
    a = te.placeholder((3,), name="a")
    b = te.compute((3,), lambda i: a[i] + 1, "b")
    c = te.compute((3,), lambda i: b[i] * b[2 - i], "c")
    loaded = load_json(save_json(c))
    assert len(loaded.op.input_tensors) == 1
    assert len(te.create_schedule(loaded.op).stages) == 3


def test_scan_and_extern_have_a_form():
    m = te.var("m")
    start = te.placeholder((1, m), name="start")
    state = te.placeholder((4, m), name="state")
    first = te.compute((1, m), lambda _, i: start[0, i], "first")
    update = te.compute((4, m), lambda t, i: state[t - 1, i] + 1, "update")
    scan = te.scan(first, update, state)
    loaded = load_json(save_json(scan.op))
    assert isinstance(loaded, te.ScanOp)
    assert loaded.output(0).shape[1].name == "m"

    def double(ins, outs):
        builder = tir.ir_builder.create()
        source, target = builder.buffer_ptr(ins[0]), builder.buffer_ptr(outs[0])
        with builder.for_range(0, 3) as i:
            target[i] = source[i] * 2.0
        return builder.get()

    a = te.placeholder((3,), name="a")
    out = load_json(save_json(te.extern((3,), [a], double, dtype="float32")))
    x = RNG.standard_normal(3).astype("float32")
    got = _run(te.create_schedule(out.op), [_inputs_of(out)["a"], out], x, np.zeros(3, "float32"))
    np.testing.assert_array_equal(got, x * 2)


def _scheduled():
    a, b, d = _product()
    s = te.create_schedule(d.op)
    c = d.op.input_tensors[0]
    local = s.cache_write(d, "local")
    outer, inner = s[d].split(d.op.axis[1], 2)
    s[d].reorder(outer, d.op.axis[0], inner)
    s[local].compute_at(s[d], outer)
    s[c].parallel(c.op.axis[0])
    return s, [a, b, d]


@pytest.mark.parametrize("way", [lambda s: load_json(save_json(s)), lambda s: pickle.loads(pickle.dumps(s))])
def test_loaded_schedule_has_the_same_loops(way):
    s, arguments = _scheduled()
    loaded = way(s)
    assert isinstance(loaded, te.Schedule)
    assert str(loaded) == str(s)
    assert loaded.directives() == s.directives()
    out = loaded.outputs[0].output(0)
    given = _inputs_of(out)
    x, y = RNG.standard_normal((4, 6)).astype("float32"), RNG.standard_normal((5, 6)).astype("float32")
    got = _run(loaded, [given["a"], given["b"], out], x, y, np.zeros((4, 5), "float32"))
    np.testing.assert_array_equal(got, _run(s, arguments, x, y, np.zeros((4, 5), "float32")))


def test_expressions_and_numbers_keep_their_types():
    x = te.var("x", "float32")
    item = te.if_then_else(x > 0.0, x * float("inf"), tir.const(3, "int8").astype("float32"))
    loaded = load_json(save_json(item))
    assert str(loaded) == str(item)
    assert loaded.dtype == "float32"
    axis = load_json(save_json(te.reduce_axis((2, 9), "r")))
    assert (int(axis.dom.min), int(axis.dom.extent), axis.kind) == (2, 7, "reduce")


def test_tensor_intrinsics_have_no_form():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1, "b")
    intrinsic = te.decl_tensor_intrin(b.op, lambda ins, outs: tir.Evaluate(0), "nothing")
    s = te.create_schedule(b.op)
    s[b].tensorize(b.op.axis[0], intrinsic)
    with pytest.raises(UnsupportedError, match="a schedule with tensor intrinsics has no JSON form"):
        save_json(s)


def test_damaged_text_is_refused():
    text = save_json(_product()[2])
    content = json.loads(text)
    with pytest.raises(ModelError, match="version 1"):
        load_json(json.dumps(content | {"version": 2}))
    with pytest.raises(ModelError, match="names the node"):
        load_json(json.dumps(content | {"root": 10**6}))
    rng = np.random.default_rng(7)
    for _ in range(300):  # a value somewhere becomes another one
        damaged = json.loads(text)
        row = damaged["nodes"][rng.integers(len(damaged["nodes"]))]
        key = list(row)[rng.integers(len(row))]
        row[key] = [None, -1, "x", [], {"ref": 0}, {"dtype": "int7"}, {"float": "y"}, {"a": 1, "b": 2}][rng.integers(8)]
        with contextlib.suppress(ArmillaryError):  # any other error fails the test
            load_json(json.dumps(damaged))
