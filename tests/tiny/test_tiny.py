"""The whole product on one screen: import, compile, run, export, load, interpret, schedule, command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.cli.main import main
from armillary.contrib import graph_executor
from armillary.relay import testing


def test_a_network_compiles_and_its_package_gives_what_the_interpreter_gives(tmp_path: Path) -> None:
    module, params = testing.mlp.get_workload(batch_size=1)
    image = np.random.default_rng(0).standard_normal((1, 1, 28, 28)).astype("float32")
    wanted = relay.create_executor("debug", module, params=params).evaluate()(image).numpy()
    relay.build(module, "llvm", params=params).export_library(tmp_path / "net.tar")
    library = armillary.runtime.load_module(tmp_path / "net.tar")
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.run(data=image)
    np.testing.assert_allclose(network.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_a_schedule_becomes_a_function() -> None:
    a = te.placeholder((64, 32), name="a")
    b = te.compute((64, 32), lambda i, j: a[i, j] * 2 + 1, name="b")
    schedule = te.create_schedule(b.op)
    outer, inner = schedule[b].split(b.op.axis[0], factor=16)
    schedule[b].parallel(outer)
    schedule[b].vectorize(b.op.axis[1])
    function = armillary.build(schedule, [a, b], "llvm")
    data, out = np.ones((64, 32), "float32"), armillary.nd.array(np.zeros((64, 32), "float32"))
    function(armillary.nd.array(data), out)
    np.testing.assert_array_equal(out.numpy(), data * 2 + 1)
    assert inner is not outer


def test_the_command_line_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    assert "cpu" in capsys.readouterr().out.lower()
