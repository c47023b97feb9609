"""Functions that take subnormal numbers for 0, and the processor mode for it.

In: a function and a CPU model. Out: whether its kernels run in that mode, and the wrapper's lines around a body.
Invariant: a function in this mode adds up products of float32, or makes a softmax, and nothing else in it tells a
subnormal number from 0: no logarithm, no ceiling, no comparison but that of a maximum or a leaky relu, no root of and
no division by what may be that small. Its results differ by less than 1e-37 for each term of a sum; the caller's mode
is as it was when a kernel returns.
x86 processors stop for some 150 cycles where a product reads or makes a subnormal number. Activations of networks with
random weights, and of recurrent and gated ones whose inputs fade, run down to such numbers: an EfficientNet-B1 took 525
ms instead of 19. On Arm they cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import post_order
from armillary.target.cpu import CpuModel
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.phases import PhasedFunction

DECLARATIONS = {f"llvm.x86.sse.{name}": f"declare void @llvm.x86.sse.{name}(ptr)" for name in ("stmxcsr", "ldmxcsr")}
SINGLE_BITS = 32
SMALLEST = 1e-30  # of the constants that are added so that a divisor is not 0
_MODE = 0x8040  # of MXCSR: subnormal results become 0 (bit 15), subnormal operands are 0 (bit 6)
_SMOOTH = frozenset(
    {
        "exp",
        "exp_flushed",
        "tanh",
        "sigmoid",
        "erf",
        "normcdf",
        "fabs",
        "abs",
        "trunc",
        "round",
        "nearbyint",
        "isnan",
        "isinf",
        "isfinite",
        "fma",
        "copysign",
        "if_then_else",
        "likely",
        "prefetch",
        "vector_reduce_add",
        "dot_bytes",
        "dot_symmetric_bytes",
        "four_bytes",
        "eight_bytes",
        "shift_left",
        "shift_right",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    }
)


def flushes(function: PhasedFunction, cpu: CpuModel) -> bool:
    """Whether a function's kernels take subnormal numbers for 0."""
    if cpu.arch != "x86_64":
        return False
    items = [item for phase in function.phases for item in post_order(phase.body)]
    is_softmax = any(isinstance(item, E.Call) and item.name == "exp_flushed" for item in items)
    if not is_softmax and not any(_adds_a_product(item) for item in items):
        return False
    smooth = {id(test) for item in items if isinstance(item, E.Select) for test in _smooth_tests(item)}
    return not any(_tells_from_zero(item, is_softmax) for item in items if id(item) not in smooth)


def around(called: str) -> str:
    """The lines of a wrapper that call a body and return its code, with the mode set before and put back behind."""
    name, begin = "llvm.x86.sse", "  %mode = alloca i32\n  %flushing = alloca i32\n"
    begin += f"  call void @{name}.stmxcsr(ptr %mode)\n  %mode.was = load i32, ptr %mode\n"
    begin += f"  %mode.flushing = or i32 %mode.was, {_MODE}\n  store i32 %mode.flushing, ptr %flushing\n"
    begin += f"  call void @{name}.ldmxcsr(ptr %flushing)\n"
    return begin + called.replace("  ret i32", f"  call void @{name}.ldmxcsr(ptr %mode)\n  ret i32")


def _adds_a_product(item: object) -> bool:
    """Whether a statement adds a product of float32 to what it writes to."""
    if not isinstance(item, S.BufferStore) or not isinstance(item.value, E.Add):
        return False
    parts = (item.value.a, item.value.b)
    adds = any(isinstance(p, E.BufferLoad) and p.buffer is item.buffer for p in parts)
    return adds and item.buffer.dtype.element.is_float and any(isinstance(p, E.Mul) for p in parts)


def _tells_from_zero(item: object, is_softmax: bool) -> bool:
    """Whether it matters here that a subnormal number is not 0, or whether it is of a wider kind of float."""
    match item:
        case S.BufferStore(buffer=buffer) | E.BufferLoad(buffer=buffer):
            return buffer.dtype.element.is_float and buffer.dtype.element.bits > SINGLE_BITS
        case E.Div(a=a, b=b):  # the sums that softmax divides by are 1 at least
            return not (_is_normal(b) or (is_softmax and _is_normal(a)))
        case E.EQ(a=a, b=b) | E.NE(a=a, b=b):
            return a is not b and a.dtype.element.is_float
        case E.LT(a=a, b=b) | E.LE(a=a, b=b) | E.GT(a=a, b=b) | E.GE(a=a, b=b):
            return a.dtype.element.is_float and not (_is_normal(a) or _is_normal(b))
        case E.Cast(dtype=dtype, value=value):
            return dtype.element.bits == 1 and value.dtype.element.is_float
        case E.Call(name="sqrt", args=(root,)):
            return not _is_normal(root)
        case E.Call(name=name):
            return name not in _SMOOTH
    return False


def _smooth_tests(choice: E.Select) -> Sequence[E.Expr]:
    """Comparisons that choose between what is next to nothing where those compared are: these, or multiples."""
    tests = [e for e in post_order(choice.condition) if isinstance(e, E.LT | E.LE | E.GT | E.GE)]
    compared = {id(side) for test in tests for side in (test.a, test.b)}
    ends = (choice.true_value, choice.false_value)
    near = (any(id(part) in compared for part in (e, *((e.a, e.b) if isinstance(e, E.Mul) else ()))) for e in ends)
    return tests if all(near) else []


def _is_normal(value: E.Expr) -> bool:
    """Whether a number is known not to be subnormal: a constant, a sum with one (of a variance), a root of these."""
    match value:
        case E.FloatImm(value=number):
            return abs(number) >= SMALLEST
        case E.Broadcast(value=inner) | E.Call(name="sqrt", args=(inner,)):
            return _is_normal(inner)
        case E.Add(a=a, b=b):
            constants = [x.value if isinstance(x, E.Broadcast) else x for x in (a, b)]
            return any(isinstance(x, E.FloatImm) and _is_normal(x) for x in constants)
    return False
