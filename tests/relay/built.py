"""An ONNX network compiled with and without a pass: what it gives for `x`, and the kernels that it calls."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx

from armillary import cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]


def built(model: onnx.ModelProto, x: Array, disabled: list[str]) -> tuple[Array, list[str]]:
    """The first output and the names of the nodes' functions."""
    module, params = relay.frontend.from_onnx(model)
    with PassContext(opt_level=3, disabled_pass=disabled):
        library = relay.build(module, target="llvm", params=params)
    net = GraphModule(library["default"](cpu()))
    net.run(x=x)
    nodes = json.loads(library.graph_json)["nodes"]
    return net.get_output(0).numpy(), [n["attrs"]["func_name"] for n in nodes if n["op"] != "null"]
