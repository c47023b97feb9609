"""The features of a processor that machine code really uses, beside those that decide about its vectors.

In: a relocatable ELF object for x86-64 or AArch64. Out: names in LLVM's spelling; None where it cannot be told (another
machine, an instruction that is not known here). Invariant: what is named is used by an instruction of the object; every
instruction is looked at, from the first byte of each section of code to the last. Names are those that
`runtime/native/arm_cpu.c` knows; what vectors need (AVX, FMA, AVX-512 F, DQ, BW, VL) follows from the target and is not
looked for (`target/cpu.py`). On AArch64 an instruction is four bytes (`_WORDS`); on x86-64 its length has to be found.
Sources: Intel's manual, volume 2, chapter 2 and appendix A; Arm's manual of the A-profile, chapter C4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _CODE = 1, 4
_X86_64, _AARCH64 = 62, 183


class _Unknown(Exception):
    """An instruction that the tables do not have."""


def used_features(code: bytes) -> frozenset[str] | None:
    """What the code of an object file uses, as far as the tables go."""
    try:
        machine = _HEADER.unpack_from(code)[2]
        of_section = {_X86_64: _x86, _AARCH64: _aarch64}[machine]
        return frozenset().union(*map(of_section, _sections(code)))
    except (_Unknown, KeyError, IndexError, struct.error):
        return None


def _sections(code: bytes) -> Iterator[bytes]:
    """The contents of the sections that are run."""
    _, _, _, _, _, _, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    for k in range(count):
        _, kind, flags, _, offset, length, _, _, _, _ = _SECTION.unpack_from(code, at + k * size)
        if kind == _PROGBITS and flags & _CODE:
            yield code[offset : offset + length]


# AArch64: (mask, value, name)
_WORDS = (
    (0x1E000000, 0x04000000, "sve"),
    (0x9FE0FC00, 0x0E809400, "dotprod"),
    (0x9FC0F400, 0x0F80E000, "dotprod"),
    (0xDFE0F400, 0x4E80A400, "i8mm"),
    (0xBFE0FC00, 0x0E809C00, "i8mm"),
    (0xBF40F400, 0x0F00F000, "i8mm"),
    (0xBFE0FC00, 0x2E40FC00, "bf16"),
    (0xFFE0FC00, 0x6E40EC00, "bf16"),
    (0xBFE0FC00, 0x2EC0FC00, "bf16"),
    (0xBF40F400, 0x0F40F000, "bf16"),
    (0xFFFFFC00, 0x1E634000, "bf16"),
    (0xBFFFFC00, 0x0EA16800, "bf16"),
    (0x7FC00000, 0x1EC00000, "fullfp16"),
    (0xFFC00000, 0x1FC00000, "fullfp16"),
    (0x9F60C400, 0x0E400400, "fullfp16"),
    (0xDF60C400, 0x5E400400, "fullfp16"),
    (0x9F7E0C00, 0x0E780800, "fullfp16"),
    (0xDF7E0C00, 0x5E780800, "fullfp16"),
    (0xBF7FFC00, 0x0E30C800, "fullfp16"),
    (0xBF7FFC00, 0x0E30F800, "fullfp16"),
    (0xFF7F8C00, 0x5E308800, "fullfp16"),
    (0xBFC03400, 0x0F001000, "fullfp16"),
    (0xFFC03400, 0x5F001000, "fullfp16"),
    (0xBFC0F400, 0x2F009000, "fullfp16"),
    (0xFFC0F400, 0x7F009000, "fullfp16"),
    (0xBFF8FC00, 0x0F00FC00, "fullfp16"),
    (0x9FF0FC00, 0x0F10E400, "fullfp16"),
    (0x9FF0FC00, 0x0F10FC00, "fullfp16"),
    (0xDFF0FC00, 0x5F10E400, "fullfp16"),
    (0xDFF0FC00, 0x5F10FC00, "fullfp16"),
    (0xBF60FC00, 0x0E20EC00, "fp16fml"),
    (0xBF60FC00, 0x2E20CC00, "fp16fml"),
    (0xBFC0B400, 0x0F800000, "fp16fml"),
    (0xBFC0B400, 0x2F808000, "fp16fml"),
    (0xBF20F400, 0x2E008400, "rdm"),
    (0xFF20F400, 0x7E008400, "rdm"),
    (0xAF00D400, 0x2F00D000, "rdm"),
    (0xBF20E400, 0x2E00C400, "complxnum"),
    (0xBF20EC00, 0x2E00E400, "complxnum"),
    (0xBF009400, 0x2F001000, "complxnum"),
    (0x3F200C00, 0x38200000, "lse"),
    (0x3FA07C00, 0x08A07C00, "lse"),
)
_FROM_HALF = (0xFFFF7C00, 0x1EE24000)  # a float16 converted to float32 or float64: every processor can


def _aarch64(code: bytes) -> set[str]:
    words = np.frombuffer(code[: len(code) // 4 * 4], "<u4")
    mask, value = _FROM_HALF
    words = words[(words & mask) != value]
    return {name for mask, value, name in _WORDS if ((words & mask) == value).any()}


# x86-64: bytes behind the opcode, without ModRM's own: 1, 2, 4, 8; Z: 4, or 2 behind a prefix 66. M: has a ModRM
_ONE = {
    **{row + k: form for row in range(0, 0x40, 8) for k, form in enumerate(("M", "M", "M", "M", "1", "Z"))},
    **dict.fromkeys(range(0x50, 0x60), ""),
    0x63: "M",
    0x68: "Z",
    0x69: "MZ",
    0x6A: "1",
    0x6B: "M1",
    **dict.fromkeys(range(0x70, 0x80), "1"),
    0x80: "M1",
    0x81: "MZ",
    0x83: "M1",
    **dict.fromkeys(range(0x84, 0x90), "M"),
    **dict.fromkeys((*range(0x90, 0x9A), *range(0x9B, 0xA0)), ""),
    **dict.fromkeys(range(0xA0, 0xA4), "8"),
    **dict.fromkeys(range(0xA4, 0xA8), ""),
    0xA8: "1",
    0xA9: "Z",
    **dict.fromkeys(range(0xAA, 0xB0), ""),
    **dict.fromkeys(range(0xB0, 0xB8), "1"),
    **dict.fromkeys(range(0xB8, 0xC0), "V"),
    0xC0: "M1",
    0xC1: "M1",
    0xC2: "2",
    0xC3: "",
    0xC6: "M1",
    0xC7: "MZ",
    0xC9: "",
    0xCC: "",
    **dict.fromkeys(range(0xD0, 0xD4), "M"),
    **dict.fromkeys(range(0xD8, 0xE0), "M"),
    **dict.fromkeys(range(0xE0, 0xE4), "1"),
    0xE8: "4",
    0xE9: "4",
    0xEB: "1",
    0xF4: "",
    0xF5: "",
    0xF6: "MT",
    0xF7: "MT",
    **dict.fromkeys(range(0xF8, 0xFE), ""),
    0xFE: "M",
    0xFF: "M",
}
_PLAIN_TWO = {0x05, 0x0B, 0x77, 0xA2, *range(0x30, 0x38), *range(0xC8, 0xD0)}  # of 0F: without ModRM
_BYTE_TWO = {0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6}  # of 0F: with a byte behind it
_SEGMENTS = {0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x67, 0xF0}
_NONE, _66, _F3, _F2 = range(4)  # as VEX and EVEX number the prefixes
_ANY = (_NONE, _66, _F3, _F2)


def _rows(name: str, opcodes: tuple[int, ...], prefixes: tuple[int, ...] = (_66,)) -> dict[tuple[int, int], str]:
    return {(prefix, opcode): name for prefix in prefixes for opcode in opcodes}


def _span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


_AES, _PCLMUL, _GFNI = _span(0xDB, 0xDF), (0x44,), (0xCE, 0xCF)
# tzcnt (F3 0F BC) is not among them: LLVM writes it for processors that take it for bsf, too
_LEGACY = {  # by the map of opcodes: (prefix, opcode)
    1: {
        **_rows("popcnt", (0xB8,), (_F3,)),
        **_rows("lzcnt", (0xBD,), (_F3,)),
        **_rows("sse3", (0x12, 0x16), (_F3,)),
        **_rows("sse3", (0x12, 0xF0), (_F2,)),
        **_rows("sse3", (0x7C, 0x7D, 0xD0), (_66, _F2)),
        **_rows("sse4a", (0x78, 0x79), (_66, _F2)),
        **_rows("sse4a", (0x2B,), (_F2, _F3)),
    },
    2: {
        **_rows("ssse3", (*_span(0x00, 0x0B), *_span(0x1C, 0x1E)), (_NONE, _66)),
        **_rows("sse4.1", (0x10, 0x14, 0x15, 0x17, *_span(0x20, 0x25), *_span(0x28, 0x2B), *_span(0x30, 0x41))),
        **_rows("sse4.2", (0x37,)),
        **_rows("sse4.2", (0xF0, 0xF1), (_F2,)),
        **_rows("gfni", (0xCF,)),
        **_rows("movbe", (0xF0, 0xF1), (_NONE, _66)),
        **_rows("adx", (0xF6,), (_66, _F3)),
        **_rows("aes", _AES),
        **_rows("sha", _span(0xC8, 0xCD), (_NONE,)),
    },
    3: {
        **_rows("ssse3", (0x0F,), (_NONE, _66)),
        **_rows("sse4.2", _span(0x60, 0x63)),
        **_rows("pclmul", _PCLMUL),
        **_rows("sse4.1", (*_span(0x08, 0x0E), *_span(0x14, 0x17), *_span(0x20, 0x22), *_span(0x40, 0x42))),
        **_rows("gfni", _GFNI),
        **_rows("aes", (0xDF,)),
        **_rows("sha", (0xCC,), (_NONE,)),
    },
}
_VEX = {
    2: {
        **_rows("f16c", (0x13,)),
        **_rows("avxvnni", _span(0x50, 0x53)),
        **_rows("avxifma", (0xB4, 0xB5)),
        **_rows("avxvnniint8", (0x50, 0x51), (_NONE, _F3, _F2)),
        **_rows("avxvnniint16", (0xD2, 0xD3), (_NONE, _66, _F3)),
        **_rows("avxneconvert", (0xB0, 0xB1), _ANY),
        **_rows("avxneconvert", (0x72,), (_F3,)),
        **_rows("gfni", (0xCF,)),
        **_rows("bmi", (0xF2, 0xF3, 0xF7), (_NONE,)),
        **_rows("bmi2", (0xF7,), (_66, _F3, _F2)),
        **_rows("bmi2", (0xF5, 0xF6), _ANY),
        **_rows("aes", _AES),
        **_rows("amx-tile", (0x49, 0x4B), _ANY),
        **_rows("amx-int8", (0x5E,), _ANY),
        **_rows("amx-bf16", (0x5C,), (_F3,)),
    },
    3: {
        **_rows("f16c", (0x1D,)),
        **_rows("bmi2", (0xF0,), (_F2,)),
        **_rows("gfni", _GFNI),
        **_rows("aes", (0xDF,)),
        **_rows("pclmul", _PCLMUL),
    },
}
_EVEX = {
    2: {
        **_rows("avx512vnni", _span(0x50, 0x53)),
        **_rows("avx512bf16", (0x52, 0x72), (_F3,)),
        **_rows("avx512bf16", (0x72,), (_F2,)),
        **_rows("avx512bitalg", (0x54, 0x8F)),
        **_rows("avx512vpopcntdq", (0x55,)),
        **_rows("avx512vbmi2", (0x62, 0x63, *_span(0x70, 0x73))),
        **_rows("avx512vbmi", (0x83,)),
        **_rows("avx512cd", (0x44, 0xC4)),
        **_rows("avx512cd", (0x2A, 0x3A), (_F3,)),
        **_rows("avx512ifma", (0xB4, 0xB5)),
        **_rows("gfni", (0xCF,)),
        **_rows("vaes", _AES),
        **_rows("avx512vp2intersect", (0x68,), (_F2,)),
    },
    3: {
        **_rows("avx512vbmi2", _span(0x70, 0x73)),
        **_rows("gfni", _GFNI),
        **_rows("vpclmulqdq", _PCLMUL),
        **{(prefix, opcode): "avx512fp16" for prefix in (_NONE, _F3) for opcode in range(256)},
    },
    **{space: {(prefix, opcode): "avx512fp16" for prefix in _ANY for opcode in range(256)} for space in (5, 6)},
}
_BYTES_OR_WORDS = (0x75, 0x7D, 0x8D)  # of EVEX: permutations, of bytes where W is 0


def _x86(code: bytes) -> set[str]:
    result: set[str] = set()
    at, end = 0, len(code)
    while at < end:
        at = _x86_instruction(code, at, result)
    if at != end:
        raise _Unknown
    return result


def _x86_instruction(code: bytes, at: int, features: set[str]) -> int:
    """Where the next instruction begins; what this one needs goes to `features`."""
    prefix, is_wide, is_short = _NONE, False, False
    byte = code[at]
    while byte in (0x66, 0xF2, 0xF3) or byte in _SEGMENTS:
        if byte == 0x66:
            is_short = True
        elif byte in (0xF2, 0xF3):
            prefix = _F3 if byte == 0xF3 else _F2
        at += 1
        byte = code[at]
    if is_short and prefix == _NONE:
        prefix = _66
    if byte >> 4 == 4:
        is_wide = bool(byte & 8)
        at += 1
        byte = code[at]
    if byte in (0xC4, 0xC5):
        return _vex(code, at, features)
    if byte == 0x62:
        return _evex(code, at, features)
    if byte != 0x0F:
        return _one_byte(code, at, is_wide, is_short)
    return _legacy(code, at + 1, prefix, features)


def _one_byte(code: bytes, at: int, is_wide: bool, is_short: bool) -> int:
    form = _ONE.get(code[at])
    if form is None or (code[at] == 0x8F and code[at + 1] >> 3 & 7):  # AMD's XOP
        raise _Unknown
    opcode, at = code[at], at + 1
    if form == "MT":  # test: with a constant
        kind = "" if code[at] >> 3 & 7 > 1 else "1" if opcode == 0xF6 else "Z"
        return _modrm(code, at) + _constant(kind, is_wide, is_short)
    if form[:1] == "M":
        at, form = _modrm(code, at), form[1:]
    return at + _constant(form, is_wide, is_short)


def _constant(form: str, is_wide: bool, is_short: bool) -> int:
    if form == "V":
        return 8 if is_wide else 2 if is_short else 4
    if form == "Z":
        return 2 if is_short and not is_wide else 4
    return int(form or 0)


def _legacy(code: bytes, at: int, prefix: int, features: set[str]) -> int:
    """0F, 0F 38 or 0F 3A."""
    space = {0x38: 2, 0x3A: 3}.get(code[at], 1)
    at += space > 1
    opcode = code[at]
    name = _LEGACY[space].get((prefix, opcode))
    if name is not None:
        features.add(name)
    if space == 1 and 0x80 <= opcode < 0x90:
        return at + 5
    if space == 1 and opcode in _PLAIN_TWO:
        return at + 1
    return _modrm(code, at + 1) + (space == 3 or (space == 1 and opcode in _BYTE_TWO))


def _vex(code: bytes, at: int, features: set[str]) -> int:
    if code[at] == 0xC5:
        space, prefix, at = 1, code[at + 1] & 3, at + 2
    else:
        space, prefix, at = code[at + 1] & 31, code[at + 2] & 3, at + 3
    if space not in (1, 2, 3):
        raise _Unknown
    opcode = code[at]
    name = _VEX.get(space, {}).get((prefix, opcode))
    if name is not None:
        features.add(name)
    if space == 1 and opcode == 0x77:
        return at + 1
    return _modrm(code, at + 1) + (space == 3 or (space == 1 and opcode in _BYTE_TWO))


def _evex(code: bytes, at: int, features: set[str]) -> int:
    space, second, opcode = code[at + 1] & 7, code[at + 2], code[at + 4]
    if space not in (1, 2, 3, 5, 6) or code[at + 1] & 8 or not second & 4:  # the last two: APX
        raise _Unknown
    name = _EVEX.get(space, {}).get((second & 3, opcode))
    if space == 2 and second & 3 == _66 and opcode in _BYTES_OR_WORDS and not second & 0x80:
        name = "avx512vbmi"
    if name is not None:
        features.add(name)
    return _modrm(code, at + 5) + (space == 3 or (space == 1 and opcode in _BYTE_TWO))


def _modrm(code: bytes, at: int) -> int:
    """Where the address of an operand ends."""
    byte = code[at]
    mode, low = byte >> 6, byte & 7
    if mode == 3:
        return at + 1
    if low == 4:  # a byte more, of which the low bits tell the base
        at += 1
        low = code[at] & 7
    return at + (5 if mode == 2 or (mode == 0 and low == 5) else 2 if mode == 1 else 1)
