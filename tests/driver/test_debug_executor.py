"""The debug executor: values and times of single nodes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.artifact import load_params
from armillary.contrib import debug_executor
from armillary.errors import ExecutionError, TypeMismatch


@pytest.fixture
def library() -> object:
    x = relay.var("x", shape=(4, 8))
    y = relay.nn.softmax(relay.exp(x) * relay.const(2.0))
    with armillary.transform.PassContext(opt_level=0):
        return relay.build(relay.Function([x], y), "llvm")


def test_profile_times_every_kernel_of_the_run(library: object) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    report = module.profile(x=np.ones((4, 8), "float32"))
    assert len(list(report)) == 3
    assert all(row.seconds >= 0 for row in report)
    assert "total" in str(report)
    assert len(module.run_individual(2)) == module.module.num_nodes()


def test_a_node_value_is_what_the_reference_says(library: object) -> None:
    module = debug_executor.GraphModuleDebug(library["default"](armillary.cpu(0)))
    x = np.random.default_rng(0).random((4, 8), dtype="float32")
    module.set_input("x", x)
    out = armillary.nd.empty((4, 8))
    module.debug_get_output(1, out)
    np.testing.assert_allclose(out.numpy(), np.exp(x), rtol=1e-5)
    with pytest.raises(ExecutionError, match="no node 'nothing'"):
        module.debug_get_output("nothing", out)


def test_a_dump_holds_every_value_and_the_trace(library: object, tmp_path: Path) -> None:
    module = debug_executor.create(library.get_graph_json(), library.module, armillary.cpu(0), str(tmp_path))
    module.set_input("x", np.zeros((4, 8), "float32"))
    module.set_input(**library.get_params())
    module.run()
    values = load_params((tmp_path / "outputs.params").read_bytes())
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [row["name"] for row in trace] == list(values)
    np.testing.assert_allclose(list(values.values())[-1], np.full((4, 8), 1 / 8), rtol=1e-5)


def test_a_graph_is_created_from_the_three_parts_of_a_build(library: object) -> None:
    with pytest.warns(DeprecationWarning, match="old form"):
        graph, lib, params = library
    module = armillary.contrib.graph_executor.create(graph, lib, armillary.cpu(0))
    module.set_input(**params)
    module.run(x=np.zeros((4, 8), "float32"))
    np.testing.assert_allclose(module.get_output(0).numpy(), np.full((4, 8), 1 / 8), rtol=1e-5)
    with pytest.raises(TypeMismatch, match="needs a library of compiled functions, got str"):
        armillary.contrib.graph_executor.create(graph, "lib.so", armillary.cpu(0))
