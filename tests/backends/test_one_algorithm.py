"""An algorithm of the CPU with an operator and a pass of its own is a folder and a line of the list of folders."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backends import registry
from armillary.backends.cpu import select
from armillary.contrib import graph_executor
from armillary.relay.op import OPS
from armillary.runtime.device import cpu
from armillary.transform import PASSES, PassContext

PACKAGE = Path(select.__file__).parents[2]
BY_NAME = {  # who knows passes of algorithms from outside: tasks that weigh one against another
    "autotvm/task/cpu_space.py",
    "autotvm/task/network_cpu.py",
    "backends/cpu/graph/apply_records.py",
}


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The line of select.py, for one test."""
    made = importlib.import_module("one_algorithm")
    manifests = (*select.MANIFESTS, made.MANIFEST)
    monkeypatch.setattr(select, "MANIFESTS", manifests)
    monkeypatch.setattr(select, "CANDIDATES", select.candidates(manifests))
    yield
    OPS.pop("cpu.sample_pointwise")
    PASSES.pop("sample-pointwise")
    registry._CODE.pop(("cpu", "sample_pointwise"))


def build(*disabled: str) -> tuple[str, Any]:
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 16, 6, 6))
    weight = relay.const(rng.normal(size=(32, 16, 1, 1)).astype("float32"))
    function = relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, weight, kernel_size=(1, 1))))
    with PassContext(opt_level=3, disabled_pass=disabled):
        library = relay.build(relay.IRModule.from_expr(function), "llvm")
    network = graph_executor.GraphModule(library["default"](cpu()))
    network.run(x=rng.normal(size=(1, 16, 6, 6)).astype("float32"))
    return library.get_source("relay"), network.get_output(0).numpy()


def test_an_algorithm_of_one_file_computes_its_convolutions(added: None) -> None:
    text, found = build()
    assert 'cpu.sample_pointwise(%p0, %p1, choice="conv2d.sample_pointwise width=2' in text
    without, wanted = build("sample-pointwise")
    assert "cpu.sample_pointwise" not in without
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


TUNING = """
import importlib
from armillary.backends.cpu import select
manifests = (*select.MANIFESTS, importlib.import_module("one_algorithm").MANIFEST)  # the line of select.py
select.CANDIDATES, select.TUNED = select.candidates(manifests), select.tuned_operators(manifests)

import re, sys
import numpy as np
from armillary import autotvm, relay
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.contrib import graph_executor
from armillary.relay.op import get_op
from armillary.runtime.device import cpu
from armillary.transform import PassContext

rng = np.random.default_rng(0)
given = rng.normal(size=(1, 2, 6, 6, 8)).astype("float32")
weight = rng.normal(size=(4, 2, 1, 1, 8, 8)).astype("float32")
x = relay.var("x", shape=given.shape)
module = relay.Function([x], get_op("cpu.sample_pointwise")(x, relay.const(weight)))

def built(config={}):
    with PassContext(opt_level=3, config=config):
        library = relay.build(relay.IRModule.from_expr(module), "llvm")
    network = graph_executor.GraphModule(library["default"](cpu()))
    network.run(x=given)
    wanted = np.einsum("nihwc,oiklcb->nohwb", given, weight)
    np.testing.assert_allclose(network.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-4)
    return re.search('conv2d.sample_pointwise width=([0-9])([^)]*)', library.get_source('relay')).groups()

print(*built())
print(*built({"schedule.choice": {"cpu.sample_pointwise": "conv2d.sample_pointwise width=1"}}))
(task,) = autotvm.task.extract_from_program(module, target="llvm")
order = [task.config_space.get(index)["width"].val for index, _ in task.template.estimates(task)]
print(task.name, *order)
last = task.config_space.get(task.template.estimates(task)[-1][0])
with autotvm.apply_history_best([(MeasureInput(task.target, task, last), MeasureResult((1e-5,), 0, 1.0, 1.0))]):
    print(*built())
"""


def test_its_space_is_tuned_and_scripts_overrule_it() -> None:
    paths = os.pathsep.join((str(PACKAGE.parent), str(Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", TUNING], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    by_default, by_script, task, by_record = done.stdout.splitlines()
    assert by_default.startswith("2 ") and "by " not in by_default, "what the model picks"
    assert by_script.startswith("1 ") and "by override" in by_script
    assert task == "sample_pointwise.cpu 2 1 4", "what a build takes is first, then the least"
    assert by_record.startswith("4 ") and "by record" in by_record


def test_every_folder_with_a_manifest_is_in_the_list() -> None:
    found = {".".join(p.parent.relative_to(PACKAGE / "backends" / "cpu").parts) for p in PACKAGE.rglob("manifest.py")}
    assert found - {""} - {".."} == set(select.FOLDERS)


def test_nothing_else_names_what_folders_bring_along() -> None:
    places = {f"armillary.backends.cpu.{folder}" for folder in select.FOLDERS}
    passes = {d.function.__module__ for d in PASSES.values() if d.function.__module__.rpartition(".")[0] in places}
    hidden = passes | {f"{place}.manifest" for place in places}
    assert len(passes) >= 5, "passes lie beside their algorithms"
    who = set()
    for file in PACKAGE.rglob("*.py"):
        text, here = file.read_text("utf-8"), file.relative_to(PACKAGE)
        named = [name for name in hidden if f"from {name} import" in text]
        if any(not ".".join(("armillary", *here.parts)).startswith(name.rpartition(".")[0]) for name in named):
            who.add(here.as_posix())
    assert who == BY_NAME
