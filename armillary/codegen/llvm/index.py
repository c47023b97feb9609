"""Index arithmetic: an index as a sum of 64-bit atoms with constant factors, and addresses from it.

In: integer expressions. Out: `Linear` sums, and pointers built level by level, outermost terms first, so that what
does not change in a loop is computed outside it and unrolled accesses differ in a constant only. Invariant: index
arithmetic is taken not to overflow; everything inside that is not + - * // % is evaluated in its own dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.base.node import Node, Visits
from armillary.codegen.base import refuse
from armillary.codegen.llvm.state import Emitter
from armillary.codegen.llvm.types import memory_element
from armillary.tir import expr as E
from armillary.tir import stmt as S

# AArch64's loads take a constant of -256 to 255, or a multiple of their size up to some thousand: what lies further
# below has a pointer of its own, shared by all accesses near it, made where the buffer's own is.
LEAST_OFFSET, STEP_BELOW = -256, 1024  # bytes; elements


@dataclass(slots=True)
class Linear:
    """sum(factor * atom) + constant; atoms are names of i64 values."""

    terms: dict[str, int] = field(default_factory=dict)
    constant: int = 0

    def add(self, other: Linear, factor: int) -> None:
        self.constant += factor * other.constant
        for atom, weight in other.terms.items():
            total = self.terms.get(atom, 0) + factor * weight
            if total:
                self.terms[atom] = total
            else:
                self.terms.pop(atom, None)


def linear(m: Emitter, item: E.Expr) -> Linear:
    """A scalar integer expression as a sum."""
    result = Linear()
    _collect(m, item, 1, result)
    return result


def _collect(m: Emitter, item: Node, factor: int, into: Linear) -> None:
    kind = type(item)
    if kind is E.IntImm:
        into.constant += factor * item.value  # type: ignore[attr-defined]
    elif kind is E.Var:
        constant = m.constants.get(item)  # type: ignore[call-overload]
        if constant is not None:
            into.constant += factor * constant
        else:
            into.add(Linear({_atom(m, item): 1}), factor)  # type: ignore[arg-type]
    elif kind is E.Add:
        _collect(m, item.a, factor, into)  # type: ignore[attr-defined]
        _collect(m, item.b, factor, into)  # type: ignore[attr-defined]
    elif kind is E.Sub:
        _collect(m, item.a, factor, into)  # type: ignore[attr-defined]
        _collect(m, item.b, -factor, into)  # type: ignore[attr-defined]
    elif kind in _COMPOUND:
        known = m.sums.get(id(item))
        part = Linear() if known is None else known[1]
        if known is None:
            m.sums[id(item)] = (item, part)
            _COMPOUND[kind](m, item, part)
        into.add(part, factor)
    elif kind is E.Cast and _is_widening(item):  # type: ignore[arg-type]
        _collect(m, item.value, factor, into)  # type: ignore[attr-defined]
    else:
        into.add(Linear({_atom(m, item): 1}), factor)  # type: ignore[arg-type]


def _is_widening(item: E.Cast) -> bool:
    source, to = item.value.dtype, item.dtype
    return source.code == to.code == "int" and source.bits >= 32 and to.bits >= source.bits


def _atom(m: Emitter, item: E.Expr) -> str:
    wide = m.wide.get(item) if isinstance(item, E.Var) else None
    if wide is not None:
        return wide
    value = m.value(item)
    if item.dtype.bits == 64:
        return value
    extend = "sext" if item.dtype.code == "int" else "zext"
    kind = "i1" if item.dtype.is_bool else f"i{item.dtype.bits}"
    return m.pure(f"{extend} {kind} {value} to i64", value)


def _product(m: Emitter, item: E.Mul, into: Linear) -> None:
    a, b = linear(m, item.a), linear(m, item.b)
    for one, other in ((a, b), (b, a)):
        if not one.terms:
            into.add(other, one.constant)
            return
    x, y = sum_of(m, a), sum_of(m, b)
    into.add(Linear({m.pure(f"mul nsw i64 {x}, {y}", x, y): 1}), 1)


def _quotient(m: Emitter, item: E.FloorDiv | E.FloorMod, into: Linear) -> None:
    """`x // c` and `x % c`: terms divisible by c leave the division."""
    divisor = m.static_int(item.b)
    is_mod = isinstance(item, E.FloorMod)
    if divisor is None or divisor <= 0:
        into.add(Linear({_atom_of_value(m, item): 1}), 1)
        return
    low, high = m.range(item.a)
    if low is not None and high is not None and low // divisor == high // divisor:
        into.constant += 0 if is_mod else low // divisor
        if is_mod:
            _collect(m, item.a, 1, into)
            into.constant -= low // divisor * divisor
        return
    whole, rest = _split(linear(m, item.a), divisor)
    if not is_mod:
        into.add(whole, 1)
    if not rest.terms:
        into.constant += rest.constant % divisor if is_mod else rest.constant // divisor
        return
    value = sum_of(m, rest)
    is_positive = m.is_non_negative(item.a) and not whole.terms and whole.constant >= 0
    into.add(Linear({floor_by_constant(m, value, divisor, is_mod, is_positive): 1}), 1)


_COMPOUND: Visits[Emitter, [Linear], None] = {
    E.Mul: _product,
    E.FloorDiv: _quotient,
    E.FloorMod: _quotient,
}  # what adds itself to an empty sum; a statement asks each node once


def _atom_of_value(m: Emitter, item: E.Expr) -> str:
    value = m.value(item)
    return value if item.dtype.bits == 64 else m.pure(f"sext i{item.dtype.bits} {value} to i64", value)


def _split(total: Linear, divisor: int) -> tuple[Linear, Linear]:
    whole, rest = Linear(), Linear()
    for atom, weight in total.terms.items():
        if weight % divisor == 0:
            whole.terms[atom] = weight // divisor
        else:
            rest.terms[atom] = weight
    whole.constant, rest.constant = divmod(total.constant, divisor)
    return whole, rest


def floor_by_constant(m: Emitter, value: str, divisor: int, is_mod: bool, is_positive: bool) -> str:
    """Floor division or remainder of an i64 by a positive constant."""
    if divisor & (divisor - 1) == 0:
        if is_mod:
            return m.pure(f"and i64 {value}, {divisor - 1}", value)
        return m.pure(f"ashr i64 {value}, {divisor.bit_length() - 1}", value)
    if is_positive:
        return m.pure(f"{'urem' if is_mod else 'udiv'} i64 {value}, {divisor}", value)
    rest = m.pure(f"srem i64 {value}, {divisor}", value)
    negative = m.pure(f"icmp slt i64 {rest}, 0", rest)
    if is_mod:
        raised = m.pure(f"add i64 {rest}, {divisor}", rest)
        return m.pure(f"select i1 {negative}, i64 {raised}, i64 {rest}", negative, raised, rest)
    quotient = m.pure(f"sdiv i64 {value}, {divisor}", value)
    step = m.pure(f"sext i1 {negative} to i64", negative)
    return m.pure(f"add i64 {quotient}, {step}", quotient, step)


def sum_of(m: Emitter, total: Linear) -> str:
    """Emit a sum as one i64 value; outer terms are added first."""
    result = ""
    for atom, weight in sorted(total.terms.items(), key=lambda pair: m.levels.get(pair[0], 0)):
        part = atom if weight == 1 else m.pure(f"mul nsw i64 {atom}, {weight}", atom)
        result = m.pure(f"add nsw i64 {result}, {part}", result, part) if result else part
    if not result:
        return str(total.constant)
    return m.pure(f"add nsw i64 {result}, {total.constant}", result) if total.constant else result


def address(m: Emitter, buffer: S.Buffer, total: Linear) -> str:
    """A pointer to the element at `total`; not `inbounds`, because partial sums may lie outside the buffer."""
    pointer = base_pointer(m, buffer)
    kind = memory_element(buffer.dtype.element)
    if buffer.elem_offset is not None:
        total.add(linear(m, buffer.elem_offset), 1)
    if m.cpu.arch == "aarch64" and total.constant * buffer.dtype.element.bytes < LEAST_OFFSET:
        below = -(total.constant // STEP_BELOW) * STEP_BELOW
        pointer = m.pure(f"getelementptr {kind}, ptr {pointer}, i64 {-below}", pointer)
        total.constant += below
    by_level: dict[int, Linear] = {}
    for atom, weight in total.terms.items():
        by_level.setdefault(m.levels.get(atom, 0), Linear()).terms[atom] = weight
    for level in sorted(by_level):
        offset = sum_of(m, by_level[level])
        pointer = m.pure(f"getelementptr {kind}, ptr {pointer}, i64 {offset}", pointer, offset)
    if total.constant:
        pointer = m.pure(f"getelementptr {kind}, ptr {pointer}, i64 {total.constant}", pointer)
    return pointer


def base_pointer(m: Emitter, buffer: S.Buffer) -> str:
    """The pointer to a buffer's first element; refuses a buffer that has no place."""
    result = m.pointers.get(buffer)
    if result is None:
        raise refuse("llvm", f"an access to buffer {buffer.name}, which is no argument, workspace or allocation here")
    return result
