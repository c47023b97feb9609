"""Our own sin and cos of float32, scalar and vector.

In: a name and a number of lanes. Out: the text of an LLVM function. Angles below `MOST` are brought to a quarter of a
turn in float64, in three steps of which the first two are exact without fused multiply-adds, and polynomials give both
functions there; errors are at most 2 ulp (`tests/codegen/test_numerics.py`). Invariant: larger angles, infinities and
NaN go to libm, lane by lane, in a function that is not inlined. Other functions: llvm_math.py.
"""

from __future__ import annotations

from armillary.codegen.llvm_builder import Builder
from armillary.codegen.llvm_math import FloatLanes

MOST = 1e6  # multiples of a quarter turn below it have 20 bits, and times a third of pi / 2 fit 53
_PI_2 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)  # pi / 2 in parts, the first two of 33 bits
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds a float64 to an integer
_SIN = (-0.16666654611, 0.0083321608736, -0.00019515295891)  # sin r = r + r**3 * P(r**2), |r| <= pi / 4
_COS = (0.04166664568298827, -0.001388731625493765, 2.443315711809948e-05)  # cos r = 1 - r**2 / 2 + r**4 * P(r**2)
_TURNED = {"sin": 0, "cos": 1}  # quarter turns before a sine
TRIG = frozenset(_TURNED)


def trig_function(name: str, lanes: int, declared: dict[str, str]) -> tuple[str, str]:
    """The symbol and text of one function; notes what it needs declared."""
    b = Builder()
    k = FloatLanes(b, lanes)
    symbol = f"armillary_{name}_{k.short}"
    result = _near(k, "%x", _TURNED[name])
    flags = k.op("fcmp uge", k.abs("%x"), MOST)
    test = flags
    if lanes > 1:
        kind, intrinsic = f"<{lanes} x i1>", f"llvm.vector.reduce.or.v{lanes}i1"
        b.declare("i1", intrinsic, kind)
        test = b.here(f"call i1 @{intrinsic}({kind} {flags})")
    b.do(f"br i1 {test}, label %far, label %near")
    b.start("far")
    far = b.here(f"call {k.kind} @{symbol}_far({k.kind} %x)")
    b.do("br label %near")
    b.start("near")
    final = b.here(f"phi {k.kind} [ {result}, %entry ], [ {far}, %far ]")
    declared.update(b.declared)
    body = "\n".join(b.regions[0].lines)
    head = f"define internal {k.kind} @{symbol}({k.kind} %x) alwaysinline nounwind memory(none) {{\nentry:"
    return symbol, f"{_far(name, k, declared)}{head}\n{body}\n  ret {k.kind} {final}\n}}\n"


def _near(k: FloatLanes, x: str, turned: int) -> str:
    """The sine of x and some quarter turns, for |x| below MOST."""
    w, wide = k.widen(x)
    shifted = w.fma(wide, 0.6366197723675814, _MAGIC)
    n = w.op("fsub", shifted, _MAGIC)
    rest = wide
    for part in _PI_2:
        rest = w.fma(n, -part, rest)
    r = k.b.pure(f"fptrunc {w.kind} {rest} to {k.kind}", rest)
    bits = w.to_bits(shifted)
    quarter = k.iop("add", k.b.pure(f"trunc {w.integer} {bits} to {k.integer}", bits), turned)
    squared = k.op("fmul", r, r)
    sine = k.op("fmul", r, k.fma(squared, k.poly(squared, _SIN), 1.0))  # keeps the sign of zero
    cosine = k.fma(k.op("fmul", squared, squared), k.poly(squared, _COS), k.fma(squared, -0.5, 1.0))
    odd = k.iop("and", quarter, 1)
    is_even = k.b.pure(f"icmp eq {k.integer} {odd}, {k.bits_of(0)}", odd)
    sign = k.iop("shl", k.iop("and", quarter, 2), 30)
    return k.from_bits(k.iop("xor", k.to_bits(k.select(is_even, sine, cosine)), sign))


def _far(name: str, k: FloatLanes, declared: dict[str, str]) -> str:
    """The function for any angle: libm for each lane."""
    b = Builder()
    b.declare("float", f"{name}f", "float", "nounwind memory(none)")
    result = "%x"
    for lane in range(k.lanes):
        one = b.here(f"extractelement {k.kind} %x, i64 {lane}") if k.lanes > 1 else "%x"
        value = b.here(f"call float @{name}f(float {one})")
        result = b.here(f"insertelement {k.kind} {result}, float {value}, i64 {lane}") if k.lanes > 1 else value
    declared.update(b.declared)
    body = "\n".join(b.regions[0].lines)
    notes = "noinline cold nounwind memory(none)"
    head = f"define internal {k.kind} @armillary_{name}_{k.short}_far({k.kind} %x) {notes} {{"
    return f"{head}\n{body}\n  ret {k.kind} {result}\n}}\n"
