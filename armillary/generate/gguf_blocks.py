"""Matrices as GGUF stores them, in blocks of small integers, as `Packed` ones: the same numbers in another order.

In: bytes (units, bytes of a row), in memory or in a file, and the name of an encoding. Out: `Packed`, deferred: bytes
are read when a part of it is. Invariant: every repack is exact, and as large as what it is of but for sixes of bits
(scales and minima of Q4_K, Q5_K), which take bytes. Scales stay in the float16 or the integers that are stored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, each_rows
from armillary.base.record import record
from armillary.errors import ModelError
from armillary.generate.blocks import Packed
from armillary.ops.decoder.low_bit_dense import packed

Read = Callable[[Array], Array]


@record
class Encoding:
    """Bytes and integers of a block; how many of these have one scale, their bits, the one that stands for 0.

    `values`, `scales`, `minima`, `tops`: of blocks (rows, blocks, bytes) the integers (as `packed` has them), the
    scales and the minima of their groups, and what scales and then minima of a block are multiplied with.
    """

    size: int
    terms: int
    group: int
    bits: int
    zero: int
    values: Read
    scales: Read
    minima: Read | None = None
    tops: tuple[Read, ...] = ()


def packed_matrix(data: Array | Deferred, encoding: str) -> Packed:
    """The matrix of those bytes."""
    form = ENCODINGS[encoding]
    width = data.shape[1]
    if width % form.size:
        raise ModelError(f"rows of {width} bytes are no blocks of {encoding}, {form.size} bytes each")
    blocks = width // form.size
    groups = blocks * form.terms // form.group

    def part(*reads: Read, wide: int, dtype: str) -> Deferred:
        def change(rows: Array) -> Array:
            parts = rows.reshape(len(rows), blocks, form.size)
            values = np.concatenate([read(parts).reshape(len(rows), -1) for read in reads], axis=1)
            return np.ascontiguousarray(values, dtype)

        return each_rows(data, wide, dtype, change)

    kind = "float16" if not form.tops else "uint8" if form.minima is not None else "int8"
    return Packed(
        part(form.values, wide=blocks * form.terms * form.bits // 8, dtype="uint8"),
        part(form.scales, wide=groups, dtype=kind),
        form.zero,
        form.bits,
        None if form.minima is None else part(form.minima, wide=groups, dtype=kind),
        part(*form.tops, wide=blocks * len(form.tops), dtype="float16") if form.tops else None,
    )


def _fields(data: Array, width: int, bits: int) -> Array:
    """(…, bytes) as integers: the lowest bits of `width` bytes, then their next ones; then the next bytes."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = data.reshape(*data.shape[:-1], -1, 1, width) >> shifts & np.uint8((1 << bits) - 1)
    result: Array = fields.reshape(*data.shape[:-1], -1)
    return result


def _nibbles(data: Array, width: int) -> Array:
    """`_fields` of 4 bits with neighbours in one byte: the low halves of `width` bytes in pairs, then the high ones."""
    pairs = np.ascontiguousarray(data).view("<u2").reshape(*data.shape[:-1], -1, 1, width // 2)
    low, high = np.uint16(0x0F), np.uint16(0xF0)
    fields = (pairs & low | pairs >> np.uint16(4) & high, pairs >> np.uint16(4) & low | pairs >> np.uint16(8) & high)
    return np.concatenate(fields, axis=-2).astype(np.uint8)


def _float16(data: Array) -> Array:
    """(…, 2) bytes as (…, 1) numbers."""
    result: Array = np.ascontiguousarray(data).view("<f2")
    return result


def _half(place: int) -> Callable[[Array], Array]:
    """The float16 at a place of a block."""
    return lambda b: _float16(b[..., place : place + 2])


def _five(low: Array, high: Array) -> Array:
    """Integers whose fifth bits lie in four bytes of their own."""
    fifth = np.unpackbits(high, axis=-1, bitorder="little")
    return packed(_fields(low, 16, 4) | fifth << np.uint8(4), 5)


def _levels(b: Array, which: int) -> Array:
    """The scales (0) or minima (1) of the 8 groups of a block: 6 bits each in 12 bytes."""
    own, rest, top = b[..., 4 + 4 * which : 8 + 4 * which], b[..., 12:16], np.uint8(0x30)
    low = rest >> np.uint8(4) if which else rest & np.uint8(15)
    result: Array = np.concatenate([own & np.uint8(63), low | own >> np.uint8(2) & top], -1)
    return result


def _scales_k(b: Array) -> Array:
    return _levels(b, 0)


def _minima_k(b: Array) -> Array:
    return _levels(b, 1)


def _q5_k(b: Array) -> Array:
    """Integers of 4 bits, and their fifth bits before."""
    return packed(_fields(b[..., 48:], 32, 4) | _fields(b[..., 16:48], 32, 1) << np.uint8(4), 5)


def _q6_k(b: Array) -> Array:
    """Integers of 4 bits, and two bits more of each behind."""
    return packed(_fields(b[..., :128], 64, 4) | _fields(b[..., 128:192], 32, 2) << np.uint8(4), 6)


_TOPS = (_half(0), lambda b: -_half(2)(b))  # minima are subtracted
ENCODINGS: dict[str, Encoding] = {  # (integer - zero) * scale [* top] + minimum [* top]
    "Q4_0": Encoding(18, 32, 32, 4, 8, lambda b: _nibbles(b[..., 2:], 16), _half(0)),
    "Q4_1": Encoding(20, 32, 32, 4, 0, lambda b: _nibbles(b[..., 4:], 16), _half(0), _half(2)),
    "Q5_0": Encoding(22, 32, 32, 5, 16, lambda b: _five(b[..., 6:], b[..., 2:6]), _half(0)),
    "Q5_1": Encoding(24, 32, 32, 5, 0, lambda b: _five(b[..., 8:], b[..., 4:8]), _half(0), _half(2)),
    "Q8_0": Encoding(34, 32, 32, 8, 128, lambda b: b[..., 2:] ^ np.uint8(128), _half(0)),
    "Q4_K": Encoding(144, 256, 32, 4, 0, lambda b: _nibbles(b[..., 16:], 32), _scales_k, _minima_k, _TOPS),
    "Q5_K": Encoding(176, 256, 32, 5, 0, _q5_k, _scales_k, _minima_k, _TOPS),
    "Q6_K": Encoding(210, 256, 16, 6, 32, _q6_k, lambda b: b[..., 192:208].view(np.int8), None, (_half(208),)),
}
