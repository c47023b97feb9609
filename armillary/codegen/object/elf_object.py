"""Relocatable 64-bit ELF objects, read: sections, symbols, relocations.

In: the bytes of an object, the machine it must be for, the relocations that the reader's caller knows. Out: an
`ElfObject`. Invariant: an object that holds anything unknown (another machine, another kind of relocation,
thread-local data) is refused with `NotLoadable`, and nothing of it points outside its bytes. Loaded into this process
by `elf_loader.py`, linked into a shared library by `elf_link.py`.
Source: System V ABI, chapter 4.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from armillary.base.record import record

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
NOBITS = 8
WRITE, ALLOC, EXECUTE, TLS = 0x1, 0x2, 0x4, 0x400
UNDEFINED, ABSOLUTE = 0, 0xFFF1
_SYMTAB, _RELA, _COMMON = 2, 4, 0xFFF2
_STATIC_BINDING, _WEAK, _TLS_KIND = 0, 2, 6
_CONSTRUCTORS = (".init_array", ".fini_array", ".ctors", ".dtors")
_LARGEST = 1 << 28  # bytes of one section


class NotLoadable(Exception):
    """The object needs a loader or a linker that knows more."""


@record(frozen=False)
class Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    place: int = -1  # where whoever lays the sections out puts it


@record(frozen=False)
class Symbol:
    name: str
    section: int
    value: int
    is_global: bool
    is_weak: bool


@record(slots=True)
class Relocation:
    """A place in a section that depends on an address: `symbol` is an index into the object's symbols."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@record(frozen=False)
class ElfObject:
    data: bytes
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[Relocation] = field(default_factory=list)

    def bytes_of(self, section: Section) -> bytes:
        """What a section holds in the file."""
        return self.data[section.offset : section.offset + section.size]


def parse(data: bytes, machine: int, known: Mapping[int, int], constructors: bool = False) -> ElfObject:
    """An object for a machine (e_machine); `known`: the relocations that are understood, and the bytes each changes.

    One with `constructors` is refused unless the caller carries them on.
    """
    try:
        item = _parsed(data, machine)
        _check(item, known, constructors)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotLoadable(f"not a well-formed object: {error}") from error
    return item


def foreign_symbols(objects: Sequence[bytes]) -> set[str]:
    """The names that 64-bit ELF objects use and none of them defines."""
    wanted, defined = set[str](), set[str]()
    for data in objects:
        try:
            entries = list(_global_symbols(data))
        except (struct.error, IndexError, ValueError):
            continue  # not such an object, or a damaged one: whoever loads it says so
        wanted.update(name for name, section in entries if section == UNDEFINED)
        defined.update(name for name, section in entries if section != UNDEFINED)
    return wanted - defined - {"_GLOBAL_OFFSET_TABLE_", ""}


def _global_symbols(data: bytes) -> Iterator[tuple[str, int]]:
    """(name, section) of the symbols that other objects see."""
    sections = _read_sections(data)
    for table in (s for s in sections if s.kind == _SYMTAB):
        strings = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, SYMBOL.size):
            name, info, _, section, _, _ = SYMBOL.unpack_from(data, at)
            if info >> 4 != _STATIC_BINDING:
                yield _text(data, strings + name), section


def _parsed(data: bytes, machine: int) -> ElfObject:
    _, kind, machine_code, *_, flags, _, _, _, _, _, _ = HEADER.unpack_from(data)
    if kind != 1 or machine_code != machine or flags:
        raise NotLoadable(f"not a relocatable object of machine {machine}")
    sections = _read_sections(data)
    tables = [s for s in sections if s.kind == _SYMTAB]
    symbols = [s for table in tables for s in _read_symbols(data, table, sections)]
    item = ElfObject(data, sections, symbols)
    for section in sections:
        if section.kind == _RELA and is_loaded(sections[section.info]):
            for at in range(section.offset, section.offset + section.size, RELOCATION.size):
                offset, info, addend = RELOCATION.unpack_from(data, at)
                item.relocations.append(Relocation(section.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
    return item


def _read_sections(data: bytes) -> list[Section]:
    ident, _, _, _, _, _, start, *_, size, count, names = HEADER.unpack_from(data)
    if ident[:6] != b"\x7fELF\x02\x01" or size != SECTION.size:
        raise ValueError("not a 64-bit little-endian ELF file")
    rows = [SECTION.unpack_from(data, start + i * size) for i in range(count)]
    text = rows[names][4]
    return [Section(_text(data, text + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8])) for r in rows]


def _read_symbols(data: bytes, table: Section, sections: list[Section]) -> list[Symbol]:
    strings = sections[table.link].offset
    result = []
    for at in range(table.offset, table.offset + table.size, SYMBOL.size):
        name, info, _, section, value, _ = SYMBOL.unpack_from(data, at)
        if info & 15 == _TLS_KIND or section == _COMMON:
            raise NotLoadable("thread-local or common data")
        binding = info >> 4
        result.append(Symbol(_text(data, strings + name), section, value, binding != _STATIC_BINDING, binding == _WEAK))
    return result


def _check(item: ElfObject, known: Mapping[int, int], constructors: bool) -> None:
    for part in filter(is_loaded, item.sections):
        stored = 0 if part.kind == NOBITS else part.offset + part.size
        if stored > len(item.data) or part.size > _LARGEST or part.align > mmap.PAGESIZE:
            raise NotLoadable(f"section {part.name} lies outside the object, or is absurdly large")
    for symbol in item.symbols:
        if symbol.section not in (UNDEFINED, ABSOLUTE) and symbol.value > item.sections[symbol.section].size:
            raise NotLoadable(f"symbol {symbol.name} lies outside its section")
    for row in item.relocations:
        width = known.get(row.kind, 0)
        if not width or row.offset + width > item.sections[row.section].size or row.symbol >= len(item.symbols):
            raise NotLoadable(f"relocation of type {row.kind}")
        target = item.symbols[row.symbol].section
        if target not in (UNDEFINED, ABSOLUTE) and not is_loaded(item.sections[target]):
            raise NotLoadable("a relocation against a section that is not loaded")
    for section_ in item.sections:
        is_refused = not constructors and is_loaded(section_) and section_.name.startswith(_CONSTRUCTORS)
        if section_.flags & TLS or is_refused:
            raise NotLoadable(f"section {section_.name}")


def is_loaded(section: Section) -> bool:
    """Whether it takes memory when the code runs; nothing unwinds through kernels."""
    return bool(section.flags & ALLOC) and section.name != ".eh_frame"


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
