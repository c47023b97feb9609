"""Spaces count their points as Relay-era logs do; tasks find their templates, count operations, use records."""

from __future__ import annotations

import numpy as np
import pytest
import templates  # noqa: F401  (registers templates)

import armillary
from armillary import autotvm, te
from armillary.autotvm.errors import InstantiationError, TuningError
from armillary.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from armillary.autotvm.task.transforms import OtherOptionEntity, SplitEntity


def matmul_task(n: int = 64) -> autotvm.Task:
    return autotvm.task.create("test/matmul", (n, n, n, "float32"), "llvm")


def test_the_first_knob_counts_fastest() -> None:
    space = ConfigSpace()
    space.define_split("tile", 12, num_outputs=3)
    space.define_knob("unroll", [0, 1, 2])
    sizes = [entity.size for entity in space.space_map["tile"]]
    assert sizes[:7] == [(-1, 1, 1), (-1, 2, 1), (-1, 3, 1), (-1, 4, 1), (-1, 6, 1), (-1, 12, 1), (-1, 1, 2)]
    assert len(sizes) == 18 and len(space) == 54
    assert (space.get(7)["tile"].size, space.get(7)["unroll"].val) == ((-1, 2, 2), 0)
    assert (space.get(18 + 7)["tile"].size, space.get(18 + 7)["unroll"].val) == ((-1, 2, 2), 1)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"policy": "power2", "num_outputs": 2}, [(-1, 1), (-1, 2), (-1, 4), (-1, 8)]),
        ({"policy": "factors", "num_outputs": 2, "max_factor": 5}, [(-1, 1), (-1, 2), (-1, 5)]),
        ({"policy": "verbose", "num_outputs": 2}, [(-1, 1), (-1, 2), (-1, 4), (-1, 5), (-1, 8), (-1, 10)]),
        ({"policy": "verbose", "num_outputs": 2, "no_tail": True}, [(-1, 1), (-1, 2), (-1, 5), (-1, 10)]),
        ({"policy": "candidate", "num_outputs": 3, "candidate": [[1, 2, 5], [5, 2, 1]]}, [(1, 2, 5), (5, 2, 1)]),
        ({"num_outputs": 2, "filter": lambda e: e.size[-1] > 2}, [(-1, 5), (-1, 10)]),
    ],
)
def test_split_policies_list_their_sizes(options: dict[str, object], sizes: list[tuple[int, ...]]) -> None:
    space = ConfigSpace()
    space.define_split("tile", 10, **options)  # type: ignore[arg-type]
    assert sorted(e.size for e in space.space_map["tile"]) == sorted(sizes)


def test_orders_and_annotations_are_listed() -> None:
    space = ConfigSpace()
    y, x, k = space.axis(4), space.axis(5), space.reduce_axis(6)
    space.define_reorder("order", [y, x, k], "candidate", candidate=[[y, k, x], [k, y, x]])
    space.define_reorder("all", [y, x, k], "interval_all", interval=(1, 3))
    space.define_annotate("ann", [y, x], "try_unroll_vec")
    space.define_annotate("threads", [y, x, k], "bind_gpu")
    assert [e.perm for e in space.space_map["order"]] == [(0, 2, 1), (2, 0, 1)]
    assert [e.perm for e in space.space_map["all"]] == [(0, 1, 2), (0, 2, 1)]
    assert len(space.space_map["ann"]) == 8  # nine pairs without (vec, vec)
    assert space["threads"].anns == ("fuse", "blockIdx.x", "threadIdx.x")


def test_interleaving_takes_the_longest_chain_first() -> None:
    space = ConfigSpace()
    axes = [space.axis(n) for n in range(1, 8)]
    f0, f1, f2, y0, y1, c0, c1 = axes
    space.define_reorder("order", axes, "interleave", spatial=[[f0, f1, f2], [y0, y1]], reduce=[[c0, c1]])
    assert [e.perm for e in space.space_map["order"]] == [(0, 1, 3, 5, 2, 4, 6)]


def test_a_filter_leaves_out_points_and_len_counts_the_rest() -> None:
    space = ConfigSpace()
    space.define_split("a", 8, num_outputs=2)
    space.define_split("b", 8, num_outputs=2)
    space.multi_filter(lambda cfg: cfg["a"].size[-1] * cfg["b"].size[-1] <= 4)
    assert (len(space), space.range_length) == (6, 16)
    assert space.is_index_valid(0) and not space.is_index_valid(15)
    drawn = space.sample_ints(10, np.random.default_rng(0))
    assert sorted(drawn) == list(space.valid_indices())
    with pytest.raises(TuningError, match="configuration 15 is not one of the space"):
        space.get(15)


def test_a_configuration_survives_its_json() -> None:
    space = ConfigSpace()
    y, x = space.axis(8), space.axis(8)
    space.define_split("tile", y, num_outputs=2)
    space.define_reorder("order", [y, x], "all")
    space.define_annotate("ann", [y, x], "try_vec")
    space.define_knob("unroll", [False, "auto", 16])
    for index in range(len(space)):
        made = space.get(index)
        again = ConfigEntity.from_json_dict(made.to_json_dict())
        assert again == made and space.index_of(again.entity_map) == index
        assert np.isfinite(made.get_flatten_feature()).all()


def test_a_configuration_of_another_space_is_refused_by_the_knob() -> None:
    space = ConfigSpace()
    space.define_split("tile", 8, num_outputs=2)
    with pytest.raises(TuningError, match=r"the knob 'tile' cannot be \[-1, 3\]"):
        space.index_of({"tile": SplitEntity((-1, 3))})
    with pytest.raises(InstantiationError, match="has no knob 'tile', which the template defines"):
        ConfigEntity(0, None, {"other": OtherOptionEntity(1)}).define_split("tile", 8, num_outputs=2)


def test_a_fallback_split_takes_the_largest_factors_from_the_inside() -> None:
    for length, wanted in ((128, [4, 8, 4]), (49, [7, 7, 1])):
        config = FallbackConfigEntity()
        config.define_split("tile", length, num_outputs=3)
        config.fallback_split("tile", [-1, 8, 4])
        assert config["tile"].size == wanted


def test_a_task_knows_its_workload_its_space_and_its_operations() -> None:
    task = matmul_task()
    assert task.workload == ("test/matmul", 64, 64, 64, "float32")
    assert len(task.config_space) == 49 and task.flop == 2 * 64**3


def test_a_template_is_found_by_name_or_close_ones_are_told() -> None:
    with pytest.raises(TuningError, match=r"there is no template 'test/matmull'\n  hint: did you mean 'test/matmul'"):
        autotvm.task.create("test/matmull", (8, 8, 8, "float32"), "llvm")


def test_operations_that_cannot_be_counted_must_be_stated() -> None:
    @autotvm.template("test/no_flop")
    def copied(n: int) -> object:
        x = te.placeholder((n,), name="x")
        y = te.compute((n,), lambda i: x[i], name="y")
        return te.create_schedule(y.op), [x, y]

    with pytest.raises(TuningError, match="Cannot find float number operation"):
        autotvm.task.create("test/no_flop", (4,), "llvm")


def test_a_compute_and_a_schedule_share_the_configuration() -> None:
    seen = []

    @autotvm.register_topi_compute("test/double.cpu")
    def double(cfg: ConfigSpace, x: te.Tensor) -> te.Tensor:
        cfg.define_split("tile", x.shape[0], num_outputs=2)
        return te.compute(x.shape, lambda i: x[i] * 2.0, name="double")

    @autotvm.register_topi_schedule("test/double.cpu")
    def schedule(cfg: ConfigSpace, outs: list[te.Tensor]) -> te.Schedule:
        seen.append(cfg["tile"].size)
        s = te.create_schedule([t.op for t in outs])
        cfg["tile"].apply(s, outs[0], outs[0].op.axis[0])
        return s

    x = te.placeholder((16,), name="x")
    task = autotvm.task.create("test/double.cpu", (x,), "llvm")
    assert task.workload == ("test/double.cpu", ("TENSOR", (16,), "float32")) and len(task.config_space) == 5
    task.instantiate(task.config_space.get(3))
    with autotvm.ApplyConfig(task.config_space.get(4)), armillary.target.Target("llvm"):
        schedule(double(x))  # type: ignore[call-arg, arg-type]  # without cfg, as users call them
    assert seen[1:] == [(-1, 8), (-1, 16)]


def test_get_config_outside_a_template_is_one_to_fall_back_on() -> None:
    config = autotvm.get_config()
    config.define_split("tile", 49, num_outputs=2)
    config.fallback_split("tile", [-1, 8])  # type: ignore[attr-defined]
    assert config.is_fallback and config["tile"].size == [7, 7]


def test_a_template_says_what_a_knob_is_otherwise() -> None:
    config = FallbackConfigEntity()
    config.define_split("tile", 64, num_outputs=2)
    config.define_knob("unroll", [False, True])
    config.define_otherwise("tile", [-1, 16])
    config.define_otherwise("unroll", True)
    assert config["tile"].size == (-1, 16) and config["unroll"].val is True
    with pytest.raises(TuningError, match=r"the knob 'tile' cannot be \[-1, 3\]"):
        config.define_otherwise("tile", [-1, 3])
    space = autotvm.ConfigSpace()
    space.define_knob("unroll", [False, True])
    space.define_otherwise("unroll", True)
    assert len(space) == 2 and space["unroll"].val is False
