"""Elementwise kernels: axes that are one run in memory are one loop, whatever their lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay, te
from armillary.backends.cpu.contiguous import axes_of_run
from armillary.backends.cpu.elementwise.default import schedule_stage
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.relay.op import get_op
from armillary.runtime import cpu
from armillary.target.cpu import cpu_model
from armillary.te.lower import lower_schedule
from armillary.tir.lower import lower_function
from armillary.transform import PassContext

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"


def check(body: Any, *inputs: Any) -> None:
    """Compiled and evaluated agree."""
    function = relay.Function(list(inputs), body)
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(x.checked_type.static).astype("float32") for x in inputs]
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    for x, value in zip(inputs, values, strict=True):
        graph.set_input(x.name_hint, value)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(function, values), rtol=1e-5, atol=1e-6)


SIDES = [
    ((300, 30, 1), (300, 30, 1)),
    ((64, 5, 3, 3), (64, 1, 1, 1)),
    ((64, 5, 3, 3), (5, 3, 3)),
    ((7, 1, 9, 1), (7, 1, 9, 1)),
    ((40, 7, 7), (40, 7, 1)),
    ((4, 3, 50), (4, 3, 1)),
    ((128, 128, 3, 3), (128, 1, 1, 1)),
]


@pytest.mark.parametrize(("shape", "other"), SIDES)
def test_maps_of_short_rows(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    x, y = relay.var("x", shape=shape), relay.var("y", shape=other)
    check(relay.tanh(x * y) + x, x, y)


@pytest.mark.parametrize(
    ("shape", "other", "count"),
    [
        ((8, 5, 3, 3), (8, 5, 3, 3), 4),
        ((8, 5, 3, 3), (8, 1, 1, 1), 3),
        ((8, 5, 3, 3), (8, 5, 1, 3), 1),
        ((8, 30, 1), (8, 30, 1), 3),
        ((8, 30, 1), (8, 1, 1), 2),
        ((8, 1, 3), (1, 1, 3), 2),
    ],
)
def test_a_run_ends_where_a_reader_is_broadcast(shape: tuple[int, ...], other: tuple[int, ...], count: int) -> None:
    x, y = te.placeholder(shape, "float32", "x"), te.placeholder(other, "float32", "y")
    made = te.compute(shape, lambda *i: x(*i) + y(*(v if d > 1 else 0 for v, d in zip(i, other, strict=True))))
    assert axes_of_run(te.create_schedule(made.op), made) == count


def test_a_run_of_several_axes_is_stored_by_whole_vectors() -> None:
    """Scaled weights of 3x3: an index over three fused axes is simple again."""
    x, y = te.placeholder((128, 128, 3, 3), "float32", "x"), te.placeholder((128,), "float32", "y")
    made = te.compute(x.shape, lambda o, *i: x(o, *i) * y(o), name="z")
    schedule = te.create_schedule(made.op)
    schedule_stage(schedule, made, cpu_model(AVX))
    text = str(lower_function(lower_schedule(schedule, [x, y, made], "f")))
    assert "fused * 16, 1, 16)] = x[ramp(" in text


@pytest.mark.parametrize("mode", ["reflect", "edge", "symmetric", "wrap"])
@pytest.mark.parametrize("pads", [(3, 2), (1, 0), (0, 5)])
def test_borders_of_long_rows(mode: str, pads: tuple[int, int]) -> None:
    x = relay.var("x", shape=(2, 6, 53))
    check(relay.nn.pad(x, ((0, 0), (2, 1), pads), 0.0, mode), x)


def test_a_mirrored_row_is_copied_by_vectors_inside() -> None:
    pad = get_op("nn.pad")
    assert pad.compute_rule is not None
    x = te.placeholder((8, 100), "float32", "x")
    made = pad.compute_rule(pad.make_attrs((), {"pad_width": ((0, 0), (2, 3)), "pad_mode": "reflect"}), x)
    schedule = te.create_schedule(made.op)
    schedule_stage(schedule, made, cpu_model(AVX))
    assert "= x[ramp(" in str(lower_function(lower_schedule(schedule, [x, made], "f")))


@pytest.mark.parametrize("times", [2, 3, 4, 5, 8, 16, 32])
@pytest.mark.parametrize("width", [1, 5, 16, 37])
def test_rows_whose_elements_are_repeated(width: int, times: int) -> None:
    x = relay.var("x", shape=(3, width))
    check(relay.repeat(x, times, axis=1), x)
    check(relay.repeat(relay.repeat(x, times, axis=1), 2, axis=0) * relay.const(np.float32(3)), x)


@pytest.mark.parametrize("shape", [(3, 2), (3, 3), (5, 4), (4, 8), (3, 16), (5, 100), (2, 48), (7, 1), (3, 65)])
@pytest.mark.parametrize("reps", [(1, 2), (3, 7), (2, 16), (2, 1)])
def test_tiles(shape: tuple[int, int], reps: tuple[int, int]) -> None:
    x = relay.var("x", shape=shape)
    check(relay.tanh(relay.tile(x, reps)), x)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, -1, -2, -3])
@pytest.mark.parametrize("width", [1, 16, 50, 131])
def test_rows_read_with_a_step(width: int, step: int) -> None:
    x = relay.var("x", shape=(5, width))
    begin, end = ((0, 0), (5, width)) if step > 0 else ((0, width - 1), (5, -width - 1))
    check(relay.strided_slice(x, begin, end, (1, step)), x)


def test_a_repeated_row_is_loaded_once_and_shuffled() -> None:
    """No lane is loaded by itself: eight elements make a vector of sixteen."""
    x = relay.var("x", shape=(8, 64))
    with PassContext(opt_level=3):
        text = build(relay.Function([x], relay.repeat(x, 2, axis=1)), AVX).get_source("ll")
    assert "load <8 x float>" in text and "insertelement" not in text


def test_a_row_that_starts_over_is_loaded_by_vectors() -> None:
    x = relay.var("x", shape=(8, 100))
    with PassContext(opt_level=3):
        text = build(relay.Function([x], relay.tile(x, (1, 3))), AVX).get_source("ll")
    assert "load <16 x float>" in text and "insertelement" not in text


@pytest.mark.parametrize("widths", [(4, 80), (2, 2, 81), (1, 1, 1, 1), (16, 5), (33, 31), (100, 7, 100), (3,) * 11])
def test_rows_of_parts(widths: tuple[int, ...]) -> None:
    parts = [relay.var(f"x{k}", shape=(3, 9, width)) for k, width in enumerate(widths)]
    joined = relay.concatenate([relay.tanh(parts[0]), *parts[1:]], axis=-1)
    check(relay.maximum(joined, relay.const(np.float32(-0.3))), *parts)


def test_parts_of_a_row_are_copied_by_vectors() -> None:
    x, y = relay.var("x", shape=(9, 4)), relay.var("y", shape=(9, 80))
    with PassContext(opt_level=3):
        text = build(relay.Function([x, y], relay.concatenate([x, y], axis=1)), AVX).get_source("tir")
    assert "if_then_else" not in text and "1, 12)]" in text and "for i1_inner" not in text


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("size", [(18, 74), (27, 50), (9, 75), (5, 16), (40, 37)])
def test_images_resized_by_blending_rows(size: tuple[int, int], method: str) -> None:
    x = relay.var("x", shape=(2, 3, 9, 37))
    check(relay.tanh(relay.image.resize2d(x, size, method=method)), x)


def test_blended_rows_are_made_once_and_then_read() -> None:
    x = relay.var("x", shape=(1, 2, 9, 37))
    with PassContext(opt_level=3):
        text = build(relay.Function([x], relay.image.resize2d(x, (18, 74))), AVX).get_source("tir")
    assert text.count("alloc ") == 1 and "Buffer[(37,), float32]" in text


@pytest.mark.parametrize("mode", ["reflect", "edge", "symmetric", "wrap", "constant"])
@pytest.mark.parametrize("shape", [(1, 700), (3, 40), (2, 5, 33), (20, 7), (4, 128)])
def test_rows_with_borders(shape: tuple[int, ...], mode: str) -> None:
    x = relay.var("x", shape=shape)
    for before, after in ((3, 3), (0, 5), (6, 0), (16, 6)):
        width = [(0, 0)] * (len(shape) - 1) + [(min(before, shape[-1] - 1), min(after, shape[-1] - 1))]
        check(relay.nn.pad(x, pad_width=width, pad_mode=mode), x)


def test_blended_rows_of_which_two_results_are_made() -> None:
    x = relay.var("x", shape=(1, 2, 9, 37))
    places = relay.const(np.repeat(np.arange(37), 2)[1:-1].astype("int32"))
    rows = x * relay.const(np.float32(0.5)) + relay.reverse(x, axis=2) * relay.const(np.float32(0.25))
    found = relay.take(rows, places, axis=3) - relay.take(rows, relay.const(np.arange(72, dtype="int32") // 2), axis=3)
    check(relay.concatenate([relay.tanh(found), found], axis=0), x)
    function = relay.Function([x], relay.Tuple([relay.tanh(found), relay.exp(found), found]))
    value = np.random.default_rng(3).standard_normal((1, 2, 9, 37)).astype("float32")
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    graph.set_input("x", value)
    graph.run()
    for k, wanted in enumerate(evaluate(function, [value])):
        np.testing.assert_allclose(graph.get_output(k).numpy(), wanted, rtol=1e-5, atol=1e-6)


def gate(x: Any, y: Any) -> Any:
    z = relay.sigmoid(x)
    return z * y + (relay.const(1.0) - z) * x


def swish_of_swish(x: Any, y: Any) -> Any:
    z = x * relay.sigmoid(y)
    return z * relay.sigmoid(z)


def turned(x: Any, y: Any) -> Any:
    z = relay.exp(x)
    return z * y + relay.reverse(z, axis=1)


@pytest.mark.parametrize(("body", "stores"), [(gate, False), (swish_of_swish, True), (turned, True)])
def test_dear_element_is_stored_unless_one_statement_reads_it_in_place(body: Any, stores: bool) -> None:
    x, y = relay.var("x", shape=(40, 64)), relay.var("y", shape=(40, 64))
    check(body(x, y), x, y)
    library = build(relay.Function([x, y], body(x, y)), AVX)
    assert len(library.kernels) == 1 and ("alloc " in library.get_source("tir")) == stores
    assert library.get_source("ll").count("call <16 x float> @armillary_") == (2 if body is swish_of_swish else 1)


@pytest.mark.parametrize("sizes", [(1, 12, 20), None])
def test_blocked_channels_are_brought_last_by_whole_vectors(sizes: tuple[int, int, int] | None) -> None:
    """By way of plain channels would be two transpositions through memory."""
    n, h, w = sizes or (te.var("n"), te.var("h"), te.var("w"))
    x = relay.var("x", shape=(n, 10, h, w, 16))
    last = relay.transpose(relay.layout_transform(x, "NCHW16c", "NCHW"), axes=[0, 2, 3, 1])
    with PassContext(opt_level=3):
        text = build(relay.Function([x], last), AVX).get_source("tir")
    assert "alloc " not in text and text.count("] = p0[ramp(") == 1
    if sizes:
        check(last, x)
