"""Weights of nn.low_bit_dense as the kernel reads them, packed once when compiling.

In: bytes (units, inner * bits / 8), scales and zeros (units, groups). Out: words (units / lanes, words, lanes), scales
and zeros (units / lanes, groups, lanes), zeros behind the last unit. Invariant: as many bytes as came in, but for the
padding to whole blocks of units. The layout: operator.py.
"""

from __future__ import annotations

import weakref

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import aligned, aligned_empty
from armillary.ops._dot_operands import BYTES

_SECOND = {8: 0x0000FF00, 4: 0x00F000F0, 2: 0x0C0C0C0C}  # the second of each four pieces so wide
_known: dict[tuple[object, ...], tuple[weakref.ref[Array], weakref.ref[Array]]] = {}  # source and result, while in use


def packed_words(weight: Array, bits: int, lanes: int) -> Array:
    """The words of all blocks of units; those of a weight that variants of a network share are packed once."""
    owner, key = weight, (weight.ctypes.data, weight.shape, bits, lanes)
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    source, result = (ref() for ref in _known[key]) if key in _known else (None, None)
    if result is not None and source is owner:
        return result
    words = _packed(weight, bits, lanes)
    _known[key] = weakref.ref(owner), weakref.ref(words)
    for old in [k for k, refs in _known.items() if any(ref() is None for ref in refs)]:
        del _known[old]
    return words


def _packed(weight: Array, bits: int, lanes: int) -> Array:
    """In the order of the kernel: the next four terms for each shift by `bits`, and units side by side."""
    units, width = weight.shape
    outer, words = -(-units // lanes), width // BYTES
    result = aligned_empty((outer, words, lanes), np.uint32)
    for chunk in range(outer):
        rows = np.ascontiguousarray(weight[chunk * lanes : (chunk + 1) * lanes]).view("<u4")
        result[chunk, :, : len(rows)] = _by_shifts(rows, bits).T
        result[chunk, :, len(rows) :] = 0
    return result


def _by_shifts(words: Array, bits: int) -> Array:
    """Terms of words, t0 t1 t2 … from the lowest bits on, in an order where byte k has the k-th of each four terms.

    Interleaving the halves of a word, term by term, turns the bits of a term's number by one.
    """
    for _ in range((8 // bits).bit_length() - 1):
        for width in (w for w in (8, 4, 2) if w >= bits):
            middle = np.uint32(_SECOND[width])
            ends = ~(middle | middle << np.uint32(width))
            words = words & ends | (words & middle) << np.uint32(width) | words >> np.uint32(width) & middle
    return words


def packed_parameters(values: Array, lanes: int) -> Array:
    """(units, groups) as (units / lanes, groups, lanes)."""
    units, groups = values.shape
    outer = -(-units // lanes)
    full = np.zeros((outer * lanes, groups), values.dtype)
    full[:units] = values
    return aligned(np.ascontiguousarray(full.reshape(outer, lanes, groups).transpose(0, 2, 1)))
