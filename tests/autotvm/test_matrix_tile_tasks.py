"""What matrix tiles (AMX) compute are tasks: blocks are chosen by records, and each gives the same sums.

The loops run in the interpreter, so the tests need no processor that has tiles.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.measure.trial import random_input
from armillary.driver.build import optimized
from armillary.ir import IRModule
from armillary.relay.expr import const
from armillary.target import Target
from armillary.tir.interpreter import interpret
from armillary.transform import PassContext

TARGET = Target("llvm -mcpu=sapphirerapids -mtriple=x86_64-linux-gnu")
ROWS, TERMS, UNITS = 40, 128, 96
RNG = np.random.default_rng(8)
BYTES = RNG.integers(0, 255, (ROWS, TERMS), dtype="uint8"), RNG.integers(-128, 127, (UNITS, TERMS), dtype="int8")


def product() -> IRModule:
    """A product of bytes with constant weights."""
    x, one, zero = relay.var("x", shape=(ROWS, TERMS), dtype="uint8"), const(np.float32(1)), const(np.int32(0))
    return IRModule.from_expr(relay.Function([x], relay.qnn.dense(x, const(BYTES[1]), zero, zero, one, one)))


def the_task() -> autotvm.Task:
    (task,) = autotvm.task.extract_from_program(product(), target=TARGET)
    return task


def test_panels_are_the_space_and_the_first_is_the_builds_own() -> None:
    task = the_task()
    assert task.name == "dense_pack.cpu" and len(task.config_space) >= 4
    ranked = [task.config_space.get(index) for index, _ in task.template.estimates(task)]
    assert len({(c["rows"].val, c["vectors"].val) for c in ranked}) == len(ranked)
    with PassContext(opt_level=3):
        (text,) = re.findall(r'choice="([^"]*)"', str(optimized(product(), TARGET, {})))
    first = ranked[0]
    wanted = f"gemm.matrix_tiles rows={first['rows'].val} vectors={first['vectors'].val} lines={first['lines'].val} | "
    assert text.startswith(wanted), text


def test_a_record_chooses_the_panel_of_a_build() -> None:
    task = the_task()
    for index, _ in task.template.estimates(task):
        config = task.config_space.get(index)
        pair = MeasureInput(task.target, task, config), MeasureResult((1e-5,), 0, 1.0, 1.0)
        with autotvm.apply_history_best([pair]), PassContext(opt_level=3):
            (text,) = re.findall(r'choice="([^"]*)"', str(optimized(product(), TARGET, {})))
        knobs = " ".join(f"{name}={config[name].val}" for name in ("rows", "vectors", "lines"))
        assert text.startswith(f"gemm.matrix_tiles {knobs} | ") and " | by record | " in text


@pytest.mark.parametrize("kind", ["bytes", "bfloat16"])
def test_every_panel_gives_the_same_sums(kind: str) -> None:
    task = the_task()
    data: Any = BYTES[0]
    weight: Any = BYTES[1]
    if kind == "bfloat16":
        data, weight = (RNG.normal(size=x.shape).astype(ml_dtypes.bfloat16) for x in BYTES)
        types = [("TENSOR", (ROWS, TERMS), kind), ("TENSOR", (UNITS // 16, TERMS // 2, 16, 2), kind)]
        task = autotvm.task.create("dense_pack.cpu", (*types, "NC16n2c", "float32"), TARGET)
    width = 64 // 16 if kind == "bytes" else 2
    packed = weight.reshape(UNITS // 16, 16, TERMS // width, width).transpose(0, 2, 1, 3)
    wide = "int32" if kind == "bytes" else "float64"
    wanted = data.astype(wide) @ weight.astype(wide).T
    panels = set()
    for index, _ in task.template.estimates(task):
        config = task.config_space.get(index)
        with TARGET:
            function = task.template.loops(task, config)
        sums = np.zeros((ROWS, UNITS), "int32" if kind == "bytes" else "float32")
        interpret(function, data, np.ascontiguousarray(packed), sums)
        np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-3)
        panels.add(str(function))
    assert len(panels) == len(task.config_space), "each configuration makes loops of its own"


def convolution(size: int) -> IRModule:
    """A convolution of bytes, whose rows are shorter than a tile, or longer."""
    x, one, zero = relay.var("x", shape=(1, 64, size, size), dtype="uint8"), const(np.float32(1)), const(np.int32(0))
    weight = const(RNG.integers(-128, 127, (64, 64, 3, 3), dtype="int8"))
    options = {"padding": (1, 1), "kernel_size": (3, 3), "channels": 64}
    return IRModule.from_expr(relay.Function([x], relay.qnn.conv2d(x, weight, zero, zero, one, one, **options)))


@pytest.mark.parametrize("size", [7, 20])
def test_every_block_of_a_convolution_gives_the_same_and_a_record_chooses_it(size: int) -> None:
    module = convolution(size)
    (task,) = autotvm.task.extract_from_program(module, target=TARGET)
    assert task.name == "conv2d_NCHWc_int8.cpu" and len(task.config_space) >= 4
    (_, shape, dtype), (_, packed, kind) = task.args[:2]
    data, weight = random_input(0, shape, dtype, 3), random_input(1, packed, kind, 0)
    wanted, loops = task.template.reference(task)(3)[0], set()
    for index, _ in task.template.estimates(task):
        config = task.config_space.get(index)
        with TARGET:
            function = task.template.loops(task, config)
        loops.add(str(function))
        sums = np.zeros(wanted.shape, wanted.dtype)
        interpret(function, data, weight, sums)
        np.testing.assert_array_equal(sums, wanted)
        pair = MeasureInput(task.target, task, config), MeasureResult((1e-5,), 0, 1.0, 1.0)
        with autotvm.apply_history_best([pair]), PassContext(opt_level=3):
            (text,) = re.findall(r'choice="([^"]*)"', str(optimized(module, TARGET, {})))
        knobs = " ".join(f"{name}={config[name].val}" for name in ("rows", "vectors", "lines"))
        assert text.startswith(f"conv2d.matrix_tiles {knobs} | ") and " | by record | " in text
    assert len(loops) == len(task.config_space), "each configuration makes loops of its own"
