"""Weights of nn.low_bit_dense as the kernel reads them, packed once when compiling.

In: bytes (units, inner * bits / 8), scales and zeros (units, groups). Out: words (units / lanes, words, lanes), scales
and zeros (units / lanes, groups, lanes), zeros behind the last unit. Invariant: as many bytes as came in, but for the
padding to whole blocks of units. The layout: operator.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.aligned import Deferred, aligned, aligned_empty, in_rows, looked_at, rows_of
from armillary.ops._dot_operands import BYTES
from armillary.ops.decoder.low_bit_dense import WORD, planes_of, terms_of_step

_SECOND = {8: 0x0000FF00, 4: 0x00F000F0, 2: 0x0C0C0C0C, 1: 0x22222222}  # the second of each four pieces so wide
Weight = Array | Deferred
_Pair = tuple[weakref.ref[Weight], weakref.ref[Weight]]
_known: dict[tuple[object, ...], _Pair] = {}  # source and result, while in use


def packed_words(weight: Weight, bits: int, lanes: int) -> Weight:
    """The words of all blocks of units."""
    outer, words = -(-weight.shape[0] // lanes), weight.shape[1] // BYTES
    return _once(weight, (outer, words, lanes), np.dtype(np.uint32), lambda rows: _packed(rows, bits, lanes))


def packed_parameters(values: Weight, lanes: int) -> Weight:
    """(units, groups) as (units / lanes, groups, lanes)."""
    outer, groups = -(-values.shape[0] // lanes), values.shape[1]
    return _once(values, (outer, groups, lanes), values.dtype, lambda rows: _in_lanes(rows, lanes))


def _once(weight: Weight, shape: tuple[int, int, int], dtype: NumpyDtype, pack: Callable[[Array], Array]) -> Weight:
    """Rows packed by `pack`, as many as lanes at a time; what variants of a network share is packed once.

    What waits in a file goes on waiting: all of it is in memory once, in its last form.
    """
    owner, place = weight, id(weight)
    if isinstance(weight, np.ndarray):
        place = weight.ctypes.data
        while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
            owner = owner.base
    key = (place, weight.shape, dtype, shape)
    source, result = (ref() for ref in _known[key]) if key in _known else (None, None)
    if result is not None and source is owner:
        return result
    units, lanes, read = weight.shape[0], shape[2], rows_of(weight)
    packed: Weight = in_rows(shape, dtype, lambda b, e: pack(read(b * lanes, min(e * lanes, units))))
    if not isinstance(weight, Deferred) or weight.rows is None or lanes % weight.step:
        packed = aligned(pack(looked_at(weight)))
    _known[key] = weakref.ref(owner), weakref.ref(packed)
    for old in [k for k, refs in _known.items() if any(ref() is None for ref in refs)]:
        del _known[old]
    return packed


def _packed(weight: Array, bits: int, lanes: int) -> Array:
    """In the order of the kernel: the next four terms for each shift by a plane's bits, and units side by side."""
    units, width = weight.shape
    outer, words = -(-units // lanes), width // BYTES
    planes, step = planes_of(bits), terms_of_step(bits) * bits // WORD
    ends = [*(p.word for p in planes[1:]), step]
    result = aligned_empty((outer, words, lanes), np.uint32)
    for chunk in range(outer):
        rows = np.ascontiguousarray(weight[chunk * lanes : (chunk + 1) * lanes]).view("<u4")
        steps = rows.reshape(len(rows), -1, step)
        into = result[chunk].reshape(-1, step, lanes)
        for plane, end in zip(planes, ends, strict=True):
            part = _by_shifts(steps[:, :, plane.word : end], plane.bits)
            into[:, plane.word : end, : len(rows)] = part.transpose(1, 2, 0)
        result[chunk, :, len(rows) :] = 0
    return result


def _by_shifts(words: Array, bits: int) -> Array:
    """Terms of words, t0 t1 t2 … from the lowest bits on, in an order where byte k has the k-th of each four terms.

    Interleaving the halves of a word, term by term, turns the bits of a term's number by one.
    """
    for _ in range((8 // bits).bit_length() - 1):
        for width in (w for w in (8, 4, 2, 1) if w >= bits):
            middle = np.uint32(_SECOND[width])
            ends = ~(middle | middle << np.uint32(width))
            words = words & ends | (words & middle) << np.uint32(width) | words >> np.uint32(width) & middle
    return words


def _in_lanes(values: Array, lanes: int) -> Array:
    units, groups = values.shape
    outer = -(-units // lanes)
    full = np.zeros((outer * lanes, groups), values.dtype)
    full[:units] = values
    return np.ascontiguousarray(full.reshape(outer, lanes, groups).transpose(0, 2, 1))
