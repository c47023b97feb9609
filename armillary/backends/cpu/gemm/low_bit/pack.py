"""Weights of nn.low_bit_dense as the kernel reads them, packed once when compiling.

In: bytes (units, inner * bits / 8), scales and zeros (units, groups). Out: words (units / lanes, words, lanes), scales
and zeros (units / lanes, groups, lanes), zeros behind the last unit. Invariant: as many bytes as came in, but for the
padding to whole blocks of units. The layout: operator.py.
"""

from __future__ import annotations

import numpy as np

from armillary.backends.cpu.gemm.low_bit.operator import terms_of_word
from armillary.base.aliases import Array
from armillary.base.aligned import aligned
from armillary.ops._dot_operands import BYTES
from armillary.ops.decoder.low_bit_dense import unpacked


def packed_words(weight: Array, bits: int, lanes: int) -> Array:
    """The words of all blocks of units, one block after another, so that little is unpacked at a time."""
    units, width = weight.shape
    outer, words, fields = -(-units // lanes), width // BYTES, terms_of_word(bits) // BYTES
    result = np.zeros((outer, words, lanes), np.uint32)
    for chunk in range(outer):
        rows = weight[chunk * lanes : (chunk + 1) * lanes]
        terms = unpacked(rows, bits).reshape(len(rows), words, fields, BYTES)
        bytes_ = np.zeros((len(rows), words, BYTES), np.uint8)
        for field in range(fields):
            bytes_ |= terms[:, :, field] << np.uint8(field * bits)
        result[chunk, :, : len(rows)] = bytes_.view("<u4")[:, :, 0].T
    return aligned(result)


def packed_parameters(values: Array, lanes: int) -> Array:
    """(units, groups) as (units / lanes, groups, lanes)."""
    units, groups = values.shape
    outer = -(-units // lanes)
    full = np.zeros((outer * lanes, groups), values.dtype)
    full[:units] = values
    return aligned(np.ascontiguousarray(full.reshape(outer, lanes, groups).transpose(0, 2, 1)))
