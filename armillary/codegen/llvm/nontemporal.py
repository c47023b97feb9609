"""Outputs that no cache keeps until they are read: stores that go past the caches.

In: a function and a CPU model. Out: which of its outputs are larger than the last cache, and so are lost to it before
anything reads them; what a store and the choice between two bodies need. Invariant: such an output is written past the
caches by whole lines, or as any other; no phase reads it; what was written is visible when the phase ends.
A store of a whole line that is not in a cache reads the line first. Past the caches it does not: of 64 MB, a line takes
3.2 ns instead of 6.6 (one core of a Granite Rapids), of 32 MB 4.1, of 8 MB 6.7. A line in parts may leave in parts: a
transposition took 4 times as long by halves of lines. Memory of a caller need not be aligned, so a phase has two bodies
and looks at the addresses (llvm.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from armillary.base.dtype import DType
from armillary.codegen.base import Touched
from armillary.codegen.llvm.index import Linear
from armillary.codegen.llvm.state import Emitter
from armillary.target.cpu import CpuModel, outgrows_caches
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.phases import PhasedFunction
from armillary.tir.transform.inject_prefetch import LINE_BYTES

NOTE = f"align {LINE_BYTES}, !nontemporal !3"
NOTES = "!3 = !{i32 1}\n"  # of a module with such stores
_FENCE = "llvm.x86.sse.sfence"


def streamed_outputs(function: PhasedFunction, touched: Touched, cpu: CpuModel) -> frozenset[S.Buffer]:
    """The arguments that are written, never read, and larger than what caches keep; none but on x86 with AVX."""
    large = {b for b in function.params if outgrows_caches(_bytes(b), cpu)}
    if not large or cpu.arch != "x86_64" or not cpu.has("avx") or not function.noalias:
        return frozenset()
    written = frozenset[S.Buffer]().union(*(touched.written(phase.body) for phase in function.phases))
    read = frozenset[S.Buffer]().union(*(touched.read(phase.body) for phase in function.phases))
    return frozenset(large & written - read)


def _bytes(buffer: S.Buffer) -> int:
    """Of a buffer of known size; 0 for others."""
    sizes = [extent.value for extent in buffer.shape if isinstance(extent, E.IntImm)]
    return math.prod(sizes) * buffer.dtype.bytes if len(sizes) == len(buffer.shape) else 0


def is_lines(start: Linear, dtype: DType) -> bool:
    """Whether a store of `dtype` at an index fills whole lines of an aligned buffer."""
    places = (*start.terms.values(), start.constant, dtype.lanes)
    return dtype.bits >= 8 and all(n * dtype.element.bytes % LINE_BYTES == 0 for n in places)


def fence(m: Emitter) -> None:
    """Wait until what went past the caches is in memory, for threads that read it next."""
    m.declare("void", _FENCE, "")
    m.do(f"call void @{_FENCE}()")


def choose(name: str, places: Iterable[str], arguments: str, body: str = "streams", unit: int = LINE_BYTES) -> str:
    """Call the second body where all these pointers are multiples of `unit` (lines begin there), else the first."""
    lines, tests = [], []
    for pointer in places:
        lines.append(f"  {pointer}.place = ptrtoint ptr {pointer} to i64")
        lines.append(f"  {pointer}.low = and i64 {pointer}.place, {unit - 1}")
        lines.append(f"  {pointer}.fits = icmp eq i64 {pointer}.low, 0")
        tests.append(f"{pointer}.fits")
    all_fit = tests[0]
    for number, test in enumerate(tests[1:]):
        lines.append(f"  %fits{number} = and i1 {all_fit}, {test}")
        all_fit = f"%fits{number}"
    lines.append(f"  br i1 {all_fit}, label %{body}, label %plain")
    for label, called in ((body, body), ("plain", "body")):
        lines.append(f"{label}:\n  %{label}.code = call i32 @{name}.{called}({arguments})\n  ret i32 %{label}.code")
    return "\n".join(lines)
