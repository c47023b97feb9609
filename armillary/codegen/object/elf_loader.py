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
from collections.abc import Callable, Sequence

from armillary.codegen.object.elf_object import (
    ABSOLUTE,
    NOBITS,
    UNDEFINED,
    WRITE,
    ElfObject,
    NotLoadable,
    Section,
    Symbol,
    is_loaded,
    parse,
)

_ABS64, _PC32, _GOTPCREL, _PLT32, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 9, 4, 24, 41, 42
RELOCATIONS = {_ABS64: 8, _PC32: 4, _GOTPCREL: 4, _PLT32: 4, _PC64: 8, _GOTPCRELX: 4, _REX_GOTPCRELX: 4}
_JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp *0(%rip); the address follows
_SLOT = 16
MACHINE = 62  # EM_X86_64


class ElfImage:
    """Objects in one block of memory: code and constants, one slot (address, or jump) per foreign or far symbol, and
    from a page of its own on what the code may write.
    """

    def __init__(self, objects: Sequence[bytes], foreign: Callable[[str], int]) -> None:
        parsed = [parse(data, MACHINE, RELOCATIONS) for data in objects]
        sections = [section for item in parsed for section in item.sections if is_loaded(section)]
        self._slots_at = _rounded(_lay_out([s for s in sections if not s.flags & WRITE], 0), _SLOT)
        self._slots: dict[tuple[int, str], int] = {}
        self._defined: dict[str, int] = {}
        wanted = sum(len(item.relocations) for item in parsed)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._sealed = _rounded(self._slots_at + 2 * _SLOT * wanted, mmap.PAGESIZE)
        size = _lay_out([s for s in sections if s.flags & WRITE], self._sealed)
        self._memory = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for item in parsed:
            self._copy(item)
        for item in parsed:
            self._relocate(item, foreign)
        self._seal()

    def address(self, symbol: str) -> int:
        """The address of a global symbol; 0 if the objects do not define it."""
        return self._defined.get(symbol, 0)

    def _copy(self, item: ElfObject) -> None:
        for section in item.sections:
            if section.place >= 0 and section.kind != NOBITS:
                self._memory[section.place : section.place + section.size] = item.bytes_of(section)
        for symbol in item.symbols:
            if symbol.is_global and symbol.section not in (UNDEFINED, ABSOLUTE):
                self._defined.setdefault(symbol.name, self._base + item.sections[symbol.section].place + symbol.value)

    def _relocate(self, item: ElfObject, foreign: Callable[[str], int]) -> None:
        for row in item.relocations:
            kind, addend, place = row.kind, row.addend, item.sections[row.section].place + row.offset
            target = self._target(item, item.symbols[row.symbol], foreign)
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
                raise NotLoadable(f"{item.symbols[row.symbol].name} is too far away")
            self._put("<i", place, distance)

    def _target(self, item: ElfObject, symbol: Symbol, foreign: Callable[[str], int]) -> int:
        if symbol.section == ABSOLUTE:
            return symbol.value
        if symbol.section != UNDEFINED:
            return self._base + item.sections[symbol.section].place + symbol.value
        result = self._defined.get(symbol.name) or foreign(symbol.name)
        if not result and not symbol.is_weak:  # the address of a weak one that is missing is 0
            raise NotLoadable(f"{symbol.name} is not in this process")
        return result

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
        """Code becomes executable, and is no longer writable."""
        mprotect = ctypes.CDLL(None, use_errno=True).mprotect
        mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if mprotect(self._base, self._sealed, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            raise NotLoadable(f"memory cannot be made executable (error {ctypes.get_errno()})")


def _lay_out(sections: Sequence[Section], size: int) -> int:
    """Places for sections from `size` on; where they end."""
    for section in sections:
        section.place = _rounded(size, max(section.align, 16))
        size = section.place + section.size
    return size


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step
