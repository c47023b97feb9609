"""Functions of LLVM IR around our own float32 functions, scalar and vector.

In: a name of `MATH_FUNCTIONS`, a number of lanes, the processor. Out: the text of an LLVM function, which is inlined
where it is called. Invariant: lanes that a function does not know itself (`NEEDS_LIBM`) go to libm, all lanes of the
vector one by one, in a function that is not inlined. The functions: llvm/math.py, llvm/trig.py.
"""

from __future__ import annotations

from armillary.codegen.llvm import math as llvm_math
from armillary.codegen.llvm import trig as llvm_trig
from armillary.codegen.llvm.builder import Builder
from armillary.codegen.llvm.float_lanes import FloatLanes
from armillary.target.cpu import CpuModel

_RULES = llvm_math.RULES | llvm_trig.RULES
_NEEDS_LIBM = llvm_math.NEEDS_LIBM | llvm_trig.NEEDS_LIBM
_BINARY = frozenset({"pow", "fmod", "atan2"})
MATH_FUNCTIONS = frozenset(_RULES)


def math_symbol(name: str, lanes: int) -> str:
    """The name of a function of vectors."""
    return f"armillary_{name}_{'' if lanes == 1 else f'v{lanes}'}f32"


def math_function(name: str, lanes: int, declared: dict[str, str], cpu: CpuModel) -> str:
    """The text of one function; notes what it needs declared."""
    b = Builder()
    k = FloatLanes(b, lanes, features=cpu.features | ({"fma"} if cpu.has_fma else frozenset()))
    arguments = _arguments(name)
    result = _RULES[name](k, *arguments)
    before = ""
    if name in _NEEDS_LIBM:
        result, before = _or_libm(name, k, result, arguments), _libm_function(name, k, declared)
    declared.update(b.declared)
    body = "\n".join(b.regions[0].lines)
    parameters = ", ".join(f"{k.kind} {a}" for a in arguments)
    head = f"define internal {k.kind} @{math_symbol(name, lanes)}({parameters}) alwaysinline nounwind memory(none) {{"
    return f"{before}{head}\nentry:\n{body}\n  ret {k.kind} {result}\n}}\n"


def _arguments(name: str) -> tuple[str, ...]:
    return ("%x", "%y") if name in _BINARY else ("%x",)


def _or_libm(name: str, k: FloatLanes, near: str, arguments: tuple[str, ...]) -> str:
    """The near result, or that of libm where any lane asks for it."""
    b, test = k.b, _NEEDS_LIBM[name](k, *arguments)
    if k.lanes > 1:
        intrinsic = f"llvm.vector.reduce.or.v{k.lanes}i1"
        b.declare("i1", intrinsic, k.flag)
        test = b.here(f"call i1 @{intrinsic}({k.flag} {test})")
    b.do(f"br i1 {test}, label %far, label %near")
    b.start("far")
    values = ", ".join(f"{k.kind} {a}" for a in arguments)
    far = b.here(f"call {k.kind} @{math_symbol(name, k.lanes)}_far({values})")
    b.do("br label %near")
    b.start("near")
    return b.here(f"phi {k.kind} [ {near}, %entry ], [ {far}, %far ]")


def _libm_function(name: str, k: FloatLanes, declared: dict[str, str]) -> str:
    """The function for any argument: libm for each lane."""
    b, arguments = Builder(), _arguments(name)
    b.declare("float", f"{name}f", ", ".join("float" for _ in arguments), "nounwind memory(none)")
    result = arguments[0]
    for lane in range(k.lanes):
        ones = arguments
        if k.lanes > 1:
            ones = tuple(b.here(f"extractelement {k.kind} {a}, i64 {lane}") for a in arguments)
        value = b.here(f"call float @{name}f({', '.join(f'float {one}' for one in ones)})")
        result = b.here(f"insertelement {k.kind} {result}, float {value}, i64 {lane}") if k.lanes > 1 else value
    declared.update(b.declared)
    body = "\n".join(b.regions[0].lines)
    notes = "noinline cold nounwind memory(none)"
    parameters = ", ".join(f"{k.kind} {a}" for a in arguments)
    head = f"define internal {k.kind} @{math_symbol(name, k.lanes)}_far({parameters}) {notes} {{"
    return f"{head}\n{body}\n  ret {k.kind} {result}\n}}\n"
