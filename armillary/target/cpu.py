"""Facts about a target's CPU, derived from -mtriple, -mcpu and -mattr.

In: a `Target` of the cpu family. Out: a frozen `CpuModel` (vector width and registers, FMA units, caches, features) and
what LLVM wants to hear (`llvm_cpu`). Invariant: -mcpu implies its features (cortex-a76 has dotprod); `arm64-…` and
`aarch64-…` are the same architecture; native means what the processor reports, whatever LLVM calls it.
Tables of named CPUs: `cpu_table.py`. This machine: `host.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import platform
import re
from types import ModuleType

from armillary.base.lazy import similar
from armillary.base.record import record
from armillary.errors import TargetError, UnsupportedError
from armillary.target.boards import BOARDS
from armillary.target.cpu_table import (
    ARMV8_IN_32_BITS,
    BASELINE,
    DOT_SIGNS,
    HALF_DOTS,
    OTHER,
    TABLES,
    CpuRow,
    MemoryRow,
    memory_row,
    true_name,
)
from armillary.target.kinds.llvm import FAST_MATH
from armillary.target.target import Target, as_target

_ARCH = (
    (r"(aarch64|arm64)", "aarch64"),
    (r"(x86_64|amd64)", "x86_64"),
    (r"i[3-6]86", "i386"),
    (r"(arm|thumb)", "arm"),
    (r"riscv64", "riscv64"),
    (r"riscv32", "riscv32"),
    (r"powerpc64le|ppc64le", "ppc64le"),
    (r"wasm", "wasm"),
)
_ALIASES = {"simd": "neon", "fp16": "fullfp16", "+simd": "neon"}
_ABIS = {
    "riscv64": ("lp64", "lp64f", "lp64d"),
    "riscv32": ("ilp32", "ilp32f", "ilp32d"),
    "arm": ("aapcs", "apcs-gnu"),
    "aarch64": ("aapcs", "darwinpcs"),
}
_TOLD = ("avx", "fma", "fma4", "avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl")
_RARE_X86 = """
    sse3 ssse3 sse4.1 sse4.2 sse4a popcnt lzcnt bmi bmi2 movbe adx f16c gfni aes vaes pclmul vpclmulqdq sha
    avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert avx512cd avx512ifma avx512vbmi avx512vbmi2 avx512vnni
    avx512bitalg avx512vpopcntdq avx512bf16 avx512fp16 avx512vp2intersect amx-tile amx-int8
    amx-bf16
"""
# Bytes of L3 for a CPU, more than any has: a guest of a server is told of all of it, and its neighbours fill it.
_MOST_L3 = 16 << 20
_RARE_ARM = "fullfp16 fp16fml dotprod i8mm bf16 sve rdm complxnum lse"
TILES, BYTE_TILES, HALF_TILES = "amx-tile", "amx-int8", "amx-bf16"  # the system must be asked for tiles, too
_RARE = {"x86_64": frozenset(_RARE_X86.split()), "aarch64": frozenset(_RARE_ARM.split())}
CACHE_SHARE = 0.75  # of the last cache that data to be read again may fill
MIN_TILE_ROWS, TILE_BYTES = 4, 64  # of the left side: the fewest rows for which tiles pay, the bytes of one
_ARM_VERSIONS = (
    (82, "lse rdm"),
    (84, "dotprod"),
    (86, "i8mm bf16"),
    (90, "sve"),
)  # first version that has the features


@record(slots=True)
class CpuModel:
    """What schedules and the cost model need to know of one CPU; sizes in bytes, 0 for "has none".

    `bfloat16_dots`: dot products of bfloat16 per cycle for each FMA of a vector, where the CPU has them.
    """

    arch: str
    name: str
    vector_bits: int
    vector_registers: int
    fma_ports: int  # vectors of multiply-adds begun per cycle
    fma_latency: int  # cycles
    has_fma: bool
    l1: int  # bytes
    l2: int  # bytes
    l3: int  # bytes that one process may count on
    features: frozenset[str]
    memory: MemoryRow
    native: bool = False
    bfloat16_dots: float = 1.0

    @property
    def fma_chains(self) -> int:
        """Independent accumulators that keep the FMA units busy."""
        return self.fma_ports * self.fma_latency

    @property
    def loads_per_cycle(self) -> float:
        """Whole vectors loaded per cycle; narrower loads come one per port."""
        return self.memory.load_ports * min(1.0, self.memory.load_bits / self.vector_bits)

    @property
    def lanes(self) -> int:
        """float32 lanes of one vector."""
        return max(1, self.vector_bits // 32)

    def lanes_of(self, bits: int) -> int:
        """Lanes of one vector of elements of `bits` bits."""
        return max(1, self.vector_bits // max(8, bits))

    @property
    def dot_signs(self) -> frozenset[tuple[str, str]]:
        """Signs ("int", "uint") of the bytes that a dot product of four takes in one instruction; empty: there is none.

        Where a product has other signs, a schedule moves the bytes of one side by 128 when it packs them.
        """
        return frozenset(signs for feature, rows in DOT_SIGNS.items() if self.has(feature) for signs in rows)

    @property
    def dots_per_cycle(self) -> int:
        """Multiply-adds of bytes per cycle in dot products; without such instructions by pairs of 16-bit products."""
        whole = self.fma_ports * self.vector_bits // 8
        return whole if self.dot_signs else whole // 4

    @property
    def has_bfloat16_dots(self) -> bool:
        """Whether one instruction adds the products of two pairs of bfloat16 to each float32 of a vector."""
        return self.has(HALF_DOTS.get(self.arch, "none"))

    @property
    def bfloat16_dots_per_cycle(self) -> float:
        """Multiply-adds of bfloat16 per cycle in vectors; without an instruction for it, of float32 made of them."""
        whole = self.fma_ports * self.lanes
        return 2 * whole * self.bfloat16_dots if self.has_bfloat16_dots else float(whole)

    @property
    def has_tiles(self) -> bool:
        """Whether it multiplies tiles of 16 rows of 64 bytes (AMX): 16 x 16 x 64 products in 16 cycles."""
        return self.arch == "x86_64" and self.has(BYTE_TILES)

    @property
    def has_bfloat16_tiles(self) -> bool:
        """Whether it multiplies tiles of 16 rows of 32 bfloat16 (AMX): 16 x 16 x 32 products in 16 cycles."""
        return self.arch == "x86_64" and self.has(HALF_TILES)

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether products of bfloat16 are faster than of float32; else they are computed in float32."""
        return self.has_bfloat16_tiles or self.bfloat16_dots_per_cycle > self.fma_ports * self.lanes

    def takes_tiles(self, rows: int, terms: int, bits: int = 8) -> bool:
        """Whether a product of bytes, or of bfloat16 (16 bits), with constant weights is computed by tiles.

        Of bytes of any signs, then. With fewer rows vectors take as long, as both wait for the weights.
        """
        has_tiles = self.has_tiles if bits == 8 else self.has_bfloat16_tiles
        return has_tiles and rows >= MIN_TILE_ROWS and terms * bits // 8 % TILE_BYTES == 0

    @property
    def dot_chains(self) -> int:
        """Independent sums that keep the units of dot products busy."""
        return self.fma_ports * (self.fma_latency + (self.arch == "x86_64"))

    @property
    def multiplies_lanes(self) -> bool:
        """Whether one factor of a product of vectors may be a lane of a register, in every lane of the result."""
        return self.arch == "aarch64"

    @property
    def widens_bytes(self) -> bool:
        """Whether products of bytes by their own are cheapest as 16-bit numbers, which NEON adds up in 32 bits."""
        return self.arch == "aarch64" and not self.dot_signs

    @property
    def takes_runs(self) -> bool:
        """Whether a product of one row takes two vectors of weights from each stream, so that its sums are enough.

        Two units that wait for their last result need as many sums as both begin meanwhile; as many streams are slow.
        """
        return self.multiplies_lanes and self.fma_ports == 2

    @property
    def has_byte_matrices(self) -> bool:
        """Whether one instruction multiplies two rows with two columns of eight bytes (Arm's i8mm)."""
        return self.arch == "aarch64" and self.has("i8mm")

    def held_steps(self, extent: int) -> int:
        """Steps of a sum whose inputs, neighbours in memory, lie in one register while products take its lanes."""
        return self.lanes if self.multiplies_lanes and extent % self.lanes == 0 else 1

    def has(self, feature: str) -> bool:
        """Whether the CPU has a feature, in LLVM's spelling (avx512vnni, dotprod, i8mm, fullfp16, …)."""
        return feature in self.features


@record(slots=True)
class LlvmCpu:
    """What LLVM takes to make a target machine."""

    triple: str
    cpu: str
    features: str
    abi: str = ""
    opt_level: int = 2


def _host() -> ModuleType:  # the module armillary.target.host, loaded late because it loads LLVM
    return importlib.import_module("armillary.target.host")


def architecture(triple: str) -> str:
    """The architecture a triple (or machine name) starts with, in one spelling."""
    lowered = triple.lower()
    return next((arch for pattern, arch in _ARCH if re.match(pattern, lowered)), lowered.split("-")[0])


def is_native(target: Target) -> bool:
    """Whether the target is the CPU we run on: -mcpu=native, or no triple, CPU, march or features at all."""
    if target.mcpu == "native" and not target.mtriple:
        return True
    return not (target.mcpu or target.mtriple or target.mattr or target.attrs.get("march"))


def _resolve_arch(target: Target) -> str:
    return architecture(target.mtriple or platform.machine())


def cpu_model(target: object) -> CpuModel:  # whatever Target accepts
    """The model of a target's CPU; TargetError for a target that is no CPU."""
    return _model(as_target(target))


@functools.lru_cache(maxsize=256)
def _model(target: Target) -> CpuModel:
    if target.kind.family != "cpu":
        raise TargetError(f"target {target} is no CPU", hint="CPU facts exist for the kinds llvm and c")
    if target.mcpu == "native" and target.mtriple and architecture(target.mtriple) != architecture(platform.machine()):
        raise TargetError(f"-mcpu=native is {platform.machine()}, but -mtriple is {target.mtriple}")
    if is_native(target):
        _refuse_other_host(target)
        return _native_model()
    return _named_model(target)


def _refuse_other_host(target: Target) -> None:
    """A target of Arm without a triple means this machine, which must be one."""
    if "arm_cpu" in target.keys and architecture(platform.machine()) not in ("aarch64", "arm"):
        raise TargetError(
            f"target {target} names an Arm CPU and no triple, and this machine is {platform.machine()}",
            hint="add -mtriple=aarch64-linux-gnu (or armv7a-linux-gnueabihf, aarch64-linux-android28), or name "
            f"a board: {_boards_like(str(target.attrs.get('model', '')))}",
        )


def _boards_like(model: str) -> str:
    """Boards whose names are like one that the table lacks, or an example."""
    close = [name for name in similar(model, BOARDS, 3, 0.6) if name != model]
    return " or ".join(f"target.arm_cpu('{name}')" for name in close or ["rk3399"])


def _native_model() -> CpuModel:
    host = _host()
    arch = architecture(host.machine())
    reported = frozenset(name for name, present in host.features().items() if present)
    name = true_name(arch, host.cpu_name(), reported)
    row = _row(arch, name)
    features = reported or row.features
    caches = {level: size for level, size in host.caches().items() if size}
    l1, l2, l3 = (caches.get(level, size) for level, size in ((1, row.l1), (2, row.l2), (3, row.l3)))
    row = dataclasses.replace(row, features=features, l1=l1, l2=l2, l3=min(l3, (os.cpu_count() or 1) * _MOST_L3))
    return _model_of(arch, name, row, native=True)


def _named_model(target: Target) -> CpuModel:
    arch = _resolve_arch(target)
    name = target.mcpu or str(target.attrs.get("march", "")) or BASELINE.get(arch, "generic")
    _refuse_foreign(target, arch, name)
    row = _row(arch, name)
    features = set(row.features)
    if arch == "arm" and re.match(r"(arm|thumb)(eb)?v[89]", target.mtriple.lower()):
        features |= ARMV8_IN_32_BITS
    _apply_mattr(features, target.mattr, arch)
    return _model_of(arch, name, dataclasses.replace(row, features=frozenset(features)), native=False)


def _refuse_foreign(target: Target, arch: str, name: str) -> None:
    others = [other for other, table in TABLES.items() if name in table]
    if others and arch not in others and name != "generic":
        raise TargetError(
            f"target {target}: {name} is a processor of {others[0]}, the target's triple says {arch}",
            hint=f"add a triple such as -mtriple={others[0]}-linux-gnu",
        )


def _row(arch: str, name: str) -> CpuRow:
    table = TABLES.get(arch, OTHER)
    result = table.get(name)
    if result is None and arch in ("aarch64", "arm"):
        result = table.get(name.replace("_", "-").lower())
    return result or table.get(BASELINE.get(arch, "generic")) or OTHER["generic"]


def _apply_mattr(features: set[str], mattr: tuple[str, ...], arch: str) -> None:
    for item in mattr:
        name = item.lstrip("+-")
        name = _ALIASES.get(name, name) if arch != "arm" else name  # +fp16 of 32-bit Arm: conversions only
        version = re.fullmatch(r"v(\d)\.?(\d?)a", name)
        if version and arch in ("aarch64", "arm"):
            number = int(version[1]) * 10 + int(version[2] or 0)
            features.update(f for first, names in _ARM_VERSIONS if number >= first for f in names.split())
            features.add("neon")
        if item.startswith("-"):
            features.discard(name)
        else:
            features.add(name)


def _model_of(arch: str, name: str, row: CpuRow, native: bool) -> CpuModel:
    bits, registers = _vectors(arch, row.features)
    return CpuModel(
        arch=arch,
        name=name,
        vector_bits=bits,
        vector_registers=registers,
        fma_ports=row.ports,
        fma_latency=row.latency,
        has_fma=_has_fma(arch, row.features),
        l1=row.l1,
        l2=row.l2,
        l3=row.l3,
        features=row.features,
        memory=memory_row(arch, name),
        native=native,
        bfloat16_dots=row.bfloat16_dots,
    )


def _vectors(arch: str, features: frozenset[str]) -> tuple[int, int]:
    """Bits of the vectors to use and how many registers hold them."""
    if arch in ("x86_64", "i386"):
        if "avx512f" in features:
            return 512, 32
        return (256 if "avx" in features else 128), (16 if arch == "x86_64" else 8)
    if arch == "aarch64":
        return 128, 32
    if arch == "arm":
        return (128, 16) if "neon" in features else (32, 16)
    if arch.startswith("riscv"):
        return (128, 32) if "v" in features else (32, 32)
    return 128, 32


def _has_fma(arch: str, features: frozenset[str]) -> bool:
    if arch in ("x86_64", "i386"):
        return "fma" in features or "avx512f" in features
    return arch == "aarch64" or arch.startswith(("riscv", "ppc")) or (arch == "arm" and "vfp4" in features)


def needed_features(target: Target, used: frozenset[str] | None = frozenset()) -> tuple[str, ...]:
    """What a processor must have to run code for the target; `runtime/native/arm_cpu.c` tells whether it does.

    What decides about the vectors of every kernel, and of the rarer features those that the code uses; None: nobody
    knows which, so all that it may use.
    """
    model = cpu_model(target)
    message = [name for name in _TOLD if model.arch == "x86_64" and model.has(name)]
    rare = model.features & _RARE.get(model.arch, frozenset()) if used is None else used
    return (*message, *sorted(rare.difference(message)))


@functools.lru_cache(maxsize=256)
def llvm_cpu(target: Target) -> LlvmCpu:
    """Triple, CPU, feature string, ABI and optimisation level for LLVM."""
    triple = _with_vendor(_float_abi(target, target.mtriple or _host().triple()))
    abi, level = _abi(target, architecture(triple)), _opt_level(target)
    if is_native(target):
        _refuse_other_host(target)
        have = _host().features()
        features = ",".join(("+" if on else "-") + n for n, on in sorted(have.items()))
        return LlvmCpu(triple, _host().cpu_name(), features, abi, level)
    model = _model(target)
    extra = [item if item[0] in "+-" else "+" + item for item in target.mattr]
    if model.arch == "arm" and "neon" in model.features and "+neon" not in extra:
        extra.append("+neon")
    if model.arch == "arm" and "neon" not in model.features:  # LLVM takes it for granted from v7 on
        extra.append("-neon")
    cpu = model.name if target.mcpu or target.attrs.get("march") else BASELINE.get(model.arch, "generic")
    return LlvmCpu(triple, cpu, ",".join(extra), abi, level)


def _with_vendor(triple: str) -> str:
    """The triple with all its parts: LLVM takes the second for the vendor.

    armv7a-linux-gnueabihf would be a system "gnueabihf" of a vendor "linux", whose floats travel in integer registers.
    """
    arch, *rest = triple.split("-")
    return "-".join((arch, "unknown", *rest)) if rest and rest[0].startswith("linux") else triple


def triple_of(target: Target) -> str:
    """The target's triple as tools should hear it; "" for this machine."""
    return _float_abi(target, target.mtriple) if target.mtriple else ""


def _float_abi(target: Target, triple: str) -> str:
    """The triple with the environment of -mfloat-abi: gnueabihf passes floats in float registers, gnueabi does not."""
    wanted = str(target.attrs.get("mfloat-abi", ""))
    if not wanted:
        return triple
    base = triple.removesuffix("hf")
    if architecture(triple) != "arm" or wanted not in ("hard", "soft", "softfp") or not base.endswith("eabi"):
        raise UnsupportedError(
            f"target attribute 'mfloat-abi': {wanted!r} means nothing for the triple {triple}",
            hint="hard, soft or softfp, for 32-bit Arm triples such as armv7-linux-gnueabihf",
        )
    return base + "hf" if wanted == "hard" else base


def _abi(target: Target, arch: str) -> str:
    """The checked -mabi; LLVM itself would end the process on some unknown names."""
    wanted = str(target.attrs.get("mabi", ""))
    known = _ABIS.get(arch, ())
    if wanted and wanted not in known:
        have = f"{arch} has {', '.join(known)}" if known else f"{arch} has one only; leave -mabi out"
        raise UnsupportedError(f"target attribute 'mabi': no ABI {wanted!r} for {arch}", hint=have)
    return wanted


def _opt_level(target: Target) -> int:
    level = int(target.attrs.get("opt-level", 2))  # type: ignore[arg-type]  # the schema says int
    if not 0 <= level <= 3:
        raise TargetError(f"target attribute 'opt-level' is {level}, wanted 0 to 3")
    return level


def fast_math_flags(target: Target) -> str:
    """LLVM's flags for float arithmetic, from -fast-math and -fast-math-<flag>; "" is strict."""
    if target.attrs.get("fast-math"):
        return "fast"
    return " ".join(flag for flag in FAST_MATH if target.attrs.get(f"fast-math-{flag}"))


def outgrows_caches(nbytes: float, cpu: CpuModel) -> bool:
    """Whether the last cache has lost the first of so many bytes when the last come; False without such a cache."""
    return nbytes > CACHE_SHARE * cpu.l3 > 0


@functools.cache
def isa_of(target: Target) -> str:
    """What code for a CPU may use, in a word: tuning records of another one are not used. "" for other targets."""
    if target.kind.family != "cpu":
        return ""
    cpu = cpu_model(target)
    return f"{cpu.vector_bits}x{cpu.vector_registers}{'+amx' if cpu.has_tiles else ''}"
