"""x86-64 ELF objects loaded into this process by a few pages of Python, so that running needs no LLVM.

In: relocatable objects (bytes) and a way to find foreign functions. Out: addresses of the symbols they define, in
memory that is executable and no longer writable. Invariant: an object that uses anything unknown (another machine,
another kind of relocation, thread-local data) is refused with `NotLoadable` before any code can run; then `jit.py` asks
LLVM.
Source: System V ABI, AMD64 supplement, the tables of relocation types.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from armillary.base.record import record

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_ALLOC, _TLS = 0x2, 0x400
_ABS64, _PC32, _GOTPCREL, _PLT32, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 9, 4, 24, 41, 42
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp *0(%rip); the address follows
_SLOT = 16
_STATIC_BINDING, _WEAK, _TLS_KIND = 0, 2, 6
MACHINE = 62  # EM_X86_64
_LARGEST = 1 << 28  # bytes of one section


class NotLoadable(Exception):
    """The object needs a loader that knows more."""


@record(frozen=False)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    place: int = -1  # in the block of all sections


@record(frozen=False)
class _Symbol:
    name: str
    section: int
    value: int
    is_global: bool
    is_weak: bool


@record(frozen=False)
class _Object:
    data: bytes
    sections: list[_Section]
    symbols: list[_Symbol]
    relocations: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # section offset type symbol addend


class ElfImage:
    """Objects in one block of memory: sections, then one slot (address, or jump) per foreign or far symbol."""

    def __init__(self, objects: Sequence[bytes], find: Callable[[str], int]) -> None:
        parsed = [_parse(data) for data in objects]
        size = 0
        for item in parsed:
            size = _lay_out(item, size)
        self._slots_at = -(-size // _SLOT) * _SLOT
        self._slots: dict[tuple[int, str], int] = {}
        self._defined: dict[str, int] = {}
        wanted = sum(len(item.relocations) for item in parsed)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(self._slots_at + 2 * _SLOT * wanted, mmap.PAGESIZE), flags)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for item in parsed:
            self._copy(item)
        for item in parsed:
            self._relocate(item, find)
        self._seal()

    def address(self, symbol: str) -> int:
        """The address of a global symbol; 0 if the objects do not define it."""
        return self._defined.get(symbol, 0)

    def _copy(self, item: _Object) -> None:
        for section in item.sections:
            if section.place >= 0 and section.kind != _NOBITS:
                self._memory[section.place : section.place + section.size] = item.data[
                    section.offset : section.offset + section.size
                ]
        for symbol in item.symbols:
            if symbol.is_global and symbol.section not in (_UNDEFINED, _ABSOLUTE):
                self._defined.setdefault(symbol.name, self._base + item.sections[symbol.section].place + symbol.value)

    def _relocate(self, item: _Object, find: Callable[[str], int]) -> None:
        for section, offset, kind, index, addend in item.relocations:
            place = item.sections[section].place + offset
            target = self._target(item, item.symbols[index], find)
            if kind == _ABS64:
                self._put("<Q", place, (target + addend) & 0xFFFFFFFFFFFFFFFF)
                continue
            if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
                target = self._slot("<Q", target, target)
            distance = target + addend - (self._base + place)
            if kind == _PC64:
                self._put("<q", place, distance)
                continue
            if kind == _PLT32 and not -(1 << 31) <= distance < 1 << 31:
                distance = self._slot("<6sQ", target, _JUMP, target) + addend - (self._base + place)
            if not -(1 << 31) <= distance < 1 << 31:
                raise NotLoadable(f"{item.symbols[index].name} is too far away")
            self._put("<i", place, distance)

    def _target(self, item: _Object, symbol: _Symbol, find: Callable[[str], int]) -> int:
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section != _UNDEFINED:
            return self._base + item.sections[symbol.section].place + symbol.value
        found = self._defined.get(symbol.name) or find(symbol.name)
        if not found and not symbol.is_weak:  # the address of a weak one that is missing is 0
            raise NotLoadable(f"{symbol.name} is not in this process")
        return found

    def _slot(self, layout: str, target: int, *values: object) -> int:
        """The address of a slot with these values, one for each target and layout."""
        key = (target, layout)
        if key not in self._slots:
            place = self._slots_at + _SLOT * len(self._slots)
            self._put(layout, place, *values)
            self._slots[key] = self._base + place
        return self._slots[key]

    def _put(self, layout: str, place: int, *values: object) -> None:
        struct.pack_into(layout, self._memory, place, *values)

    def _seal(self) -> None:
        """Executable, and no longer writable."""
        mprotect = ctypes.CDLL(None, use_errno=True).mprotect
        mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if mprotect(self._base, len(self._memory), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            raise NotLoadable(f"memory cannot be made executable (error {ctypes.get_errno()})")


def foreign_symbols(objects: Sequence[bytes]) -> set[str]:
    """The names that 64-bit ELF objects use and none of them defines."""
    wanted, defined = set[str](), set[str]()
    for data in objects:
        try:
            entries = list(_global_symbols(data))
        except (struct.error, IndexError, ValueError):
            continue  # not such an object, or a damaged one: whoever loads it says so
        wanted.update(name for name, section in entries if section == _UNDEFINED)
        defined.update(name for name, section in entries if section != _UNDEFINED)
    return wanted - defined - {"_GLOBAL_OFFSET_TABLE_", ""}


def _global_symbols(data: bytes) -> Iterator[tuple[str, int]]:
    """(name, section) of the symbols that other objects see."""
    sections = _read_sections(data)
    for table in (s for s in sections if s.kind == _SYMTAB):
        strings = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            if info >> 4 != _STATIC_BINDING:
                yield _text(data, strings + name), section


def _parse(data: bytes) -> _Object:
    try:
        return _parsed(data)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotLoadable(f"not a well-formed object: {error}") from error


def _parsed(data: bytes) -> _Object:
    _, kind, machine, *_, flags, _, _, _, _, _, _ = _HEADER.unpack_from(data)
    if kind != 1 or machine != MACHINE or flags:
        raise NotLoadable("not a relocatable x86-64 object")
    sections = _read_sections(data)
    tables = [s for s in sections if s.kind == _SYMTAB]
    symbols = [s for table in tables for s in _read_symbols(data, table, sections)]
    item = _Object(data, sections, symbols)
    for section in sections:
        if section.kind == _RELA and _is_loaded(sections[section.info]):
            for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(data, at)
                item.relocations.append((section.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
    _check(item)
    return item


def _read_sections(data: bytes) -> list[_Section]:
    ident, _, _, _, _, _, start, *_, size, count, names = _HEADER.unpack_from(data)
    if ident[:6] != b"\x7fELF\x02\x01" or size != _SECTION.size:
        raise ValueError("not a 64-bit little-endian ELF file")
    rows = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    text = rows[names][4]
    return [_Section(_text(data, text + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8])) for r in rows]


def _read_symbols(data: bytes, table: _Section, sections: list[_Section]) -> list[_Symbol]:
    strings = sections[table.link].offset
    found = []
    for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
        name, info, _, section, value, _ = _SYMBOL.unpack_from(data, at)
        if info & 15 == _TLS_KIND or section == _COMMON:
            raise NotLoadable("thread-local or common data")
        binding = info >> 4
        found.append(_Symbol(_text(data, strings + name), section, value, binding != _STATIC_BINDING, binding == _WEAK))
    return found


def _check(item: _Object) -> None:
    for part in filter(_is_loaded, item.sections):
        stored = 0 if part.kind == _NOBITS else part.offset + part.size
        if stored > len(item.data) or part.size > _LARGEST or part.align > mmap.PAGESIZE:
            raise NotLoadable(f"section {part.name} lies outside the object, or is absurdly large")
    for symbol in item.symbols:
        if symbol.section not in (_UNDEFINED, _ABSOLUTE) and symbol.value > item.sections[symbol.section].size:
            raise NotLoadable(f"symbol {symbol.name} lies outside its section")
    known = (_ABS64, _PC32, _GOTPCREL, _PLT32, _PC64, _GOTPCRELX, _REX_GOTPCRELX)
    for section, offset, kind, index, _ in item.relocations:
        width = 8 if kind in (_ABS64, _PC64) else 4
        if kind not in known or offset + width > item.sections[section].size or index >= len(item.symbols):
            raise NotLoadable(f"relocation of type {kind}")
        target = item.symbols[index].section
        if target not in (_UNDEFINED, _ABSOLUTE) and not _is_loaded(item.sections[target]):
            raise NotLoadable("a relocation against a section that is not loaded")
    for section_ in item.sections:
        if section_.flags & _TLS or (_is_loaded(section_) and section_.name in (".init_array", ".ctors")):
            raise NotLoadable(f"section {section_.name}")


def _is_loaded(section: _Section) -> bool:
    return bool(section.flags & _ALLOC) and section.name != ".eh_frame"  # nothing unwinds through kernels


def _lay_out(item: _Object, size: int) -> int:
    for section in item.sections:
        if _is_loaded(section):
            align = max(section.align, 16)
            section.place = -(-size // align) * align
            size = section.place + section.size
    return size


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
