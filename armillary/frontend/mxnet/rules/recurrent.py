"""MXNet's fused recurrent layers (`RNN`): all weights in one vector.

In: data (time, batch, features), the vector, first states. Out: the sequence and, where asked for, the last states.
Invariant: gates are in the order that PyTorch has, and so are layers and directions, so its rule builds them.
"""

from __future__ import annotations

from armillary.frontend.mxnet.node import MxnetNode, mxnet
from armillary.frontend.pytorch.rules.recurrent import stacked
from armillary.frontend.values import op, reshape_to
from armillary.relay.expr import Expr

_MODES = {"rnn_relu": ("RNN", 1), "rnn_tanh": ("RNN", 1), "lstm": ("LSTM", 4), "gru": ("GRU", 3)}


def _weights(node: MxnetNode, layers: int, count: int, size: int, gates: int) -> list[list[Expr]]:
    """(w, r, b, c) of each layer and direction: first all matrices, then all biases."""
    rows = gates * size
    shapes: list[tuple[int, ...]] = []
    for layer in range(layers):
        width = node.shape[2] if layer == 0 else size * count
        shapes += [(rows, width), (rows, size)] * count
    shapes += [(rows,)] * (2 * layers * count)
    pieces, at = [], 0
    for shape in shapes:
        end = at + shape[0] * (shape[1] if len(shape) > 1 else 1)
        piece = op("strided_slice", node.inputs[1], begin=(at,), end=(end,), axes=(0,))
        pieces.append(reshape_to(piece, shape))
        at = end
    half = len(pieces) // 2
    return [[*pieces[k : k + 2], *pieces[half + k : half + k + 2]] for k in range(0, half, 2)]


@mxnet("RNN", "_npx_rnn")
def rnn(node: MxnetNode) -> list[Expr]:
    mode = node.one_of("mode", tuple(_MODES))
    kind, gates = _MODES[mode]
    if node.text("projection_size") or node.flag("use_sequence_length"):
        node.refuse("projections of the states, or lengths of sequences")
    layers, size = node.whole("num_layers"), node.whole("state_size")
    count = 2 if node.flag("bidirectional") else 1
    rows = _weights(node, layers, count, size, gates)
    results = stacked(mode, node.name, kind, node.x, node.inputs[2 : 4 if kind == "LSTM" else 3], rows, count)
    return results if node.flag("state_outputs") else results[:1]
