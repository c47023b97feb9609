"""Several relocatable objects, and data, as one: what `save("m.o")` writes, for any linker to make a library of.

In: ELF objects of one machine (x86-64 or AArch64), data by symbol. Out: the bytes of one relocatable object, or None
where an object holds what `elf_object.py` does not know. Invariant: every section that is loaded is there once, with
its relocations; a function that two objects define is the first one's to others, and each object's own to itself.
Shared libraries without a linker: `elf_link.py`. Source: System V ABI, chapter 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.codegen.object.elf_machines import MACHINES
from armillary.codegen.object.elf_object import (
    ABSOLUTE,
    ALLOC,
    EXECUTE,
    HEADER,
    NOBITS,
    RELOCATION,
    SECTION,
    SYMBOL,
    UNDEFINED,
    WRITE,
    ElfObject,
    NotLoadable,
    Symbol,
    is_loaded,
    parse,
)

_PROGBITS, _SYMTAB, _STRTAB, _RELA, _INFO_LINK = 1, 2, 3, 4, 0x40
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_OBJECT, _FUNCTION, _SECTION_SYMBOL = 1, 2, 3
_ALIGNMENT = 64  # of data symbols
_MACHINE_AT = slice(18, 20)  # e_machine


def merged_object(objects: Sequence[bytes], data: Mapping[str, bytes], local: bool = False) -> bytes | None:
    """One object of all; None where they cannot be read (another machine, thread-local data).

    `local`: nothing that it defines is seen by other objects; its constructors are.
    """
    machines = {machine.number: machine for machine in MACHINES.values()}
    machine = machines.get(int.from_bytes(objects[0][_MACHINE_AT], "little")) if objects else None
    if machine is None:
        return None
    try:
        parsed = [parse(item, machine.number, machine.known, constructors=local) for item in objects]
        return _Merge(parsed, data, local).written(machine.number)
    except NotLoadable:
        return None


class _Names(bytearray):
    """A table of strings."""

    def at(self, text: str) -> int:
        where = len(self)
        self.extend(text.encode() + b"\0")
        return where


class _Merge:
    """Sections in order, symbols by what they are, then the file."""

    def __init__(self, objects: Sequence[ElfObject], data: Mapping[str, bytes], is_local: bool) -> None:
        self.objects, self.data, self.is_local = objects, data, is_local
        self.names, self.section_names = _Names(b"\0"), _Names(b"\0")
        self.rows: list[list[int]] = [[0] * 10]  # of sections; name type flags addr offset size link info align entsize
        self.contents: list[bytes] = [b""]
        self.placed: dict[tuple[int, int], int] = {}  # (object, its section) -> section
        self.local_rows: list[bytes] = [SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        self.global_rows: list[bytes] = []
        self.local: dict[tuple[int, int], int] = {}  # (object, its symbol) -> index of a local symbol
        self.shared: dict[str, int] = {}  # name -> place among the global symbols
        self.hidden: dict[str, int] = {}  # name -> index of a local symbol, of what would be global

    def written(self, machine: int) -> bytes:
        """The file."""
        for number, item in enumerate(self.objects):
            for index, section in enumerate(item.sections):
                if is_loaded(section):
                    held = b"" if section.kind == NOBITS else item.bytes_of(section)
                    flags = section.flags & (ALLOC | WRITE | EXECUTE)
                    self.placed[number, index] = self._section(section.name, section.kind, flags, held, section.align)
                    self.rows[-1][5] = section.size
        self._place_symbols()
        self._write_relocations()
        self._section(".note.GNU-stack", _PROGBITS, 0, b"", 1)
        strings = self._section(".strtab", _STRTAB, 0, bytes(self.names), 1)
        symbols = self._section(".symtab", _SYMTAB, 0, b"".join(self.local_rows + self.global_rows), 8)
        self.rows[symbols][6:] = [strings, len(self.local_rows), 8, SYMBOL.size]
        for row in self.rows:
            if row[1] == _RELA:
                row[6] = symbols
        return self._file(machine)

    def _section(self, name: str, kind: int, flags: int, held: bytes, align: int) -> int:
        self.rows.append([self.section_names.at(name), kind, flags, 0, 0, len(held), 0, 0, align, 0])
        self.contents.append(held)
        return len(self.rows) - 1

    def _place_symbols(self) -> None:
        for name, value in self.data.items():
            where = self._section(".rodata.armillary", _PROGBITS, ALLOC, value, _ALIGNMENT)
            self._share(name, _GLOBAL, _OBJECT, where, 0, len(value))
        for number, item in enumerate(self.objects):
            for index, symbol in enumerate(item.symbols):
                if symbol.section not in (UNDEFINED, ABSOLUTE) and (number, symbol.section) in self.placed:
                    self._define(number, index, symbol)
        for item in self.objects:
            for symbol in item.symbols:
                if symbol.section == UNDEFINED and symbol.name and not self._is_defined(symbol.name):
                    self._share(symbol.name, _WEAK if symbol.is_weak else _GLOBAL, 0, UNDEFINED, 0, 0)

    def _define(self, number: int, index: int, symbol: Symbol) -> None:
        where = self.placed[number, symbol.section]
        if symbol.is_global and not self._is_defined(symbol.name):
            kind = _FUNCTION if self.rows[where][2] & EXECUTE else _OBJECT
            self._share(symbol.name, _WEAK if symbol.is_weak else _GLOBAL, kind, where, symbol.value, 0)
            return
        is_start = not symbol.name and symbol.value == 0
        self.local[number, index] = len(self.local_rows)
        row = (self.names.at(symbol.name), _SECTION_SYMBOL if is_start else 0, 0, where, symbol.value, 0)
        self.local_rows.append(SYMBOL.pack(*row))

    def _is_defined(self, name: str) -> bool:
        return name in self.shared or name in self.hidden

    def _share(self, name: str, binding: int, kind: int, section: int, value: int, size: int) -> None:
        if self.is_local and section != UNDEFINED:
            self.hidden[name] = len(self.local_rows)
            self.local_rows.append(SYMBOL.pack(self.names.at(name), kind, 0, section, value, size))
            return
        self.shared[name] = len(self.global_rows)
        self.global_rows.append(SYMBOL.pack(self.names.at(name), binding << 4 | kind, 0, section, value, size))

    def _write_relocations(self) -> None:
        entries: dict[int, list[bytes]] = {}
        for number, item in enumerate(self.objects):
            for row in item.relocations:
                symbol = self._index(number, row.symbol, item.symbols[row.symbol])
                packed = RELOCATION.pack(row.offset, symbol << 32 | row.kind, row.addend)
                entries.setdefault(self.placed[number, row.section], []).append(packed)
        for section, packed_rows in entries.items():
            self._section(".rela", _RELA, _INFO_LINK, b"".join(packed_rows), 8)
            self.rows[-1][7], self.rows[-1][9] = section, RELOCATION.size

    def _index(self, number: int, index: int, symbol: Symbol) -> int:
        local = self.local.get((number, index))
        if local is not None or not symbol.name:
            return local or 0
        if symbol.name in self.hidden:
            return self.hidden[symbol.name]
        if symbol.name not in self.shared:
            raise NotLoadable(f"{symbol.name} is an absolute symbol")
        return len(self.local_rows) + self.shared[symbol.name]

    def _file(self, machine: int) -> bytes:
        names = self._section(".shstrtab", _STRTAB, 0, b"", 1)
        self.contents[names] = bytes(self.section_names)
        self.rows[names][5] = len(self.section_names)
        body = bytearray(HEADER.size)
        for row, held in zip(self.rows, self.contents, strict=True):
            body.extend(bytes(-len(body) % max(1, row[8])))
            row[4] = len(body) if row[1] else 0
            body.extend(held)
        body.extend(bytes(-len(body) % 8))
        table = len(body)
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        sizes = (HEADER.size, 0, 0, SECTION.size, len(self.rows), names)
        body[: HEADER.size] = HEADER.pack(ident, 1, machine, 1, 0, 0, table, 0, *sizes)
        for row in self.rows:
            body.extend(SECTION.pack(*row))
        return bytes(body)
