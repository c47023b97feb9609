"""All rules of Keras's layers, by the name of their class.

In: nothing. Out: `RULES`, and `OPERATIONS`, of functions of keras.ops. Invariant: a name has one rule; what it does is
in layers.py (of images and elements) and sequences.py (of recurrent layers and attention).
"""

from __future__ import annotations

from armillary.frontend.keras import layers, sequences
from armillary.frontend.keras.layers import Layer, Rule
from armillary.frontend.values import op
from armillary.relay.expr import Expr


def _time_distributed(layer: Layer) -> Expr | list[Expr]:
    """A layer that is called for each step: steps join the batch."""
    inner = layer.config["layer"]
    rule = RULES.get(inner["class_name"])
    if rule is None:
        layer.refuse(f"a {inner['class_name']} for each step")
    batch, steps, *rest = layer.shape
    flat = op("reshape", layer.x, newshape=(batch * steps, *rest))
    result = rule(
        Layer(layer.name, inner["class_name"], inner["config"], [flat], layer.weights, layer.parameter, layer.keywords)
    )
    if isinstance(result, list):
        layer.refuse("a layer of several results for each step")
    shape = layers.shape_of_typed(result)
    return op("reshape", result, newshape=(batch, steps, *shape[1:]))


UNARY = {
    "Absolute": "abs",
    "Exp": "exp",
    "Log": "log",
    "Negative": "negative",
    "Relu": "nn.relu",
    "Sigmoid": "sigmoid",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}
OPERATIONS = UNARY | {
    "Add": "add",
    "Divide": "divide",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Multiply": "multiply",
    "Power": "power",
    "Subtract": "subtract",
    "TrueDivide": "divide",
}  # of keras.ops, by the names of their classes
RULES: dict[str, Rule] = {**layers.RULES, **sequences.RULES, "TimeDistributed": _time_distributed}
