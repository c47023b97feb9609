"""Static libraries without a tool: objects in a System V archive with the index that linkers look symbols up in.

In: objects, and symbols that the first of them or a later one defines. Out: the bytes of a `.a` file. Invariant: no
time and no owner is written, so equal objects give equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"!<arch>\n"


def archive(objects: Sequence[bytes], symbols: Sequence[str]) -> bytes:
    """An archive whose index names each symbol with the object that holds its name."""
    owners = [next(k for k, code in enumerate(objects) if symbol.encode() + b"\0" in code) for symbol in symbols]
    names = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    index_size = 4 + 4 * len(symbols) + len(names)
    place, places = len(_MAGIC) + 60 + index_size + index_size % 2, []
    for code in objects:
        places.append(place)
        place += 60 + len(code) + len(code) % 2
    index = struct.pack(f">I{len(symbols)}I", len(symbols), *(places[k] for k in owners)) + names
    members = [_member("/", index), *(_member(f"kernels{k}.o/", code) for k, code in enumerate(objects))]
    return _MAGIC + b"".join(members)


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{len(data):<10}`\n"
    return head.encode() + data + b"\n" * (len(data) % 2)
