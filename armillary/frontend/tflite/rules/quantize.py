"""TFLite's steps between real numbers and affine integers: QUANTIZE, DEQUANTIZE.

In: float16, float32 or integers with a scale. Out: what the other side of the file says. Invariant: halves are rounded
away from zero, as the interpreter rounds; from one scale to another one in fixed point (integer.py).
"""

from __future__ import annotations

import numpy as np

from armillary.frontend.tflite.node import TfliteNode, real, tflite
from armillary.frontend.tflite.rules.integer_functions import requantized
from armillary.frontend.values import cast, is_float, op, scalar
from armillary.relay.expr import Expr


@tflite("DEQUANTIZE")
def dequantize(node: TfliteNode) -> Expr:
    tensor = node.read(0)
    return real(node.x, tensor) if tensor.is_quantised else cast(node.x, node.writes[0].dtype)


@tflite("QUANTIZE")
def quantize(node: TfliteNode) -> Expr:
    to = node.writes[0]
    if not is_float(node.x):
        return requantized(node)
    steps = op("round", op("divide", node.x, scalar(float(to.scale[0]), "float32")))
    moved = op("add", steps, scalar(float(to.zero[0]), "float32"))
    limits = np.iinfo(to.dtype)
    return cast(op("clip", moved, a_min=float(limits.min), a_max=float(limits.max)), to.dtype)
