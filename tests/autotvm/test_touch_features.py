"""Features of loops as scripts read them: the numbers of a product, counted by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from armillary import autotvm, te
from armillary.autotvm import feature
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult

Product = tuple[te.Schedule, list[te.Tensor], list[te.IterVar]]


def product(size: int = 128) -> Product:
    k = te.reduce_axis((0, size), "k")
    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    c = te.compute((size, size), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C")
    schedule = te.create_schedule(c.op)
    return schedule, [a, b, c], [*schedule[c].op.axis, k]


def test_each_loop_says_how_it_walks_through_each_buffer() -> None:
    schedule, tensors, _ = product()
    y, x, k = feature.get_itervar_feature(schedule, tensors)
    serial = [0.0] * 9 + [1.0, 0.0]
    assert y[1] == ["_attr_", 128, 1, 128, 128**3, *serial]
    assert y[3:] == [
        ["A_0", 128, -1, 128**2, 128, 0, 0],
        ["B_0", 0, -1, 128**2, 128, 0, 0],
        ["C_0", 128, -1, 128**2, 128, 0, 0],
        ["C_1", 128, -1, 128**2, 128, 0, 0],
    ]
    assert x[1][:5] == ["_attr_", 128, 2, 128**2, 128**2] and x[4] == ["B_0", 1, -1, 128**2, 1, 0, 0]
    assert k[2] == ["_arith_", 1, 1, 0] and y[2] == ["_arith_", 0, 0, 0]
    assert k[3:5] == [["A_0", 1, -1, 128, 1, 0, 0], ["B_0", 128, -1, 128, 1, 0, 0]]
    names = feature.get_flatten_name([y, x, k])
    assert names[:2] == ["f0.y._attr_.length", "f1.y._attr_.nest_level"] and names[-1].endswith("k.C_1.T_reuse")
    assert len(names) == len(feature.flatten_itervar_feature([y, x, k]))
    logarithms = feature.get_itervar_feature_flatten(schedule, tensors)
    assert logarithms[0] == pytest.approx(np.log2(129))


def test_a_group_of_threads_says_what_it_has_to_each() -> None:
    schedule, tensors, (y, x, _) = product(64)
    stage = schedule[tensors[2]]
    stage.bind(y, te.thread_axis("blockIdx.x"))
    stage.bind(x, te.thread_axis("threadIdx.x"))
    group, thread, loop = feature.get_itervar_feature(schedule, tensors)
    assert group[1][5:] == [1.0] + [0.0] * 10 and thread[1][5:].index(1.0) == 3
    assert group[3] == ["A_0", 64, -1, 64 * 64, 64, 64, 1], "64 times the elements that a thread reads"
    assert thread[4] == ["B_0", 1, -1, 64 * 64, 1, 64, 1] and loop[3][5:] == [0, 0]


def test_every_order_of_the_loops_has_as_many_numbers() -> None:
    lengths = set()
    for order in itertools.permutations(range(3)):
        schedule, tensors, axes = product(16)
        schedule[tensors[2]].reorder(*(axes[place] for place in order))
        lengths.add(len(feature.get_itervar_feature_flatten(schedule, tensors)))
    assert len(lengths) == 1


def test_curves_are_sampled_for_the_last_access_of_each_buffer() -> None:
    schedule, tensors, _ = product()
    curves = feature.get_buffer_curve_sample_flatten(schedule, tensors, sample_n=30).reshape(3, 4, 30, 2)
    elements, iterations = curves[0, 3, :, 0], curves[0, 2, :, 0]  # of A: by iterations, and the other way around
    assert elements[0] == 0 and elements[-1] == 14 and iterations[-1] == 21
    assert (np.diff(elements) >= 0).all()


def test_a_line_of_a_log_has_names(tmp_path: Path) -> None:
    @autotvm.template("touch_features_product")
    def split_product(size: int) -> tuple[te.Schedule, list[te.Tensor]]:
        schedule, tensors, (_, x, _) = product(size)
        config = autotvm.get_config()
        config.define_split("tile_x", x, num_outputs=2)
        config["tile_x"].apply(schedule, tensors[2], x)
        return schedule, tensors

    task = autotvm.task.create("touch_features_product", [8], "llvm")
    pair = MeasureInput(task.target, task, task.config_space.get(1)), MeasureResult((0.1,), 0, 0.1, 0.0)
    names = feature.get_flatten_name(autotvm.record.encode(*pair))
    assert "f0.y._attr_.length" in names and any(".x.outer." in name or ".x_outer." in name for name in names)
    with pytest.raises(TuningError, match="the line is empty or a comment"):
        feature.get_flatten_name("# nothing")
