"""ARMILLARY_HOST_CPU: code for a smaller processor than this one, in a process of its own; never for a larger one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import armillary
from armillary.errors import TargetError
from armillary.target import host
from armillary.target.cpu import cpu_model
from armillary.target.cpu_table import X86

_RUN = """
import numpy as np
import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.target import cpu_model
x, w = relay.var("x", shape=(4, 64)), relay.const(np.ones((32, 64), "float32"))
graph = graph_executor.GraphModule(relay.build(relay.Function([x], relay.nn.dense(x, w)), "llvm")["default"]())
graph.set_input("x", np.ones((4, 64), "float32"))
graph.run()
assert (graph.get_output(0).numpy() == 64).all()
model = cpu_model("llvm")
print(model.name, model.lanes, "avx512f" in model.features)
"""


def told(cpu: str, features: set[str]) -> dict[str, Any]:
    """What LLVM would say of a processor."""
    known = {name for row in X86.values() for name in row.features} | {"cmov", "avx512vp2intersect", "avxvnniint8"}
    return {"triple": "x86_64-linux-gnu", "cpu": cpu, "features": {name: name in features for name in sorted(known)}}


def test_features_that_the_smaller_cpu_lacks_are_gone() -> None:
    found = told("sapphirerapids", {*X86["sapphirerapids"].features, "cmov", "avx512vp2intersect", "avxvnniint8"})
    small = host.restricted(found, "haswell")
    assert small["cpu"] == "haswell"
    assert {name for name, on in small["features"].items() if on} == {*X86["haswell"].features, "cmov"}


def test_a_larger_cpu_is_refused_and_so_is_an_unknown_one() -> None:
    found = told("haswell", set(X86["haswell"].features))
    with pytest.raises(TargetError, match=r"ARMILLARY_HOST_CPU=znver4: this processor, haswell, has no avx512"):
        host.restricted(found, "znver4")
    with pytest.raises(TargetError, match=r"ARMILLARY_HOST_CPU=hasvell: there is no such CPU(.|\n)*haswell"):
        host.restricted(found, "hasvell")


@pytest.mark.skipif(not cpu_model("llvm").features >= X86["haswell"].features, reason="runs code for haswell")
def test_a_process_compiles_and_runs_as_on_the_smaller_processor() -> None:
    environment = {**os.environ, "ARMILLARY_HOST_CPU": "haswell"}
    done = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["haswell", "8", "False"]


def test_scripts_ask_for_the_version_of_llvm() -> None:
    codegen = armillary.target.codegen
    assert codegen.llvm_version_major() >= 14
    assert (codegen.llvm_get_system_triple(), codegen.llvm_get_system_cpu()) == (host.triple(), host.cpu_name())
