"""Rows shorter than a vector, rows that are joined, elements that are looked up, and sums across rows."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

from armillary import relay, te
from armillary.backends.cpu.contiguous import axes_of_run, is_looked_up, rows_of_block
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
GATHERS = "llvm -mcpu=sapphirerapids -mtriple=x86_64-linux-gnu"
ARM = "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 CPUs")
TARGETS = ["llvm", pytest.param("llvm -mcpu=haswell", marks=X86), "c"]


def values_of(inputs: Any, rows: int = 9) -> list[Any]:
    """Numbers, and places from -1 on among `rows` where integers are wanted."""
    rng, found = np.random.default_rng(5), []
    for x in inputs:
        dtype, shape = x.checked_type.dtype, x.checked_type.static
        is_float = str(dtype).startswith("float")
        found.append((rng.standard_normal(shape) if is_float else rng.integers(-1, rows, shape)).astype(str(dtype)))
    return found


def check(body: Any, *inputs: Any, target: str = "llvm", rows: int = 9, most: float = 1e-5) -> None:
    """Compiled and evaluated agree, to `most`."""
    function, values = relay.Function(list(inputs), body), values_of(inputs, rows)
    with PassContext(opt_level=3):
        graph = build(function, target)["default"](cpu(0))
    for x, value in zip(inputs, values, strict=True):
        graph.set_input(x.name_hint, value)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(function, values), rtol=most, atol=most)


def source(body: Any, *inputs: Any, target: str = AVX, form: str = "tir") -> str:
    """The text of the kernels."""
    with PassContext(opt_level=3):
        return str(build(relay.Function(list(inputs), body), target).get_source(form))


SIDES = [
    ((20, 64, 7), (7,)),
    ((20, 64, 7), (20, 64, 1)),
    ((20, 64, 7), (20, 1, 7)),
    ((6, 40, 5), (6, 1, 5)),
    ((6, 41, 5), (41, 1)),
    ((30, 3, 7), (30, 3, 1)),
    ((30, 2, 3), (30, 1, 1)),
    ((19, 17, 4), (17, 1)),
    ((9, 2), (9, 1)),
    ((9, 31, 15), (31, 1)),
    ((4, 33, 2, 3), (4, 33, 1, 1)),
    ((5, 1, 3), (5, 70, 1)),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "other"), SIDES)
def test_short_rows_with_a_side_that_is_broadcast(shape: tuple[int, ...], other: tuple[int, ...], target: str) -> None:
    x, y = relay.var("x", shape=shape), relay.var("y", shape=other)
    check(relay.where(relay.less(x, y), relay.exp(x) + y, x * y), x, y, target=target)


def test_short_rows_are_blocks_of_whole_vectors() -> None:
    x, y = relay.var("x", shape=(20, 64, 7)), relay.var("y", shape=(20, 64, 1))
    text = source(relay.power(x, y), x, y)
    assert "fused in range(80)" in text and text.count("pow(") == 7, "sixteen rows are seven vectors"
    assert "insertelement" not in source(x * y, x, y, form="ll")


@pytest.mark.parametrize(
    ("shape", "other", "rows"),
    [
        ((20, 64, 7), (20, 64, 1), 16),
        ((20, 64, 6), (6,), 8),
        ((6, 40, 7), (6, 1, 7), 16),
        ((6, 3, 7), (3, 1), 3),
        ((6, 400, 7), (400, 1), 16),
        ((20, 64, 17), (64, 1), 0),
    ],
)
def test_rows_of_a_block(shape: tuple[int, ...], other: tuple[int, ...], rows: int) -> None:
    other = (1,) * (len(shape) - len(other)) + other
    x, y = te.placeholder(shape, "float32", "x"), te.placeholder(other, "float32", "y")
    made = te.compute(shape, lambda *i: x(*i) + y(*(v if d > 1 else 0 for v, d in zip(i, other, strict=True))))
    schedule = te.create_schedule(made.op)
    assert rows_of_block(schedule, made, axes_of_run(schedule, made), 16) == rows


def test_rows_far_apart_are_no_block() -> None:
    x, y = te.placeholder((64, 100), "float32", "x"), te.placeholder((64, 1), "float32", "y")
    made = te.compute((64, 7), lambda i, j: x(i, j + 3) + y(i, 0))
    schedule = te.create_schedule(made.op)
    assert rows_of_block(schedule, made, 1, 16) == 0, "two rows of the left side are not loaded at once"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("width", [3, 7, 11, 13])
def test_short_rows_out_of_longer_ones(width: int, dtype: str, target: str) -> None:
    x = relay.var("x", shape=(300, 40), dtype=dtype)
    check(relay.strided_slice(x, (0, 2), (300, 2 + width), (1, 1)), x, target=target)
    check(relay.strided_slice(x, (0, width), (300, -41), (1, -1)), x, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("widths", [(36, 1), (1, 36), (18, 19), (49,) * 4, (16, 1), (13, 13), (100, 7, 100), (5, 6)])
def test_rows_that_are_joined(widths: tuple[int, ...], target: str) -> None:
    parts = [relay.var(f"x{k}", shape=(5, 9, width)) for k, width in enumerate(widths)]
    check(relay.sigmoid(relay.concatenate(parts, axis=-1)), *parts, target=target)


def test_rows_are_joined_without_a_question() -> None:
    x, y = relay.var("x", shape=(500, 36)), relay.var("y", shape=(500, 1))
    text = source(relay.concatenate([x, y], axis=1), x, y)
    assert "if" not in text.split("parallel")[1] and text.count("1, 16)] = p0[ramp(") == 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("indices", [(70,), (5, 3), (33, 7), (1, 12), (64,)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_that_are_looked_up(axis: int, indices: tuple[int, ...], target: str) -> None:
    x, i = relay.var("x", shape=(9, 9, 9)), relay.var("i", shape=indices, dtype="int64")
    check(relay.take(x, i, axis=axis, mode="wrap"), x, i, target=target)


def test_a_vector_is_looked_up_at_once_where_that_is_faster() -> None:
    x, i = relay.var("x", shape=(9, 64)), relay.var("i", shape=(32,), dtype="int32")
    body = relay.take(x, i, axis=1)
    assert "llvm.masked.gather.v16f32" in source(body, x, i, target=GATHERS, form="ll")
    for target in (AVX, "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu", ARM):
        assert "gather" not in source(body, x, i, target=target, form="ll"), target


@pytest.mark.parametrize(("target", "has_gathers"), [(GATHERS, True), (AVX, False), (ARM, False)])
def test_which_cpus_gather(target: str, has_gathers: bool) -> None:
    assert cpu_model(target).memory.gathers is has_gathers


def test_rows_that_are_looked_up_whole_are_one_run() -> None:
    """The place of a row is unknown, and the same for all of it."""
    x, i = te.placeholder((50, 12, 7), "float32", "x"), te.placeholder((20,), "int32", "i")
    rows = te.compute((20, 12, 7), lambda n, a, b: x(i(n), a, b))
    assert axes_of_run(te.create_schedule(rows.op), rows) == 2
    assert not is_looked_up(te.create_schedule(rows.op), rows)
    columns = te.compute((50, 12, 20), lambda a, b, n: x(a, b, i(n)))
    assert is_looked_up(te.create_schedule(columns.op), columns)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(37, 384), (3, 29, 96), (50, 196), (5, 40, 17), (64, 80), (2, 300, 33), (90, 8)])
@pytest.mark.parametrize("name", ["sum", "max"])
def test_sums_across_rows(name: str, shape: tuple[int, ...], target: str) -> None:
    x = relay.var("x", shape=shape)
    check(getattr(relay, name)(x, axis=[len(shape) - 2]), x, target=target)


def test_a_row_is_read_in_long_pieces() -> None:
    x = relay.var("x", shape=(1536, 384))
    text = source(relay.max(x, axis=[0]), x)
    assert "in range(6) parallel" in text and 'Buffer[(64,), float32, scope="local"]' in text
    few = relay.var("x", shape=(1536, 96))
    assert "in range(3) parallel" in source(relay.max(few, axis=[0]), few), "threads have tiles to share"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("channels", "size"), [(1, 16), (2, 16), (3, 16), (5, 90)])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_places_of_few_channels(method: str, channels: int, size: int, target: str) -> None:
    x, grid = relay.var("x", shape=(2, channels, size, size)), relay.var("grid", shape=(2, 2, 1, 49))
    sampled = relay.image.grid_sample(x, grid, method, "NCHW", "zeros", False)
    check(sampled, x, grid, target=target, most=2e-4)  # the reference finds places in float64


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("size", [(20, 33), (9, 70), (40, 11), (5, 5)])
def test_antialiased_images(size: tuple[int, int], method: str, target: str) -> None:
    x = relay.var("x", shape=(2, 3, 40, 70))
    check(relay.image.resize2d(x, size, method=method, antialias=True), x, target=target)
