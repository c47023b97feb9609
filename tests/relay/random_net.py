"""Convolutions with random weights, for tests that build networks of them.

In: a seed. Out: expressions with constant weights. Invariant: one seed gives one network, whose values stay near one.
"""

from __future__ import annotations

import numpy as np

from armillary import relay
from armillary.relay.expr import Expr, const


class Net:
    """Weights from a seed, and what is made of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape: int) -> Expr:
        scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
        return const((scale * self.rng.standard_normal(shape)).astype("float32"))

    def conv(self, x: Expr, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Expr:
        weight, pad = self.weight(out, x.checked_type.shape[1] // groups, kernel, kernel), kernel // 2
        attrs = {"padding": (pad, pad), "strides": (stride, stride), "groups": groups}
        return relay.nn.relu(relay.add(relay.nn.conv2d(x, weight, **attrs), self.weight(out, 1, 1)))
