"""A shared library made of objects without a linker: x86-64 and AArch64, ELF.

In: relocatable objects, data by symbol, the names of the libraries that foreign functions come from, and perhaps the
size of a last symbol whose bytes the caller writes behind. Out: the bytes of a shared library, to the last one but
that tail's. Invariant: an object with anything unknown is refused with `NotLoadable` before a byte is written, and then
a C compiler links (`toolchain.py`); all addresses are bound when the library is opened; code is never writable.
What a machine needs: `elf_machines.py`. Objects that run in this process are not linked at all: `elf_loader.py`.
Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field

from armillary.base.record import record
from armillary.codegen.object.elf_machines import Machine, Via
from armillary.codegen.object.elf_object import (
    ABSOLUTE,
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
    Relocation,
    Section,
    Symbol,
    is_loaded,
    parse,
)

_SEGMENT = struct.Struct("<IIQQQQQQ")  # type flags offset vaddr paddr filesz memsz align
_PAIR = struct.Struct("<QQ")
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_X, _W, _R = 1, 2, 4
_SHARED_OBJECT = 3
_GLOBAL, _WEAK_BINDING, _OBJECT = 1, 2, 1
_NEEDED, _HASH, _STRTAB, _SYMTAB, _RELA_AT, _RELASZ, _RELAENT, _STRSZ, _SYMENT = 1, 4, 5, 6, 7, 8, 9, 10, 11
_FLAGS, _FLAGS_1, _NOW, _NOW_1 = 30, 0x6FFFFFFB, 8, 1
_ALIGNMENT = 64  # of data symbols
_SECTIONS = (
    "",
    ".hash",
    ".dynsym",
    ".dynstr",
    ".rela.dyn",
    ".rodata",
    ".text",
    ".dynamic",
    ".data",
    ".bss",
    ".shstrtab",
)


@record(slots=True)
class Tail:
    """A last symbol of `size` bytes that the caller writes behind the library."""

    name: str
    size: int


@record(frozen=False)
class _Image:
    """A library under construction. Places are addresses; a file offset is its address within its segment."""

    machine: Machine
    objects: list[ElfObject]
    data: Mapping[str, bytes]
    tail: Tail | None
    needed: Sequence[str]
    defined: dict[str, tuple[ElfObject, Symbol]] = field(default_factory=dict)
    foreign: dict[str, bool] = field(default_factory=dict)  # name -> is weak
    slots: dict[tuple[int, str], int] = field(default_factory=dict)  # (object, symbol) or (-1, foreign name) -> index
    stubs: dict[str, int] = field(default_factory=dict)
    addresses: int = 0  # relocations of whole addresses
    places: dict[str, int] = field(default_factory=dict)  # of tables, and of data symbols
    offsets: list[tuple[int, int, int]] = field(default_factory=list)  # segments: file offset, address, size
    dynamic: list[bytes] = field(default_factory=list)  # dynamic relocations


def link_library(
    objects: Sequence[bytes],
    data: Mapping[str, bytes],
    machine: Machine,
    needed: Sequence[str],
    tail: Tail | None = None,
) -> bytes:
    """The library's bytes; those of `tail` follow. Raises NotLoadable for objects that it cannot link."""
    parsed = [parse(item, machine.number, machine.known) for item in objects]
    image = _Image(machine, parsed, data, tail, needed)
    _collect(image)
    return _Writer(image).written()


def _collect(image: _Image) -> None:
    """Who defines what; which slots, stubs and dynamic relocations there will be."""
    for item in image.objects:
        for symbol in item.symbols:
            if symbol.is_global and symbol.section not in (UNDEFINED, ABSOLUTE):
                image.defined.setdefault(symbol.name, (item, symbol))
    for number, item in enumerate(image.objects):
        for row in item.relocations:
            _note_use(image, number, item, row)


def _note_use(image: _Image, number: int, item: ElfObject, row: Relocation) -> None:
    symbol = item.symbols[row.symbol]
    via = image.machine.kinds[row.kind].via
    if not is_loaded(item.sections[row.section]):
        return
    is_foreign = symbol.section == UNDEFINED and symbol.name not in image.defined
    if symbol.section == ABSOLUTE:
        raise NotLoadable(f"{symbol.name} is an absolute symbol")
    if is_foreign:
        image.foreign[symbol.name] = image.foreign.get(symbol.name, True) and symbol.is_weak
        if via is Via.SYMBOL:
            raise NotLoadable(f"{symbol.name} of another library is used without a slot")
    if via is Via.SLOT or (via is Via.CALL and is_foreign):
        key = (-1, symbol.name) if is_foreign or symbol.is_global else (number, str(row.symbol))
        image.slots.setdefault(key, len(image.slots))
    if via is Via.CALL and is_foreign:
        image.stubs.setdefault(symbol.name, len(image.stubs))
    image.addresses += via is Via.ADDRESS


def _up(value: int, to: int) -> int:
    return -(-value // to) * to


class _Writer:
    """Lays an image out and writes it: headers and constants, code, data; one segment each."""

    def __init__(self, image: _Image) -> None:
        self.image, self.machine = image, image.machine
        self.names = bytearray(b"\0")
        self.needed_at = [self._name(name) for name in image.needed]
        self.exported = sorted({*image.defined, *image.data, *((image.tail.name,) if image.tail else ())})
        self.symbols = [*image.foreign, *self.exported]
        self.index = {name: i + 1 for i, name in enumerate(self.symbols)}
        self.symbol_names = [self._name(name) for name in self.symbols]
        with_addresses = {
            id(item.sections[row.section])
            for item in image.objects
            for row in item.relocations
            if image.machine.kinds[row.kind].via is Via.ADDRESS
        }
        loaded = [s for item in image.objects for s in item.sections if is_loaded(s)]
        self.code = [s for s in loaded if s.flags & EXECUTE]
        rest = [s for s in loaded if not s.flags & EXECUTE]
        self.variables = [s for s in rest if s.flags & WRITE or id(s) in with_addresses]
        self.is_changed = {id(s) for s in self.variables}
        self.constants = [s for s in rest if id(s) not in self.is_changed]
        self.sizes = self._lay_out()
        self.file = bytearray(self._end())

    def _name(self, text: str) -> int:
        at = len(self.names)
        self.names += text.encode() + b"\0"
        return at

    def _lay_out(self) -> dict[str, int]:
        """Give everything its place; the sizes of the tables."""
        image, machine = self.image, self.machine
        count = len(image.slots) + image.addresses
        sizes = {
            ".hash": 4 * (2 + _buckets(len(self.symbols)) + len(self.symbols) + 1),
            ".dynsym": SYMBOL.size * (1 + len(self.symbols)),
            ".dynstr": len(self.names),
            ".rela.dyn": RELOCATION.size * count,
            ".dynamic": _PAIR.size * (len(image.needed) + 11),
        }
        segments = 5 + (image.tail is not None)
        at = HEADER.size + _SEGMENT.size * segments
        for name in (".hash", ".dynsym", ".dynstr", ".rela.dyn"):
            at = image.places[name] = _up(at, 8)
            at += sizes[name]
        begin = at = _up(at, _ALIGNMENT)
        at = _placed(self.constants, at)
        for name, value in image.data.items():
            at = image.places[name] = _up(at, _ALIGNMENT)
            at += len(value)
        sizes[".rodata"], image.places[".rodata"] = at - begin, begin
        image.offsets.append((0, 0, at))
        file_at, at = self._next_segment(at)
        image.places[".text"] = at
        end = _placed(self.code, at)
        image.places["stubs"] = end = _up(end, 16)
        end += machine.stub_size * len(image.stubs)
        sizes[".text"] = end - at
        image.offsets.append((file_at, at, end - at))
        file_at, at = self._next_segment(end)
        return self._lay_out_variables(sizes, file_at, at)

    def _address_behind(self, end: int, file_at: int) -> int:
        """The address of a file offset in a segment of its own, behind the address `end`."""
        return _up(end, self.machine.page) + file_at % self.machine.page

    def _lay_out_variables(self, sizes: dict[str, int], file_at: int, first: int) -> dict[str, int]:
        image = self.image
        image.places[".dynamic"] = first
        image.places[".data"] = image.places["slots"] = at = _up(first + sizes[".dynamic"], 16)
        at += 8 * len(image.slots)
        at = _placed([s for s in self.variables if s.kind != NOBITS], at)
        sizes[".data"] = at - image.places[".data"]
        image.offsets.append((file_at, first, at - first))
        image.places[".bss"] = at
        sizes[".bss"] = _placed([s for s in self.variables if s.kind == NOBITS], at) - at
        return sizes

    def _next_segment(self, end: int) -> tuple[int, int]:
        """File offset and address of a segment behind the last one, whose addresses end at `end`."""
        offset, _, size = self.image.offsets[-1]
        file_at = _up(offset + size, 16)
        return file_at, self._address_behind(end, file_at)

    def _end(self) -> int:
        """Where the section table ends, and with a tail where that begins."""
        offset, _, size = self.image.offsets[-1]
        self.names_at = offset + size
        self.section_names = bytearray()
        for name in (*_SECTIONS, ".tail"):
            self.section_names += name.encode() + b"\0"
        self.table_at = _up(self.names_at + len(self.section_names), 8)
        end = self.table_at + SECTION.size * (len(_SECTIONS) + (self.image.tail is not None))
        if self.image.tail is None:
            return end
        end = _up(end, 4096)
        self.tail_at = self._address_behind(self.image.places[".bss"] + self.sizes[".bss"], end)
        self.image.places[self.image.tail.name] = self.tail_at
        return end

    def written(self) -> bytes:
        """The whole file."""
        for item in self.image.objects:
            for section in item.sections:
                if is_loaded(section) and section.kind != NOBITS:
                    self._put(section.place, item.bytes_of(section))
        for name, value in self.image.data.items():
            self._put(self.image.places[name], value)
        self._write_slots()
        for number, item in enumerate(self.image.objects):
            for row in item.relocations:
                if is_loaded(item.sections[row.section]):
                    self._relocate(number, item, row)
        self._write_tables()
        self._write_headers()
        return bytes(self.file)

    def _offset(self, place: int) -> int:
        for offset, address, size in reversed(self.image.offsets):
            if place >= address:
                if place - address > size:
                    raise NotLoadable(f"the address {place:#x} is in no segment")
                return offset + place - address
        raise NotLoadable(f"the address {place:#x} is in no segment")

    def _put(self, place: int, value: bytes) -> None:
        at = self._offset(place)
        self.file[at : at + len(value)] = value

    def _address(self, item: ElfObject, symbol: Symbol) -> int | None:
        """Where a symbol of this library is; None for another library's."""
        if symbol.section == UNDEFINED:
            if symbol.name not in self.image.defined:
                return None
            item, symbol = self.image.defined[symbol.name]
        return item.sections[symbol.section].place + symbol.value

    def _write_slots(self) -> None:
        image, machine = self.image, self.machine
        for (number, name), index in image.slots.items():
            place = image.places["slots"] + 8 * index
            if number >= 0 or name in image.defined:
                item, symbol = image.defined[name] if number < 0 else _local(image.objects[number], name)
                address = item.sections[symbol.section].place + symbol.value
                image.dynamic.append(RELOCATION.pack(place, machine.relative, address))
                self._put(place, struct.pack("<Q", address))
            else:
                image.dynamic.append(RELOCATION.pack(place, self.index[name] << 32 | machine.slot, 0))
        for name, index in image.stubs.items():
            place = image.places["stubs"] + machine.stub_size * index
            self._put(place, machine.stub(place, image.places["slots"] + 8 * image.slots[-1, name]))

    def _relocate(self, number: int, item: ElfObject, row: Relocation) -> None:
        image, kind = self.image, self.machine.kinds[row.kind]
        symbol, place = item.symbols[row.symbol], item.sections[row.section].place + row.offset
        address = self._address(item, symbol)
        if kind.via is Via.ADDRESS:
            if address is None:
                entry = self.index[symbol.name] << 32 | self.machine.absolute
                image.dynamic.append(RELOCATION.pack(place, entry, row.addend))
                return
            image.dynamic.append(RELOCATION.pack(place, self.machine.relative, address + row.addend))
            value = address
        elif kind.via is Via.SLOT:
            key = (-1, symbol.name) if address is None or symbol.is_global else (number, str(row.symbol))
            value = image.places["slots"] + 8 * image.slots[key]
        elif address is None:
            value = image.places["stubs"] + self.machine.stub_size * image.stubs[symbol.name]
        else:
            value = address
        at = self._offset(place)
        self.file[at : at + kind.size] = kind.rule(place, value + row.addend, bytes(self.file[at : at + kind.size]))

    def _write_tables(self) -> None:
        image, places = self.image, self.image.places
        rows = [SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        for name, text in zip(self.symbols, self.symbol_names, strict=True):
            rows.append(SYMBOL.pack(text, *self._symbol_row(name)))
        self._put(places[".dynsym"], b"".join(rows))
        self._put(places[".dynstr"], bytes(self.names))
        self._put(places[".rela.dyn"], b"".join(image.dynamic))
        self._put(places[".hash"], _hash_table(self.symbols))
        pairs = [(_NEEDED, at) for at in self.needed_at]
        pairs += [(_HASH, places[".hash"]), (_STRTAB, places[".dynstr"]), (_SYMTAB, places[".dynsym"])]
        pairs += [(_STRSZ, len(self.names)), (_SYMENT, SYMBOL.size)]
        pairs += [(_RELA_AT, places[".rela.dyn"]), (_RELASZ, self.sizes[".rela.dyn"]), (_RELAENT, RELOCATION.size)]
        pairs += [(_FLAGS, _NOW), (_FLAGS_1, _NOW_1), (0, 0)]
        self._put(places[".dynamic"], b"".join(_PAIR.pack(*pair) for pair in pairs))

    def _symbol_row(self, name: str) -> tuple[int, int, int, int, int]:
        """Info, other, section, value, size."""
        image = self.image
        if name in image.foreign:
            return (_WEAK_BINDING if image.foreign[name] else _GLOBAL) << 4, 0, UNDEFINED, 0, 0
        if image.tail is not None and name == image.tail.name:
            return _GLOBAL << 4 | _OBJECT, 0, len(_SECTIONS), image.places[name], image.tail.size
        if name in image.data:
            place = image.places[name]
            return _GLOBAL << 4 | _OBJECT, 0, _SECTIONS.index(".rodata"), place, len(image.data[name])
        item, symbol = image.defined[name]
        section = item.sections[symbol.section]
        return _GLOBAL << 4, 0, self._section_of(section), section.place + symbol.value, 0

    def _section_of(self, section: Section) -> int:
        if section.flags & EXECUTE:
            return _SECTIONS.index(".text")
        if section.kind == NOBITS:
            return _SECTIONS.index(".bss")
        return _SECTIONS.index(".data" if id(section) in self.is_changed else ".rodata")

    def _write_headers(self) -> None:
        image, page = self.image, self.machine.page
        segments = []
        for (offset, address, size), flags in zip(image.offsets, (_R, _R | _X, _R | _W), strict=True):
            memory = size + (self.sizes[".bss"] if flags & _W else 0)
            segments.append((_LOAD, flags, offset, address, address, size, memory, page))
        if image.tail is not None:
            at, size = self.tail_at, image.tail.size
            segments.append((_LOAD, _R, len(self.file), at, at, size, size, page))
        at, size = image.places[".dynamic"], self.sizes[".dynamic"]
        segments.append((_DYNAMIC, _R | _W, self._offset(at), at, at, size, size, 8))
        segments.append((_STACK, _R | _W, 0, 0, 0, 0, 0, 16))
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        tables = len(_SECTIONS) + (image.tail is not None)
        names = _SECTIONS.index(".shstrtab")
        head = HEADER.pack(
            ident,
            _SHARED_OBJECT,
            self.machine.number,
            1,
            0,
            HEADER.size,
            self.table_at,
            0,
            HEADER.size,
            _SEGMENT.size,
            len(segments),
            SECTION.size,
            tables,
            names,
        )
        self.file[: len(head)] = head
        for index, row in enumerate(segments):
            _SEGMENT.pack_into(self.file, HEADER.size + index * _SEGMENT.size, *row)
        self._write_sections()

    def _write_sections(self) -> None:
        """For debuggers and `objdump`; the dynamic loader reads none of it."""
        image = self.image
        dynsym, dynstr = _SECTIONS.index(".dynsym"), _SECTIONS.index(".dynstr")
        kinds = {".hash": 5, ".dynsym": 11, ".dynstr": 3, ".rela.dyn": 4, ".dynamic": 6, ".bss": NOBITS, ".shstrtab": 3}
        links = {".hash": dynsym, ".dynsym": dynstr, ".rela.dyn": dynsym, ".dynamic": dynstr}
        sizes = {".hash": 4, ".dynsym": SYMBOL.size, ".rela.dyn": RELOCATION.size, ".dynamic": _PAIR.size}
        flags = {".text": 6, ".data": 3, ".dynamic": 3, ".bss": 3, ".shstrtab": 0}
        rows = [(0,) * 10]
        for name in _SECTIONS[1:]:
            text = self.section_names.index(b"\0" + name.encode() + b"\0") + 1
            place = image.places.get(name, 0)
            offset, size = self.names_at, len(self.section_names)
            if name != ".shstrtab":
                offset, size = self._offset(place), self.sizes[name]
            rows.append(
                (
                    text,
                    kinds.get(name, 1),
                    flags.get(name, 2),
                    place,
                    offset,
                    size,
                    links.get(name, 0),
                    1 if name == ".dynsym" else 0,
                    8,
                    sizes.get(name, 0),
                )
            )
        if image.tail is not None:
            text = self.section_names.index(b".tail\0")
            rows.append((text, 1, 2, self.tail_at, len(self.file), image.tail.size, 0, 0, _ALIGNMENT, 0))
        self.file[self.names_at : self.names_at + len(self.section_names)] = self.section_names
        for index, row in enumerate(rows):
            SECTION.pack_into(self.file, self.table_at + index * SECTION.size, *row)


def _buckets(symbols: int) -> int:
    return max(1, symbols // 2)


def _hash_table(symbols: Sequence[str]) -> bytes:
    """Buckets and chains of symbol indices by the hash of the names; index 0 is no symbol."""
    buckets, chains = [0] * _buckets(len(symbols)), [0] * (len(symbols) + 1)
    for index, name in enumerate(symbols, 1):
        bucket = _hash(name.encode()) % len(buckets)
        chains[index], buckets[bucket] = buckets[bucket], index
    numbers = (len(buckets), len(chains), *buckets, *chains)
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _hash(name: bytes) -> int:
    """The System V ABI's hash of a symbol's name."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value & 0xFFFFFFFF


def _local(item: ElfObject, index: str) -> tuple[ElfObject, Symbol]:
    return item, item.symbols[int(index)]


def _placed(sections: Sequence[Section], at: int) -> int:
    """Put sections behind one another from an address on; where they end."""
    for section in sections:
        section.place = _up(at, max(16, section.align))
        at = section.place + section.size
    return at
