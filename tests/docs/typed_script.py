"""A user's script, whose values have types: the type checker reads it with the package, a test runs it.

In: a model file. Out: the result of one run. Invariant: `assert_type` fails where a checker sees `Any`.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.relay.expr import Call, Var
from armillary.runtime import Device
from armillary.runtime.ndarray import NDArray


def network() -> IRModule:
    """A layer, by the operators as functions."""
    x = relay.var("x", shape=(1, 3, 8, 8))
    assert_type(x, Var)
    weight = relay.var("weight", shape=(4, 3, 3, 3))
    layer = relay.nn.conv2d(x, weight, kernel_size=(3, 3), channels=4, padding=1)
    assert_type(layer, Call)
    assert_type(relay.nn.relu(layer), Call)
    return IRModule.from_expr(relay.Function([x, weight], relay.nn.relu(layer)))


def result_of(path: Path, x: np.ndarray) -> NDArray:
    """Import, build, run."""
    module, params = relay.frontend.from_onnx(path)
    assert_type(module, IRModule)
    library = relay.build(module, target="llvm", params=params)
    assert_type(library, GraphLibrary)
    assert_type(armillary.cpu(0), Device)
    executor = graph_executor.GraphModule(library["default"](armillary.cpu(0)))
    executor.run({"x": x})
    output = executor.get_output(0)
    assert_type(output, NDArray)
    return output
