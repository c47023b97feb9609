"""trim-weights: weights without the channels that were added to fill blocks, where those make a package large.

In: a module in blocked layouts, weights packed. Out: the same; constant weights of blocked convolutions of which whole
channels are zero are stored without them and filled up by nn.contrib_fill_channels, which runs when they are loaded.
Invariant: values stay; as few weights as bring the zeros of the network down to a share of its parameters that a
package can bear, the largest first.

    nn.contrib_conv2d_NCHWc(%x, weight[1, 1, 3, 3, 16, 16])
    ->
    nn.contrib_conv2d_NCHWc(%x, nn.contrib_fill_channels(weight[9, 3, 3, 9]))
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from armillary.aligned import Deferred
from armillary.ir import IRModule
from armillary.ops.nn_conv_fill import Runs
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.transform._rules import Array, call, on_functions, op_name
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.transform import define_pass

SHARE = 0.08  # of the parameters, in zeros: no weight is trimmed for less
_WEIGHTS = {"nn.contrib_conv2d_NCHWc": 1, "nn.contrib_conv2d_winograd_weight_transform": 0}  # which argument


@dataclasses.dataclass(frozen=True)
class _Trimmed:
    """The weight without its zero channels, and where they were."""

    weight: Constant
    inputs: Runs
    outputs: Runs
    zeros: int  # bytes saved


@define_pass("trim-weights", opt_level=3)
def trim_weights(module: IRModule) -> IRModule:
    """Store weights without zero channels where many were added."""
    return on_functions(module, _change)


def _change(function: Function) -> Expr | None:
    order = post_order(function, not_primitive)
    limit = SHARE * sum(e.nbytes for e in order if isinstance(e, Constant))
    found = {id(w): t for e in order if (w := _weight(e)) is not None and (t := _trim(w)) is not None}
    left, taken = sum(t.zeros for t in found.values()), {}
    for key, trimmed in sorted(found.items(), key=lambda item: -item[1].zeros):
        if left <= limit:
            break
        taken[key] = trimmed
        left -= trimmed.zeros
    return _rewritten(function, taken) if taken else None


def _weight(expr: Expr) -> Constant | None:
    """The constant weight of a blocked convolution or of its transform."""
    name = op_name(expr)
    if name not in _WEIGHTS or not isinstance(expr, Call) or getattr(expr.attrs, "groups", 1) != 1:
        return None
    weight = expr.args[_WEIGHTS[name]]
    return weight if isinstance(weight, Constant) else None


def _trim(weight: Constant) -> _Trimmed | None:
    if isinstance(weight.held, Deferred):
        return None  # as the model's file has it: nothing was filled up
    data = weight.data
    some = data[:, 0, 0, 0, 0].all() and data[0, :, 0, 0, :, 0].all()  # most weights: one look is enough
    if some or data.ndim != 6:
        return None
    outputs, inputs = data.any((1, 2, 3, 4)).reshape(-1), data.any((0, 2, 3, 5)).reshape(-1)
    if (outputs.all() and inputs.all()) or not outputs.any() or not inputs.any():
        return None
    wide = data.transpose(1, 4, 2, 3, 0, 5).reshape(len(inputs), *data.shape[2:4], len(outputs))
    kept = np.ascontiguousarray(wide[inputs][..., outputs])
    return _Trimmed(Constant(kept, weight.span), _runs(inputs), _runs(outputs), data.nbytes - kept.nbytes)


def _runs(real: Array) -> Runs:
    """Lengths of real channels and of the zeros behind them."""
    runs: list[tuple[int, int]] = []
    edges = [0, *(np.flatnonzero(real[1:] != real[:-1]) + 1), len(real)]
    for start, end in itertools.pairwise(edges):
        if real[start]:
            runs.append((int(end - start), 0))
        else:
            before = runs.pop()[0] if runs else 0
            runs.append((before, int(end - start)))
    return tuple(runs)


def _rewritten(function: Function, taken: Mapping[int, _Trimmed]) -> Expr:
    memo: dict[int, Expr] = {}
    for expr in post_order(function, not_primitive):
        trimmed = taken.get(id(expr))
        if trimmed is None:
            memo[id(expr)] = copy_type(map_children(expr, lambda e: memo.get(id(e), e)), expr)
            continue
        blocks = expr.data.shape[4:]  # type: ignore[attr-defined]
        filled = call(
            "nn.contrib_fill_channels", trimmed.weight, inputs=trimmed.inputs, outputs=trimmed.outputs, blocks=blocks
        )
        memo[id(expr)] = filled
    return memo[id(function)]
