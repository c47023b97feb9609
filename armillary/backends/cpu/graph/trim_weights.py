"""trim-weights: weights without the channels that were added to fill blocks, where those make a package large.

In: a module in blocked layouts, weights packed. Out: the same; constant weights of blocked convolutions of which whole
channels are zero are stored without them and filled up by cpu.fill_channels, which runs when they are loaded.
Invariant: values stay; as few weights as bring the zeros of the network down to a share of its parameters that a
package can bear, the largest first.

    nn.contrib_conv2d_NCHWc(%x, weight[1, 1, 3, 3, 16, 16])
    ->
    nn.contrib_conv2d_NCHWc(%x, cpu.fill_channels(weight[9, 3, 3, 9]))
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from armillary.backends.channels.wide_channels import Runs
from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, aligned
from armillary.base.record import record
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.transform._rules import call, on_functions, op_name
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.transform import define_pass

SHARE = 0.08  # of the parameters, in zeros: no weight is trimmed for less
_WEIGHTS = {"nn.contrib_conv2d_NCHWc": 1, "cpu.conv2d_winograd_weight_transform": 0}  # which argument


@record
class _Ragged:
    """A weight that has zero channels, and which are real."""

    weight: Constant
    inputs: Array
    outputs: Array

    @property
    def zeros(self) -> int:
        """Bytes that its zero channels take."""
        part = self.weight.nbytes // (self.inputs.size * self.outputs.size)
        return self.weight.nbytes - part * int(self.inputs.sum()) * int(self.outputs.sum())

    def filled(self) -> Expr:
        """The weight again, from one without them."""
        attrs = {"inputs": _runs(self.inputs), "outputs": _runs(self.outputs), "blocks": self.weight.held.shape[4:]}
        return call("cpu.fill_channels", self._compact(), **attrs)

    def _compact(self) -> Constant:
        """The real channels; those of a weight that is in a file are read when they are used or written."""
        held, span = self.weight.held, self.weight.span
        if not isinstance(held, Deferred):
            return Constant(self._cut(held), span)
        shape = (int(self.inputs.sum()), *held.shape[2:4], int(self.outputs.sum()))

        def compute() -> Array:
            return self._cut(held.compute())

        def whole(begin: int, end: int) -> Array:
            return compute()[begin:end]

        return Constant(Deferred(shape, held.dtype, compute, whole, step=shape[0]), span)

    def _cut(self, data: Array) -> Array:
        wide = data.transpose(1, 4, 2, 3, 0, 5).reshape(len(self.inputs), *data.shape[2:4], len(self.outputs))
        return aligned(wide[self.inputs][..., self.outputs])


@define_pass("trim-weights", opt_level=3)
def trim_weights(module: IRModule) -> IRModule:
    """Store weights without zero channels where many were added."""
    return on_functions(module, _change)


def _change(function: Function) -> Expr | None:
    order = post_order(function, not_primitive)
    limit = SHARE * sum(e.nbytes for e in order if isinstance(e, Constant))
    weights = {id(w): w for e in order if (w := _weight(e)) is not None}
    trimmed = {key: ragged for key, w in weights.items() if (ragged := _ragged(w)) is not None}
    left, taken = sum(ragged.zeros for ragged in trimmed.values()), dict[int, _Ragged]()
    for key, ragged in sorted(trimmed.items(), key=lambda item: -item[1].zeros):
        if left <= limit:
            break
        taken[key] = ragged
        left -= ragged.zeros
    return _rewritten(function, taken) if taken else None


def _weight(expr: Expr) -> Constant | None:
    """The constant weight of a blocked convolution or of its transform."""
    name = op_name(expr)
    if name not in _WEIGHTS or not isinstance(expr, Call) or getattr(expr.attrs, "groups", 1) != 1:
        return None
    weight = expr.args[_WEIGHTS[name]]
    return weight if isinstance(weight, Constant) else None


def _ragged(weight: Constant) -> _Ragged | None:
    """Which channels are real; None if all are, or none."""
    shape = weight.held.shape
    if len(shape) != 6 or 0 in shape:
        return None
    real, inputs = list[Array](), np.zeros(shape[1] * shape[4], np.bool_)
    for piece in _pieces(weight.held):
        is_full = _is_full(piece)  # most are: one look is enough
        real.append(np.ones(len(piece) * shape[5], np.bool_) if is_full else piece.any((1, 2, 3, 4)).reshape(-1))
        inputs |= is_full or piece.any((0, 2, 3, 5)).reshape(-1)
    outputs = np.concatenate(real) if real else np.zeros(0, np.bool_)
    if (outputs.all() and inputs.all()) or not outputs.any() or not inputs.any():
        return None
    return _Ragged(weight, inputs, outputs)


def _pieces(held: Array | Deferred) -> Iterable[Array]:
    """The numbers, those of a file about 1 MB at a time; nothing of a file if its first and last rows are full.

    Reading all of it costs a tenth of a compilation from the cache, and pruning leaves few rows without a zero channel.
    """
    if not isinstance(held, Deferred):
        return [held]
    if held.rows is None:
        return [held.compute()]
    last = (held.shape[0] - 1) // held.step * held.step
    ends = (held.rows(0, min(held.step, held.shape[0])), held.rows(last, held.shape[0]))
    return () if all(map(_is_full, ends)) else held.pieces()


def _is_full(data: Array) -> bool:
    """Whether no channel is zero, by one line of inputs and one of outputs; False if that does not show it."""
    return bool(data[:, 0, 0, 0, 0].all() and data[0, :, 0, 0, :, 0].all())


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


def _rewritten(function: Function, taken: Mapping[int, _Ragged]) -> Expr:
    memo: dict[int, Expr] = {}
    for expr in post_order(function, not_primitive):
        ragged = taken.get(id(expr))
        if ragged is not None:
            memo[id(expr)] = ragged.filled()
        else:
            memo[id(expr)] = copy_type(map_children(expr, lambda e: memo.get(id(e), e)), expr)
    return memo[id(function)]
