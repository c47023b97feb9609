"""Long lists of cases that compile kernels or networks: with `--draw`, a share of each, drawn anew in every run.

In: the tests of a run, and a seed. Out: those to leave out. Invariant: the seed alone decides, so that processes agree
and a run can be repeated; without `--draw` nothing is left out; a case marked `always` stays. A list is drawn from only
where `LISTS` names it: its cases differ in sizes, types and levels. Lists of defects that were met, of refusals and of
hostile input stay whole. What a share sees, and what runs always: docs/decisions/test-time.md, and 139.
"""

from __future__ import annotations

import bisect
import collections
import random
from collections.abc import Iterable

import pytest

# up to so many cases a third is drawn, then a quarter, then a sixth, and of longer lists a tenth
SIZES, PARTS = (6, 24, 96), (3, 4, 6, 10)
LISTS = (  # beginnings of names of tests
    "tests/codegen/test_fused_products.py",
    "tests/codegen/test_numerics.py",
    "tests/codegen/test_opencl_pixel_dense.py::test_the_numbers_are_those_of_the_cpu",
    "tests/codegen/test_opencl_textures.py",
    "tests/compute/test_acl_oracle.py",
    "tests/compute/test_nn_functions.py",
    "tests/compute/test_nn_types.py",
    "tests/compute/test_opencl_functions.py",
    "tests/compute/test_opencl_oracle.py",
    "tests/compute/test_schedulers.py",
    "tests/driver/test_collapse_rows.py",
    "tests/driver/test_long_chains.py",
    "tests/driver/test_names.py::test_the_runner_sets_inputs_of_any_name",
    "tests/e2e/test_accuracy.py",
    "tests/e2e/test_cross_aarch64.py",
    "tests/e2e/test_cross_armv7.py::test_outputs_equal_those_of_the_host",
    "tests/e2e/test_cross_bytes.py",
    "tests/e2e/test_cross_lanes.py",
    "tests/e2e/test_cross_matrices.py",
    "tests/e2e/test_half_precision.py::test_p",
    "tests/e2e/test_large_operators.py",
    "tests/e2e/test_levels.py",
    "tests/e2e/test_light_networks.py",
    "tests/e2e/test_relay_testing_levels.py",
    "tests/exported/",
    "tests/frontend/test_backend.py::test_c",
    "tests/frontend/test_onnx_recurrent.py",
    "tests/frontend/test_onnx_stress.py",
    "tests/frontend/pytorch/test_torch_models.py",
    "tests/frontend/pytorch/test_torch_opinfo.py",
    "tests/frontend/pytorch/test_torch_script.py::test_recurrent",
    "tests/fuzz/test_relay_graphs.py::test_random_graphs_agree_at_levels_0_and_3",
    "tests/nn/test_windows.py::test_random_windows",
    "tests/ops/test_empty.py::test_empty_tensors_work",
    "tests/ops/test_empty.py::test_passes_and_schedules_work_on_an_axis_of_size_0",
    "tests/ops/test_far_more_taps.py",
    "tests/ops/test_matrix.py::test_compute_",
    "tests/ops/test_open_axes.py::test_an_open_axis_runs",
    "tests/ops/test_opencl_matrix.py",
    "tests/ops/test_suppress_overlaps.py",
    "tests/ops/test_topk.py",
    "tests/ops/test_wide_loops.py",
    "tests/qnn/test_bytes.py",
    "tests/qnn/test_fake_quantization.py::test_a_quantised_operator",
    "tests/qnn/test_qnn.py",
    "tests/relay/test_fuse_depthwise.py::test_values_stay",
    "tests/relay/test_fuse_pool.py",
    "tests/relay/test_graph_passes.py::test_pass_survives_",
    "tests/relay/test_graph_passes.py::test_pipeline_keeps_results_at_every_level",
    "tests/relay/test_grouped_volumes.py",
    "tests/relay/test_large_kernels.py",
    "tests/relay/test_one_number_for_each_axis.py",
    "tests/relay/test_ragged_channels.py",
    "tests/schedules/test_cpu_",
    "tests/schedules/test_opencl_schedules.py::test_a_convolution_with_what_follows",
    "tests/schedules/test_opencl_schedules.py::test_winograd_is_three",
    "tests/tir/test_long_choices.py::test_a_thousand_inputs_are_joined",
)


def chosen(word: str) -> str:
    """The seed that `--draw` names: a fresh one of "fresh"."""
    return str(random.SystemRandom().randrange(1 << 31)) if word == "fresh" else word


def left_out(items: Iterable[pytest.Item], seed: str) -> list[pytest.Item]:
    """The tests that a run with this seed does without."""
    lists = collections.defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.nodeid.startswith(LISTS) and "[" in item.nodeid and item.get_closest_marker("slow") is None:
            lists[item.nodeid.partition("[")[0]].append(item)
    return [item for name, cases in lists.items() for item in _not_drawn(cases, f"{seed} {name}")]


def _not_drawn(cases: list[pytest.Item], seed: str) -> list[pytest.Item]:
    if len(cases) < 3:
        return []
    drawn = [item for item in cases if item.get_closest_marker("always") is None]
    drawn.sort(key=lambda item: item.nodeid)  # whatever the order in which they were collected
    random.Random(seed).shuffle(drawn)
    parts = PARTS[bisect.bisect_left(SIZES, len(cases))]
    return drawn[max(1, round(len(drawn) / parts)) :]
