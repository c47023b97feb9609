"""What named CPUs have: features that -mcpu implies, FMA ports, caches, load ports, bandwidths.

In: a CPU name as LLVM spells it. Out: a `CpuRow`, and a `MemoryRow` (by `memory_row`). Invariant: facts only, in
LLVM's spelling of features; a name that is not here is no error: `cpu.py` then uses the architecture's baseline and
what -mattr adds. Bandwidths are what loops of vector loads sustain: znver4's are measured, the others rounded figures
of their families, good enough to rank algorithms. `true_name` finds the row where a virtual machine hides the model.
"""

from __future__ import annotations

from armillary.base.record import record

KB, MB = 1024, 1024 * 1024


@record(slots=True)
class CpuRow:
    """One core. `ports` x `bits` is the vector FMA throughput per cycle; caches in bytes (L3: per chip).

    `bfloat16_dots`: dot products of pairs of bfloat16 (vdpbf16ps, bfdot) in the time of one FMA, where there are any.
    """

    features: frozenset[str]
    bits: int
    ports: int
    latency: int
    l1: int = 32 * KB
    l2: int = 256 * KB
    l3: int = 0
    bfloat16_dots: float = 1.0


def _set(*names: str) -> frozenset[str]:
    return frozenset(" ".join(names).split())


_V1 = _set("sse sse2")
_V2 = _V1 | _set("sse3 ssse3 sse4.1 sse4.2 popcnt")
_V3 = _V2 | _set("avx avx2 fma f16c bmi bmi2 lzcnt movbe")
_V4 = _V3 | _set("avx512f avx512bw avx512cd avx512dq avx512vl")
_VNNI = _V4 | _set("avx512vnni")
_ICE = _VNNI | _set("avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni")
_SPR = _ICE | _set("avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16")
_ZEN4 = _ICE | _set("avx512bf16")
_A8 = _set("neon fp-armv8")
_A82 = _A8 | _set("lse rdm fullfp16")
_A82D = _A82 | _set("dotprod")
_A86 = _A82D | _set("i8mm bf16")
_V7 = _set("neon vfp3")
_V7F = _V7 | _set("vfp4 fp16")
ARMV8_IN_32_BITS = _V7F | _A8  # what every processor of a triple armv8… has

X86 = {
    "x86-64": CpuRow(_V1, 128, 1, 4),
    "x86-64-v2": CpuRow(_V2, 128, 1, 4),
    "x86-64-v3": CpuRow(_V3, 256, 2, 4),
    "x86-64-v4": CpuRow(_V4, 512, 2, 4, 32 * KB, MB),
    "nehalem": CpuRow(_V2, 128, 1, 4),
    "westmere": CpuRow(_V2, 128, 1, 4),
    "sandybridge": CpuRow(_V2 | {"avx"}, 256, 1, 5),
    "ivybridge": CpuRow(_V2 | {"avx", "f16c"}, 256, 1, 5),
    **dict.fromkeys(("haswell", "broadwell", "core-avx2"), CpuRow(_V3, 256, 2, 5, 32 * KB, 256 * KB, 8 * MB)),
    "skylake": CpuRow(_V3, 256, 2, 4, 32 * KB, 256 * KB, 8 * MB),
    "skylake-avx512": CpuRow(_V4, 512, 2, 4, 32 * KB, MB, 16 * MB),
    "skx": CpuRow(_V4, 512, 2, 4, 32 * KB, MB, 16 * MB),
    "cascadelake": CpuRow(_VNNI, 512, 2, 4, 32 * KB, MB, 16 * MB),
    "cooperlake": CpuRow(_VNNI | {"avx512bf16"}, 512, 2, 4, 32 * KB, MB, 16 * MB),
    **dict.fromkeys(("icelake-client", "tigerlake", "rocketlake"), CpuRow(_ICE, 512, 1, 4, 48 * KB, 512 * KB, 8 * MB)),
    "icelake-server": CpuRow(_ICE, 512, 2, 4, 48 * KB, 1280 * KB, 24 * MB),
    **dict.fromkeys(("alderlake", "raptorlake"), CpuRow(_V3 | {"avxvnni"}, 256, 2, 4, 48 * KB, 1280 * KB, 16 * MB)),
    **dict.fromkeys(
        ("sapphirerapids", "emeraldrapids", "graniterapids"), CpuRow(_SPR, 512, 2, 4, 48 * KB, 2 * MB, 32 * MB, 0.25)
    ),
    "znver1": CpuRow(_V3, 256, 1, 5, 32 * KB, 512 * KB, 8 * MB),  # 256 bits in two halves
    "znver2": CpuRow(_V3, 256, 2, 5, 32 * KB, 512 * KB, 8 * MB),
    "znver3": CpuRow(_V3, 256, 2, 4, 32 * KB, 512 * KB, 32 * MB),
    "znver4": CpuRow(_ZEN4, 512, 1, 4, 32 * KB, MB, 32 * MB),
    "znver5": CpuRow(_ZEN4 | {"avxvnni"}, 512, 2, 4, 48 * KB, MB, 32 * MB),
}
AARCH64 = {
    "generic": CpuRow(_A8, 128, 2, 4, 32 * KB, 512 * KB),
    **dict.fromkeys(("cortex-a34", "cortex-a35", "cortex-a53"), CpuRow(_A8, 128, 1, 8, 32 * KB, 512 * KB)),
    **dict.fromkeys(("cortex-a55", "cortex-a65", "cortex-a65ae"), CpuRow(_A82D, 128, 1, 4, 32 * KB, 128 * KB)),
    **dict.fromkeys(("cortex-a510", "cortex-a520", "cortex-a520ae"), CpuRow(_A86, 128, 1, 4, 32 * KB, 128 * KB)),
    # two pipes of 64 bits: LLVM's model, too, begins one product of four lanes in a cycle
    **dict.fromkeys(("cortex-a57", "cortex-a72", "thunderxt88"), CpuRow(_A8, 128, 1, 7, 32 * KB, MB)),
    "cortex-a73": CpuRow(_A8, 128, 1, 7, 64 * KB, MB),
    **dict.fromkeys(
        (
            *("cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78"),
            *("cortex-a76ae", "cortex-a78ae", "cortex-a78c", "tsv110"),
        ),
        CpuRow(_A82D, 128, 2, 4, 64 * KB, 512 * KB, 4 * MB),
    ),
    **dict.fromkeys(("cortex-x1", "cortex-x1c"), CpuRow(_A82D, 128, 4, 4, 64 * KB, MB, 8 * MB)),
    **dict.fromkeys(
        ("cortex-a710", "cortex-a715", "cortex-a720", "cortex-a720ae", "cortex-a725"),
        CpuRow(_A86, 128, 2, 4, 64 * KB, 512 * KB, 8 * MB),
    ),
    **dict.fromkeys(
        ("cortex-x2", "cortex-x3", "cortex-x4", "cortex-x925"), CpuRow(_A86, 128, 4, 4, 64 * KB, MB, 8 * MB)
    ),
    **dict.fromkeys(("neoverse-n1", "neoverse-e1"), CpuRow(_A82D, 128, 2, 4, 64 * KB, MB, 32 * MB)),
    **dict.fromkeys(("neoverse-n2", "neoverse-n3"), CpuRow(_A86, 128, 2, 4, 64 * KB, MB, 32 * MB)),
    **dict.fromkeys(("ampere1", "ampere1a"), CpuRow(_A86 - {"fullfp16"}, 128, 2, 4, 64 * KB, 2 * MB, 32 * MB)),
    "a64fx": CpuRow(_A82, 128, 2, 9, 64 * KB, 8 * MB),
    "saphira": CpuRow(_A82D - {"fullfp16"}, 128, 2, 4, 32 * KB, MB),
    **dict.fromkeys(
        ("neoverse-v1", "neoverse-v2", "neoverse-v3", "neoverse-v3ae"), CpuRow(_A86, 128, 4, 4, 64 * KB, MB, 32 * MB)
    ),
    **dict.fromkeys(("kryo", "falkor"), CpuRow(_A8, 128, 2, 5, 32 * KB, MB)),
    "carmel": CpuRow(_A82, 128, 2, 4, 64 * KB, 2 * MB, 4 * MB),
    **dict.fromkeys(("apple-a14", "apple-m1"), CpuRow(_A82D, 128, 4, 4, 128 * KB, 12 * MB)),
    **dict.fromkeys(("apple-m2", "apple-m3", "apple-m4"), CpuRow(_A86, 128, 4, 4, 128 * KB, 16 * MB)),
}
ARM = {
    "generic": CpuRow(frozenset(), 64, 1, 4),
    **dict.fromkeys(("cortex-a7", "cortex-a5"), CpuRow(_V7F, 128, 1, 8, 32 * KB, 256 * KB)),
    **dict.fromkeys(("cortex-a8", "cortex-a9"), CpuRow(_V7, 128, 1, 8, 32 * KB, 512 * KB)),
    **dict.fromkeys(("cortex-a12", "cortex-a15", "cortex-a17"), CpuRow(_V7F, 128, 1, 8, 32 * KB, MB)),
    **dict.fromkeys(("cortex-a32", "cortex-a53"), CpuRow(_V7F | _A8, 128, 1, 8, 32 * KB, 512 * KB)),
    **dict.fromkeys(("cortex-a57", "cortex-a72", "cortex-a73"), CpuRow(_V7F | _A8, 128, 1, 7, 32 * KB, MB)),
}
RISCV = {"generic": CpuRow(frozenset(), 64, 1, 4), "generic-rv64": CpuRow(frozenset(), 64, 1, 4)}
OTHER = {"generic": CpuRow(frozenset(), 128, 1, 4)}
TABLES = {"x86_64": X86, "i386": X86, "aarch64": AARCH64, "arm": ARM, "riscv64": RISCV, "riscv32": RISCV}
BASELINE = {"x86_64": "x86-64", "i386": "x86-64"}  # the others: "generic"
HALF_DOTS = {"x86_64": "avx512bf16", "aarch64": "bf16"}  # the feature that has dot products of pairs of bfloat16
DOT_SIGNS = {  # feature -> the signs of (one side, the other) of dot products of four bytes
    "avx512vnni": (("uint", "int"),),
    "avxvnni": (("uint", "int"),),
    "dotprod": (("int", "int"), ("uint", "uint")),
    "i8mm": (("uint", "int"),),
}
_TELLING = {"amx-tile": "sapphirerapids", "avx512fp16": "sapphirerapids"}  # features that only such cores have


def true_name(arch: str, name: str, features: frozenset[str]) -> str:
    """The name of the row that describes a CPU whose model is hidden: LLVM takes a server core for a client's."""
    if arch != "x86_64" or X86.get(name, X86["x86-64"]).features & set(_TELLING):
        return name
    return next((true for feature, true in _TELLING.items() if feature in features), name)


@record(slots=True)
class MemoryRow:
    """How fast one core is fed: loads of at most `load_bits` per cycle, then bytes per cycle from each level.

    `dram_all` is what all cores together get. `ghz` is the clock under vector code, for estimates in seconds.
    `beside` is how much of the lesser of multiply-adds and loads from L1 shows beside the greater. `gathers`: one
    instruction reads the lanes of a vector from places of their own faster than lane after lane (not on Zen 4, nor on
    older Intel cores, whose microcode holds it up).
    """

    load_ports: int
    load_bits: int  # of one load
    l2: float  # bytes per cycle of one core
    l3: float  # bytes per cycle of one core
    dram: float  # bytes per cycle of one core
    dram_all: float  # bytes per cycle of all cores together
    ghz: float  # billions of cycles per second
    beside: float = 0.02  # of the cycles of the lesser
    gathers: bool = False


_SKX, _CLIENT = MemoryRow(2, 512, 40, 10, 4, 40, 2.8, 0.25), MemoryRow(2, 256, 28, 14, 5, 9, 3.8)
_ICX = MemoryRow(2, 512, 44, 10, 4.5, 60, 3.0, 0.25)
_SPR_M = MemoryRow(2, 512, 44, 9, 4.5, 80, 3.0, 0.25, gathers=True)
_LITTLE, _A72 = MemoryRow(1, 128, 8, 4, 2, 3, 1.6), MemoryRow(1, 128, 10, 5, 2.7, 3.5, 1.8)
_A76, _X1 = MemoryRow(2, 128, 20, 10, 5, 10, 2.4), MemoryRow(3, 128, 28, 14, 6, 12, 2.9)
_N1, _V1_M = MemoryRow(2, 128, 24, 10, 6, 60, 2.6), MemoryRow(3, 128, 36, 12, 7, 90, 2.6)
_M1 = MemoryRow(3, 128, 40, 20, 18, 21, 3.2)
_MEMORY = {
    **dict.fromkeys(("skylake-avx512", "skx", "cascadelake", "cooperlake"), _SKX),
    "icelake-server": _ICX,
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _SPR_M),
    **dict.fromkeys(("icelake-client", "tigerlake", "rocketlake"), MemoryRow(2, 512, 40, 14, 6, 10, 3.8)),
    **dict.fromkeys(("alderlake", "raptorlake"), MemoryRow(3, 256, 40, 14, 7, 14, 4.5)),
    "znver1": MemoryRow(2, 128, 24, 18, 6, 9, 3.4),
    "znver2": MemoryRow(2, 256, 26, 20, 6, 11, 3.6),
    "znver3": MemoryRow(2, 256, 28, 24, 6.5, 12, 4.0),
    "znver4": MemoryRow(2, 256, 28, 26, 7.3, 9.5, 3.7),
    "znver5": MemoryRow(2, 512, 52, 26, 8, 16, 4.2),
    **dict.fromkeys(
        (
            "cortex-a5",
            "cortex-a7",
            "cortex-a8",
            "cortex-a9",
            "cortex-a34",
            "cortex-a35",
            "cortex-a53",
            "cortex-a55",
            "cortex-a510",
            "cortex-a32",
        ),
        _LITTLE,
    ),
    **dict.fromkeys(
        (
            "cortex-a12",
            "cortex-a15",
            "cortex-a17",
            "cortex-a57",
            "cortex-a72",
            "cortex-a73",
            "thunderxt88",
            "kryo",
            "falkor",
        ),
        _A72,
    ),
    **dict.fromkeys(("cortex-x1", "cortex-x1c", "cortex-x2", "cortex-x3", "cortex-x4"), _X1),
    **dict.fromkeys(("neoverse-n1", "neoverse-e1", "neoverse-n2"), _N1),
    **dict.fromkeys(("neoverse-v1", "neoverse-v2"), _V1_M),
    **dict.fromkeys(("apple-a14", "apple-m1", "apple-m2", "apple-m3", "apple-m4"), _M1),
}
_MEMORY_OF_ARCH = {"x86_64": _CLIENT, "i386": _CLIENT, "aarch64": _A76, "arm": _LITTLE}


def memory_row(arch: str, name: str) -> MemoryRow:
    """The row of a named CPU, else a middling one of its architecture."""
    return _MEMORY.get(name) or _MEMORY_OF_ARCH.get(arch, _LITTLE)
