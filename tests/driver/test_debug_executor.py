"""The debug executor: values and times of single nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.artifact import load_params
from armillary.contrib import debug_executor
from armillary.errors import ExecutionError, TypeMismatch


@pytest.fixture
def library() -> Any:
    x = relay.var("x", shape=(4, 8))
    y = relay.nn.softmax(relay.exp(x) * relay.const(2.0))
    with armillary.transform.PassContext(opt_level=0):
        return relay.build(relay.Function([x], y), "llvm")


def test_profile_times_every_kernel_of_the_run(library: Any) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    report = module.profile(x=np.ones((4, 8), "float32"))
    assert len(list(report)) == 3
    assert all(row.seconds >= 0 for row in report)
    assert "total" in str(report)
    assert len(module.run_individual(2)) == module.module.num_nodes()


def test_a_node_value_is_what_the_reference_says(library: Any) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    x = np.random.default_rng(0).random((4, 8), dtype="float32")
    module.set_input("x", x)
    out = armillary.nd.empty((4, 8))
    module.debug_get_output(1, out)
    np.testing.assert_allclose(out.numpy(), np.exp(x), rtol=1e-5)
    with pytest.raises(ExecutionError, match="no node 'nothing'"):
        module.debug_get_output("nothing", out)


def test_a_dump_holds_every_value_and_the_trace(library: Any, tmp_path: Path) -> None:
    module = debug_executor.create(library.get_graph_json(), library.module, armillary.cpu(0), str(tmp_path))
    module.set_input("x", np.zeros((4, 8), "float32"))
    module.set_input(**library.get_params())
    module.run()
    values = load_params((tmp_path / "outputs.params").read_bytes())
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [row["name"] for row in trace] == list(values)
    np.testing.assert_allclose(list(values.values())[-1], np.full((4, 8), 1 / 8), rtol=1e-5)


def test_a_graph_is_created_from_the_three_parts_of_a_build(library: Any) -> None:
    with pytest.warns(DeprecationWarning, match="old form"):
        graph, lib, params = library
    module = armillary.contrib.graph_executor.create(graph, lib, armillary.cpu(0))
    module.set_input(**params)
    module.run(x=np.zeros((4, 8), "float32"))
    np.testing.assert_allclose(module.get_output(0).numpy(), np.full((4, 8), 1 / 8), rtol=1e-5)
    with pytest.raises(TypeMismatch, match="needs a library of compiled functions, got str"):
        armillary.contrib.graph_executor.create(graph, "lib.so", armillary.cpu(0))


def test_outputs_are_found_by_short_names_and_ambiguous_ones_are_listed(library: Any) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    module.set_input("x", np.ones((4, 8), "float32"))
    names = [module.module.node(i)[0] for i in range(module.module.num_nodes())]
    np.testing.assert_allclose(module.debug_get_output(names[-1]).numpy(), np.full((4, 8), 1 / 8), rtol=1e-5)
    assert len({name.rpartition("#")[0] for name in names[1:]}) == 1
    with pytest.raises(ExecutionError, match=r"3 nodes are called 'node'\n.*say which: node#1"):
        module.debug_get_output("node")


def test_every_output_of_a_node_is_dumped(tmp_path: Path) -> None:
    x = relay.var("x", shape=(4, 6))
    parts = relay.split(relay.exp(x), 3, axis=1)
    library = relay.build(relay.Function([x], relay.Tuple(tuple(parts))), "llvm")
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)), dump_root=str(tmp_path / "dump"))
    data = np.random.default_rng(1).random((4, 6), dtype="float32")
    module.run(x=data)
    values = load_params((tmp_path / "dump" / "outputs.params").read_bytes())
    thirds = [v for v in values.values() if v.shape == (4, 2)]
    for k, want in enumerate(np.split(np.exp(data), 3, axis=1)):
        np.testing.assert_allclose(thirds[k], want, rtol=1e-5)


def test_one_node_is_timed_alone(library: Any) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    module.set_input("x", np.ones((4, 8), "float32"))
    result = module.run_individual_node(1, number=3, repeat=2)
    assert len(result.results) == 2 and result.max < 1
    means = module.run_individual(number=2, repeat=2, min_repeat_ms=0.01)
    assert 0 <= means[0] < 1e-3 and all(seconds > 0 for seconds in means[1:])


def test_the_trace_reads_as_events_in_order(library: Any, tmp_path: Path) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)), dump_root=str(tmp_path))
    module.run(x=np.ones((4, 8), "float32"))
    events = json.loads((tmp_path / "trace.json").read_text())
    ends = [event["ts"] + event["dur"] for event in events]
    assert [event["ph"] for event in events] == ["X"] * 3
    assert [event["ts"] for event in events] == [0.0, *ends[:-1]]


def test_reports_and_benchmarks_show_as_tables_in_notebooks(library: Any) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    page = module.profile(x=np.ones((4, 8), "float32"))._repr_html_()
    assert page.count("<tr>") == 5 and "fused_nn_softmax" in page and "100.0 %" in page
    assert "median (ms)" in module.benchmark(repeat=1, number=1)._repr_html_()
