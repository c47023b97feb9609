"""Multiply-accumulates of contractions, as their definitions have them: the rules of the facet `Op.macs`.

In: a call's attributes, the types of its inputs, its type, all of known extents. Out: the number of multiply-adds.
Invariant: it is the plain algorithm's, whatever computes it. An operator with a rule is a contraction that analyses,
estimates of work and tuners count. Layout strings that leave out block sizes are fine: sizes are those of the types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from armillary.errors import TypeMismatch
from armillary.relay.types import TensorType


class _WithKernelLayout(Protocol):
    @property
    def kernel_layout(self) -> str: ...


def convolution_macs(attrs: _WithKernelLayout, types: Sequence[TensorType], result: TensorType) -> int:
    """Each output element reads one filter: all of the weight but the output channels."""
    return result.size * types[1].size // _channels(types[1], attrs.kernel_layout, "O")


def transposed_macs(attrs: _WithKernelLayout, types: Sequence[TensorType], _result: TensorType) -> int:
    """Each input element is multiplied with all of the weight but the input channels."""
    return types[0].size * types[1].size // _channels(types[1], attrs.kernel_layout, "I")


def product_macs(attrs: object, types: Sequence[TensorType], result: TensorType) -> int:
    """Each output element is a sum over the inner axis of the left operand."""
    return result.size * types[0].static[-2 if getattr(attrs, "transpose_a", False) else -1]


def _channels(weight: TensorType, layout: str, axis: str) -> int:
    """Elements of a weight along an axis and its blocks (`O` and `8o`); a weight without any has no work to share."""
    axes = [letter for letter in layout.upper() if letter.isalpha()]
    if len(axes) != weight.ndim:
        raise TypeMismatch(f"kernel_layout {layout!r} names {len(axes)} axes, the weight is {weight}")
    return max(1, math.prod(n for n, name in zip(weight.static, axes, strict=True) if name == axis))
