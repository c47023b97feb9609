"""Matrices as GGUF stores them, in blocks of small integers, as `Packed` ones: the same numbers in another order.

In: bytes (units, bytes of a row) and the name of an encoding. Out: `Packed`. Invariant: every repack is exact. Scales
stay in float16 where one is stored per group; encodings of two levels (Q4_K, Q5_K, Q6_K) get the product of both, which
float32 holds exactly. Integers of 5 and 6 bits take 8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import ModelError
from armillary.generate.blocks import Packed
from armillary.ops.decoder.low_bit_dense import packed

_CHUNK = 1 << 24  # integers that are unpacked at a time


def packed_matrix(data: Array, encoding: str) -> Packed:
    """The matrix of those bytes."""
    size, terms, read = ENCODINGS[encoding]
    units, width = data.shape
    if width % size:
        raise ModelError(f"rows of {width} bytes are no blocks of {encoding}, {size} bytes each")
    step = max(1, _CHUNK // (width // size * terms))
    parts = [read(data[k : k + step].reshape(-1, width // size, size)) for k in range(0, units, step)]
    minima = [p.minima for p in parts if p.minima is not None]
    return Packed(
        np.concatenate([p.data for p in parts]),
        np.concatenate([p.scales for p in parts]),
        parts[0].zero,
        parts[0].bits,
        np.concatenate(minima) if minima else None,
    )


def _fields(data: Array, width: int, bits: int) -> Array:
    """(…, bytes) as integers: the lowest bits of `width` bytes, then their next ones; then the next bytes."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = data.reshape(*data.shape[:-1], -1, 1, width) >> shifts & np.uint8((1 << bits) - 1)
    result: Array = fields.reshape(*data.shape[:-1], -1)
    return result


def _float16(data: Array) -> Array:
    """(…, 2) bytes as (…, 1) numbers."""
    result: Array = np.ascontiguousarray(data).view("<f2")
    return result


def _made(values: Array, scales: Array, zero: int, bits: int, minima: Array | None = None) -> Packed:
    """Parts by unit and block, with the blocks of a unit side by side."""
    units = len(values)
    least = None if minima is None else np.ascontiguousarray(minima.reshape(units, -1), np.float32)
    data = packed(np.ascontiguousarray(values.reshape(units, -1)), bits)
    return Packed(data, np.ascontiguousarray(scales.reshape(units, -1)), zero, bits, least)


def _q4_0(b: Array) -> Packed:
    """scale (n - 8)."""
    return _made(_fields(b[..., 2:], 16, 4), _float16(b[..., :2]), 8, 4)


def _q4_1(b: Array) -> Packed:
    """scale n + minimum."""
    return _made(_fields(b[..., 4:], 16, 4), _float16(b[..., :2]), 0, 4, _float16(b[..., 2:4]))


def _five(low: Array, high: Array) -> Array:
    fifth = np.unpackbits(high, axis=-1, bitorder="little")
    result: Array = _fields(low, 16, 4) | fifth << np.uint8(4)
    return result


def _q5_0(b: Array) -> Packed:
    """scale (n - 16); the fifth bits of a block in four bytes of their own."""
    return _made(_five(b[..., 6:], b[..., 2:6]), _float16(b[..., :2]), 16, 8)


def _q5_1(b: Array) -> Packed:
    """scale n + minimum."""
    return _made(_five(b[..., 8:], b[..., 4:8]), _float16(b[..., :2]), 0, 8, _float16(b[..., 2:4]))


def _q8_0(b: Array) -> Packed:
    """scale times a signed byte."""
    return _made(b[..., 2:] ^ np.uint8(128), _float16(b[..., :2]), 128, 8)


def _two_levels(b: Array) -> tuple[Array, Array]:
    """Scales and minima of the 8 groups of a block: 6 bits each in 12 bytes, times a float16 each."""
    low, high, rest = (b[..., 4 + k : 8 + k] for k in (0, 4, 8))
    top = np.uint8(0x30)
    scales = np.concatenate([low & 63, rest & 15 | low >> 2 & top], -1)
    minima = np.concatenate([high & 63, rest >> 4 | high >> 2 & top], -1)
    factors = (_float16(b[..., k : k + 2]).astype(np.float32) for k in (0, 2))
    one, two = (f * p for f, p in zip(factors, (scales, minima), strict=True))
    return one, -two


def _q4_k(b: Array) -> Packed:
    """scale n + minimum in 8 groups of 32."""
    scales, minima = _two_levels(b)
    return _made(_fields(b[..., 16:], 32, 4), scales, 0, 4, minima)


def _q5_k(b: Array) -> Packed:
    """The same with a fifth bit."""
    scales, minima = _two_levels(b)
    values = _fields(b[..., 48:], 32, 4) | _fields(b[..., 16:48], 32, 1) << np.uint8(4)
    return _made(values, scales, 0, 8, minima)


def _q6_k(b: Array) -> Packed:
    """scale (n - 32) in 16 groups of 16; a scale is a signed byte times the block's float16."""
    values = _fields(b[..., :128], 64, 4) | _fields(b[..., 128:192], 32, 2) << np.uint8(4)
    scales = np.ascontiguousarray(b[..., 192:208]).view(np.int8) * _float16(b[..., 208:]).astype(np.float32)
    return _made(values, scales, 32, 8)


ENCODINGS: dict[str, tuple[int, int, Callable[[Array], Packed]]] = {  # bytes and integers of a block
    "Q4_0": (18, 32, _q4_0),
    "Q4_1": (20, 32, _q4_1),
    "Q5_0": (22, 32, _q5_0),
    "Q5_1": (24, 32, _q5_1),
    "Q8_0": (34, 32, _q8_0),
    "Q4_K": (144, 256, _q4_k),
    "Q5_K": (176, 256, _q5_k),
    "Q6_K": (210, 256, _q6_k),
}
