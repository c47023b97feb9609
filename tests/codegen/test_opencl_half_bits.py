"""Halves summed in float stay bits until they are in shared memory; integers of a loop's turn have names at its top."""

from __future__ import annotations

import re

import numpy as np
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.driver.tvmc.transform import convert_to_mixed_precision
from armillary.transform import PassContext

RNG = np.random.default_rng(6)


@needs_opencl
def test_loads_of_halves_are_not_waited_for() -> None:
    x, w = relay.var("x", shape=(33, 90)), RNG.standard_normal((50, 90)).astype("float32")
    network = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(w)))))
    with PassContext(opt_level=3):
        library = relay.build(convert_to_mixed_precision(network, None, "float16", "float32"), "opencl")
    source = library.lib.descriptor.device_code["opencl"]
    kernel = next(text for text in source.split("\n\n") if "right_stages" in text)
    held = re.search(r"ushort4? (\w+_next)\[", kernel)  # of the weights: the network's input is float
    assert held is not None
    loads = [line for line in kernel.split("\n") if line.strip().startswith(f"{held[1]}[")]
    assert loads and not any("half_number" in line or "vload_half" in line for line in loads)
    assert "half_number" in kernel
    assert re.search(r"for \(int turn = .*\{\n +const int turn_0 = ", kernel)
    value = RNG.standard_normal((33, 90)).astype("float32")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(x=value)
    wanted = np.maximum(value.astype("float64") @ w.astype("float64").T, 0)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=2e-3, atol=2e-2)
