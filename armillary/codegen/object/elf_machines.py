"""What a linker has to know of a machine: page size, relocations, how a call reaches another library.

In: nothing. Out: `MACHINES`, a row for each architecture that `elf_link.py` writes shared libraries for. Invariant: a
relocation that is not in a row's table is refused, so an object is linked right or not at all. A rule takes where the
relocation is (`place`), what it wants (`value`: symbol plus addend, or the address of the symbol's GOT slot), and the
bytes there; it gives the new bytes.
Sources: System V ABI, AMD64 supplement; ELF for the Arm 64-bit Architecture (AAELF64).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum

from armillary.base.record import record
from armillary.codegen.object.elf_object import NotLoadable

Rule = Callable[[int, int, bytes], bytes]  # place, value, bytes there -> new bytes


class Via(Enum):
    """What the value of a relocation is."""

    SYMBOL = "the symbol itself"
    CALL = "the symbol, or a stub that jumps to it where another library has it"
    SLOT = "the slot of the global offset table that holds the symbol's address"
    ADDRESS = "the symbol's address in memory, which the dynamic loader writes"


@record(slots=True)
class Kind:
    """A relocation: how many bytes it changes, what its value is, and how it is written."""

    size: int
    via: Via
    rule: Rule


@record(slots=True)
class Machine:
    """An architecture: e_machine, page size, relocations by number, the dynamic ones, the stub of a foreign call."""

    number: int
    page: int
    kinds: Mapping[int, Kind]
    absolute: int  # dynamic: the address of a symbol plus an addend
    slot: int  # dynamic: the address of a symbol, in a slot
    relative: int  # dynamic: the library's base plus an addend
    stub_size: int
    stub: Callable[[int, int], bytes]  # place of the stub, place of the slot -> its code

    @property
    def known(self) -> dict[int, int]:
        """The relocations, as `elf_object.parse` takes them."""
        return {number: kind.size for number, kind in self.kinds.items()}


def _fitting(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise NotLoadable(f"a distance of {value} bytes does not fit {bits} bits")
    return value


def _distance(layout: str) -> Rule:
    bits = 8 * struct.calcsize(layout)
    return lambda place, value, _: struct.pack(layout, _fitting(value - place, bits))


def _absolute(place: int, value: int, _: bytes) -> bytes:
    del place
    return struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)


def _x86_stub(place: int, slot: int) -> bytes:
    """jmp *slot(%rip), padded with int3."""
    return b"\xff\x25" + struct.pack("<i", _fitting(slot - (place + 6), 32)) + b"\xcc\xcc"


def _patched(code: bytes, value: int, bits: int, at: int) -> bytes:
    """An instruction with a field of `bits` at bit `at`."""
    (word,) = struct.unpack("<I", code)
    mask = (1 << bits) - 1
    return struct.pack("<I", (word & ~(mask << at)) | ((value & mask) << at))


def _pages(place: int, value: int, code: bytes) -> bytes:
    """adrp: 21 bits of the distance in pages of 4096 bytes, the two lowest apart."""
    distance = _fitting((value >> 12) - (place >> 12), 21)
    return _patched(_patched(code, distance, 2, 29), distance >> 2, 19, 5)


def _near(place: int, value: int, code: bytes) -> bytes:
    """adr: 21 bits of the distance in bytes."""
    distance = _fitting(value - place, 21)
    return _patched(_patched(code, distance, 2, 29), distance >> 2, 19, 5)


def _low(scale: int) -> Rule:
    """The offset in its page of 4096 bytes, in units of an access of `1 << scale` bytes."""

    def rule(place: int, value: int, code: bytes) -> bytes:
        del place
        if value & ((1 << scale) - 1):
            raise NotLoadable(f"an access of {1 << scale} bytes to the odd address {value:#x}")
        return _patched(code, (value & 0xFFF) >> scale, 12, 10)

    return rule


def _branch(bits: int, at: int) -> Rule:
    """A distance in instructions."""

    def rule(place: int, value: int, code: bytes) -> bytes:
        return _patched(code, _fitting(value - place, bits + 2) >> 2, bits, at)

    return rule


def _aarch64_stub(place: int, slot: int) -> bytes:
    """adrp x16, slot; ldr x17, [x16, slot]; br x17; nop."""
    adrp = _pages(place, slot, struct.pack("<I", 0x90000010))
    return adrp + _low(3)(place + 4, slot, struct.pack("<I", 0xF9400211)) + struct.pack("<II", 0xD61F0220, 0xD503201F)


_X86_64 = Machine(
    number=62,
    page=0x1000,
    kinds={
        1: Kind(8, Via.ADDRESS, _absolute),  # R_X86_64_64
        2: Kind(4, Via.SYMBOL, _distance("<i")),  # PC32
        4: Kind(4, Via.CALL, _distance("<i")),  # PLT32
        9: Kind(4, Via.SLOT, _distance("<i")),  # GOTPCREL
        24: Kind(8, Via.SYMBOL, _distance("<q")),  # PC64
        41: Kind(4, Via.SLOT, _distance("<i")),  # GOTPCRELX
        42: Kind(4, Via.SLOT, _distance("<i")),  # REX_GOTPCRELX
    },
    absolute=1,
    slot=6,
    relative=8,
    stub_size=8,
    stub=_x86_stub,
)
_AARCH64 = Machine(
    number=183,
    page=0x10000,
    kinds={
        257: Kind(8, Via.ADDRESS, _absolute),  # R_AARCH64_ABS64
        260: Kind(8, Via.SYMBOL, _distance("<q")),  # PREL64
        261: Kind(4, Via.SYMBOL, _distance("<i")),  # PREL32
        273: Kind(4, Via.SYMBOL, _branch(19, 5)),  # LD_PREL_LO19
        274: Kind(4, Via.SYMBOL, _near),  # ADR_PREL_LO21
        275: Kind(4, Via.SYMBOL, _pages),  # ADR_PREL_PG_HI21
        276: Kind(4, Via.SYMBOL, _pages),  # ADR_PREL_PG_HI21_NC
        277: Kind(4, Via.SYMBOL, _low(0)),  # ADD_ABS_LO12_NC
        278: Kind(4, Via.SYMBOL, _low(0)),  # LDST8_ABS_LO12_NC
        279: Kind(4, Via.SYMBOL, _branch(14, 5)),  # TSTBR14
        280: Kind(4, Via.SYMBOL, _branch(19, 5)),  # CONDBR19
        282: Kind(4, Via.CALL, _branch(26, 0)),  # JUMP26
        283: Kind(4, Via.CALL, _branch(26, 0)),  # CALL26
        284: Kind(4, Via.SYMBOL, _low(1)),  # LDST16_ABS_LO12_NC
        285: Kind(4, Via.SYMBOL, _low(2)),  # LDST32_ABS_LO12_NC
        286: Kind(4, Via.SYMBOL, _low(3)),  # LDST64_ABS_LO12_NC
        299: Kind(4, Via.SYMBOL, _low(4)),  # LDST128_ABS_LO12_NC
        311: Kind(4, Via.SLOT, _pages),  # ADR_GOT_PAGE
        312: Kind(4, Via.SLOT, _low(3)),  # LD64_GOT_LO12_NC
        314: Kind(4, Via.CALL, _distance("<i")),  # PLT32
    },
    absolute=257,
    slot=1025,
    relative=1027,
    stub_size=16,
    stub=_aarch64_stub,
)
MACHINES: dict[str, Machine] = {"x86_64": _X86_64, "aarch64": _AARCH64}
