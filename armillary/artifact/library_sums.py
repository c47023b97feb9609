"""Checksums at the end of a shared library: what was damaged on the way is refused before it is loaded.

In: a library that was just linked, perhaps with its parameters behind it. Out: 48 bytes that come last in the file:
CRC-32s of the parameters and of all the rest. A loader of the system does not look there. Invariant: `seal` changes
nothing that was in the file; what is no shared library is left as it is. Tools that rewrite a library (`strip`) drop
them, then nothing is checked. Verified by the native runtime: `runtime/native/packages/arm_sums.c`.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

_FIELDS = struct.Struct("<8sQQQII")  # magic, size of the file before it, place and size of the parameters, two sums
_OWN = struct.Struct("<II")
_MAGIC = b"ARMSUMS1"
TRAILER = _FIELDS.size + _OWN.size
_CHUNK = 1 << 20
_SHARED = (b"\x7fELF\x02\x01", b"\x03\x00")  # 64 bits, little-endian; type ET_DYN at 16


def trailer(size: int, head_crc: int, params_at: int = 0, params_size: int = 0, params_crc: int = 0) -> bytes:
    """The last bytes of a library of `size` bytes: sums of its parameters, and of all that is not parameters."""
    fields = _FIELDS.pack(_MAGIC, size, params_at, params_size, head_crc, params_crc)
    return fields + _OWN.pack(zlib.crc32(fields), 0)


def seal(path: Path) -> None:
    """Put the checksum behind a shared library."""
    with path.open("r+b") as stream:
        start = stream.read(18)
        if start[:6] != _SHARED[0] or start[16:18] != _SHARED[1]:
            return
        crc, size = zlib.crc32(start), len(start)
        while piece := stream.read(_CHUNK):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
        stream.write(trailer(size, crc))
