"""What steps of integers are in ONNX: QuantizeLinear and DequantizeLinear, between which engines compute in integers.

In: a call and the names of its arguments' values. Out: nodes in a `Graph`. Invariant: scales and zero points are
constants, one of each or one along an axis, which opset 13 introduced.
"""

from __future__ import annotations

import numpy as np

from armillary.contrib.target._onnx_graph import Graph
from armillary.contrib.target._onnx_types import Inputs, Rule, dtype_of, ndim_of
from armillary.errors import UnsupportedError
from armillary.relay.expr import Call, Constant

_ALONG_AN_AXIS = 13
_BYTES = ("int8", "uint8")


def _linear(kind: str) -> Rule:
    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        scale, zero = call.args[1:3]
        dtype = dtype_of(call) if kind == "QuantizeLinear" else dtype_of(call.args[0])
        if not isinstance(scale, Constant) or not isinstance(zero, Constant) or dtype not in _BYTES:
            what = f"{call.op} with computed scales" if dtype in _BYTES else f"{call.op} of {dtype}"
            raise UnsupportedError(f"to_onnx: {what}", hint="constant scales and zero points, int8 or uint8")
        steps = np.asarray(scale.data, np.float32)
        if steps.size == 1:
            steps = steps.reshape(())
        if steps.ndim > 1 or (steps.ndim == 1 and graph.opset < _ALONG_AN_AXIS):
            message = f"to_onnx: {call.op} with scales of shape {list(steps.shape)} in opset {graph.opset}"
            raise UnsupportedError(message, hint=f"one scale along an axis, opset_version={_ALONG_AN_AXIS} or later")
        zeros = np.broadcast_to(np.asarray(zero.data).reshape(-1)[0] if zero.data.size == 1 else zero.data, steps.shape)
        names = [inputs[0][0], graph.constant(steps), graph.constant(zeros, dtype)]
        if steps.ndim == 0:
            return graph.node(kind, names)
        return graph.node(kind, names, axis=int(call.attrs.axis) % ndim_of(call))

    return rule


RULES: dict[str, Rule] = {"qnn.dequantize": _linear("DequantizeLinear"), "qnn.quantize": _linear("QuantizeLinear")}
