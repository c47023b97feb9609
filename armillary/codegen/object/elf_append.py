"""A large blob put behind a linked shared library, as a segment of its own, without the linker having to see it.

In: a 64-bit little-endian ELF library with a small section that holds nothing but one exported symbol, and the size of
the blob. Out: what the file begins with so that the blob may follow: the symbol then is the blob. Invariant: a file
that is not as expected is refused (None) and then linked with the blob inside; nothing that was in the library moves.
A linker reads and copies what it links: 2.5 s for VGG-16's weights, of 3 s that compiling took. The loader wants one
more program header; that of the notes (the build id, which sections still tell) gives its place.
Source: System V ABI, chapters 4 and 5. Objects loaded without a linker: `elf_loader.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")  # type flags offset vaddr paddr filesz memsz align
_SECTION = struct.Struct("<IIQQQQIIQQ")  # name type flags addr offset size link info align entsize
_SYMBOL = struct.Struct("<IBBHQQ")  # name info other section value size
_SHARED, _LOAD, _NOTE, _READABLE = 3, 1, 4, 4
_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_PAGE = 4096
_Row = tuple[int, ...]


def head_for_blob(library: bytes, symbol: str, size: int) -> bytes | None:
    """The library, padded, with headers that say that `size` bytes follow and are `symbol`; None if it cannot be."""
    try:
        return _head_for_blob(library, symbol.encode(), size)
    except (struct.error, ValueError, IndexError):
        return None


def _head_for_blob(library: bytes, symbol: bytes, size: int) -> bytes | None:
    ident, kind, _, _, _, segments_at, sections_at, _, _, segment_size, segment_count, section_size, count, _ = (
        _HEADER.unpack_from(library)
    )
    sizes = (segment_size, section_size)
    if ident[:6] != b"\x7fELF\x02\x01" or kind != _SHARED or sizes != (_SEGMENT.size, _SECTION.size):
        return None
    segments = list(_rows(_SEGMENT, library, segments_at, segment_count))
    sections = list(_rows(_SECTION, library, sections_at, count))
    places = list(_symbol_places(library, sections, symbol))
    notes = [row for row in segments if row[0] == _NOTE]
    holders = {row[3] for _, row in places}
    if not notes or len(holders) != 1 or not all(_is_alone(sections[row[3]], row) for _, row in places):
        return None
    loaded = [row for row in segments if row[0] == _LOAD]
    align = max(_PAGE, *(row[7] for row in loaded))
    address = _round_up(max(row[3] + row[6] for row in loaded), align)
    offset = _round_up(len(library), align)
    segments.remove(notes[-1])
    last = max(i for i, row in enumerate(segments) if row[0] == _LOAD)
    segments.insert(last + 1, (_LOAD, _READABLE, offset, address, address, size, size, align))
    head = bytearray(library) + bytes(offset - len(library))
    for index, row in enumerate(segments):
        _SEGMENT.pack_into(head, segments_at + index * _SEGMENT.size, *row)
    for at, row in places:
        _SYMBOL.pack_into(head, at, *row[:4], address, size)
    (holder,) = holders
    old = sections[holder]
    _SECTION.pack_into(head, sections_at + holder * _SECTION.size, *old[:3], address, offset, size, *old[6:])
    return bytes(head)


def _rows(layout: struct.Struct, data: bytes, at: int, count: int) -> Iterator[_Row]:
    for index in range(count):
        yield layout.unpack_from(data, at + index * layout.size)


def _symbol_places(data: bytes, sections: list[_Row], symbol: bytes) -> Iterator[tuple[int, _Row]]:
    """(offset, row) of the symbol in each table that has it."""
    for section in sections:
        if section[1] not in _SYMBOL_TABLES:
            continue
        strings = sections[section[6]][4]
        for index in range(section[5] // _SYMBOL.size):
            at = section[4] + index * _SYMBOL.size
            row = _SYMBOL.unpack_from(data, at)
            start = strings + row[0]
            if data[start : data.index(b"\0", start)] == symbol:
                yield at, row


def _is_alone(section: _Row, symbol: _Row) -> bool:
    """Whether the section holds this symbol and nothing else."""
    return section[3] == symbol[4] and section[5] == symbol[5]


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
