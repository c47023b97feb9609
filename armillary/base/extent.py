"""Extents: sizes of axes that are numbers, expressions over named sizes, or unknown.

In: named sizes with bounds (`Size`), integers, and arithmetic on them. Out: an int where the result is a number, else
an `Extent` in one normal form: a sum of products, `2*b*s + 1`, whose factors are sizes, floor divisions, minima and
maxima. Invariant: equal normal forms are equal extents, and nothing here asks for the value of a size before it is
bound; a size is never negative. `ANY_DIM` is an extent of which nothing is known. The text form is read by
text/extent.py; as an expression of the loop language: tir/extents.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, Union

from armillary.base.record import record
from armillary.errors import ConfigError, ExecutionError, TypeMismatch

LARGEST = 2**31 - 1  # of a size whose file states no bound: kernels count elements in 32 bits


class AnyDim:
    """A dimension known only at run time. All are equal as values; nothing may be concluded from that."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) is AnyDim

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "?"

    def __add__(self, other: Dim) -> Dim:
        return _combined(_sum, self, other)

    def __radd__(self, other: Dim) -> Dim:
        return _combined(_sum, other, self)

    def __sub__(self, other: Dim) -> Dim:
        return _combined(_difference, self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return _combined(_difference, other, self)

    def __mul__(self, other: Dim) -> Dim:
        return _combined(_product, self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return _combined(_product, other, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return _combined(_quotient, self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _combined(_quotient, other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _combined(_remainder, self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _combined(_remainder, other, self)

    def __neg__(self) -> Dim:
        return _combined(_difference, 0, self)


ANY_DIM = AnyDim()


@record(slots=True, eq=False)
class Size:
    """A named size: its bounds (both included), a number that divides it, and a value that is typical (0: not stated).

    `origin` is the variable of the loop language that it stands for, if a script wrote one: two variables of one name
    are two sizes.
    """

    name: str
    low: int = 0
    high: int = LARGEST
    step: int = 1
    hint: int = 0
    origin: object = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high or self.step < 1 or self.hint < 0:
            raise TypeMismatch(
                f"the size {self.name} has the bounds {self.low} to {self.high}, step {self.step}, hint {self.hint}",
                hint="0 <= low <= high, and a step of at least 1",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.name == other.name and self.origin is other.origin

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        return self.low, self.high

    @property
    def typical(self) -> int:
        """A value for cost models: the hint, else the middle of bounds that a user stated, else 1."""
        if self.hint:
            return self.hint
        middle = (self.low + self.high) // 2 if self.high < LARGEST else 1
        return max(self.low, middle // self.step * self.step or self.step)


@record(slots=True)
class Quotient:
    """numerator // denominator, rounded down, where no simpler form was found."""

    numerator: Known
    denominator: Known

    def __str__(self) -> str:
        return f"floordiv({self.numerator}, {self.denominator})"

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        (low, high), (least, most) = bounds(self.numerator), bounds(self.denominator)
        least = max(least, 1)
        return low // (least if low < 0 else max(most, 1)), high // (least if high >= 0 else max(most, 1))


@record(slots=True)
class Least:
    """The smaller of two extents."""

    a: Known
    b: Known

    def __str__(self) -> str:
        return f"min({self.a}, {self.b})"

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        a, b = bounds(self.a), bounds(self.b)
        return min(a[0], b[0]), min(a[1], b[1])


@record(slots=True)
class Most:
    """The larger of two extents."""

    a: Known
    b: Known

    def __str__(self) -> str:
        return f"max({self.a}, {self.b})"

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        a, b = bounds(self.a), bounds(self.b)
        return max(a[0], b[0]), max(a[1], b[1])


Factor: TypeAlias = "Size | Quotient | Least | Most"
Product: TypeAlias = "tuple[Factor, ...]"  # in the order of their texts


class Extent(AnyDim):
    """A sum of products of factors, each with a coefficient that is not 0, and a constant."""

    __slots__ = ("__dict__", "constant", "terms")
    terms: tuple[tuple[Product, int], ...]
    constant: int

    def __init__(self, terms: Mapping[Product, int], constant: int = 0) -> None:
        rows = sorted(terms.items(), key=lambda row: (-len(row[0]), str(row[0]), row[1]))
        object.__setattr__(self, "terms", tuple(rows))
        object.__setattr__(self, "constant", constant)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an extent does not change: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return Extent, (dict(self.terms), self.constant)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Extent):
            return self is other or (self.constant == other.constant and self.terms == other.terms)
        if isinstance(other, int) or type(other) is AnyDim:
            return False
        size = as_size(self)
        return size is not None and size.origin is not None and size.origin is other

    def __hash__(self) -> int:
        return hash(self._text)

    if TYPE_CHECKING:  # arithmetic of known sizes gives known sizes

        def __add__(self, other: Known) -> Known: ...  # type: ignore[override]
        def __radd__(self, other: int) -> Known: ...  # type: ignore[override]
        def __sub__(self, other: Known) -> Known: ...  # type: ignore[override]
        def __rsub__(self, other: int) -> Known: ...  # type: ignore[override]
        def __mul__(self, other: Known) -> Known: ...  # type: ignore[override]
        def __rmul__(self, other: int) -> Known: ...  # type: ignore[override]
        def __floordiv__(self, other: Known) -> Known: ...  # type: ignore[override]
        def __rfloordiv__(self, other: int) -> Known: ...  # type: ignore[override]
        def __mod__(self, other: Known) -> Known: ...  # type: ignore[override]
        def __rmod__(self, other: int) -> Known: ...  # type: ignore[override]

    @cached_property
    def _text(self) -> str:
        text = ""
        for factors, count in self.terms:
            words = "*".join(map(str, factors))
            words = words if abs(count) == 1 else f"{abs(count)}*{words}"
            text += f" {'-' if count < 0 else '+'} {words}" if text else ("-" if count < 0 else "") + words
        if self.constant:
            text += f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}"
        return text

    def __repr__(self) -> str:
        return self._text

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value that the bounds of the sizes allow."""
        low = high = self.constant
        for factors, count in self.terms:
            ends = (1, 1)
            for factor in factors:
                corners = [a * b for a in ends for b in factor.bounds]
                ends = (min(corners), max(corners))
            low += count * ends[0 if count > 0 else 1]
            high += count * ends[1 if count > 0 else 0]
        return low, high


Known: TypeAlias = Union[int, Extent]  # noqa: UP007 (aliases are values, also in Python 3.10)
Dim: TypeAlias = Union[int, AnyDim]  # noqa: UP007


def size(name: str, low: int = 0, high: int = LARGEST, step: int = 1, hint: int = 0, origin: object = None) -> Extent:
    """The extent that is one named size."""
    return Extent({(Size(name, low, high, step, hint, origin),): 1})


def as_size(extent: Dim) -> Size | None:
    """The size that an extent is, if it is nothing else."""
    if not isinstance(extent, Extent) or extent.constant or len(extent.terms) != 1:
        return None
    factors, count = extent.terms[0]
    return factors[0] if count == 1 and len(factors) == 1 and isinstance(factors[0], Size) else None


def is_known(dim: object) -> bool:
    """Whether a dimension is a number or an expression over sizes."""
    return isinstance(dim, int | Extent)


def bounds(extent: Known) -> tuple[int, int]:
    """The least and the largest value of an extent."""
    return extent.bounds if isinstance(extent, Extent) else (extent, extent)


def sizes_of(dims: Iterable[object]) -> dict[str, Size]:
    """The sizes in dimensions, by name, in the order in which they occur; TypeMismatch for two of one name."""
    result: dict[str, Size] = {}
    for dim in dims:
        for item in _sizes(dim):
            if result.setdefault(item.name, item) != item:
                raise TypeMismatch(f"two sizes are called {item.name}", hint="give each te.var a name of its own")
    return result


def _sizes(item: object) -> Iterator[Size]:
    match item:
        case Size():
            yield item
        case Extent():
            for factors, _ in item.terms:
                for factor in factors:
                    yield from _sizes(factor)
        case Quotient():
            yield from _sizes(item.numerator)
            yield from _sizes(item.denominator)
        case Least() | Most():
            yield from _sizes(item.a)
            yield from _sizes(item.b)


def evaluate(extent: Known, values: Mapping[str, int]) -> int:
    """The value of an extent where each size has one; KeyError names a size that has none."""
    result = substitute(extent, values)
    if not isinstance(result, int):
        raise KeyError(next(iter(sizes_of([result]))))
    return result


def typical(extent: Known, stated: Mapping[str, int] = MappingProxyType({})) -> int:
    """The value that cost models take: see Size.typical; with what is stated of some sizes."""
    return evaluate(extent, {name: stated.get(name, item.typical) for name, item in sizes_of([extent]).items()})


def size_values(sizes: Mapping[str, Size], asked: Mapping[str, int]) -> dict[str, int]:
    """A value for each of a network's sizes: what is asked, else what it typically is.

    Raises ConfigError for a name that is no size of the network, ExecutionError for a value that a size cannot have.
    """
    unknown = sorted(asked.keys() - sizes.keys())
    if unknown:
        raise ConfigError(f"the network has no size {unknown[0]!r}", hint=f"its sizes: {', '.join(sizes) or 'none'}")
    for name, value in asked.items():
        size = sizes[name]
        if not size.low <= value <= size.high or value % size.step:
            message = f"{name} = {value} lies outside its bounds {size.low} to {size.high}, step {size.step}"
            raise ExecutionError(message, hint="the network was compiled with them: from_onnx(bounds=)")
    return {name: asked.get(name, size.typical) for name, size in sizes.items()}


def substitute(extent: Known, values: Mapping[str, Known]) -> Known:
    """The extent with some sizes replaced by extents."""
    if not isinstance(extent, Extent):
        return extent
    total: Known = extent.constant
    for factors, count in extent.terms:
        product: Known = count
        for factor in factors:
            product = _product(product, _factor_value(factor, values))
        total = _sum(total, product)
    return total


def _factor_value(factor: Factor, values: Mapping[str, Known]) -> Known:
    match factor:
        case Size():
            return values.get(factor.name, Extent({(factor,): 1}))
        case Quotient(a, b):
            return _quotient(substitute(a, values), substitute(b, values))
        case Least(a, b):
            return least(substitute(a, values), substitute(b, values))
        case Most(a, b):
            return most(substitute(a, values), substitute(b, values))


# --- arithmetic ---------------------------------------------------------------------------------------------------


def _combined(operation: Callable[[Known, Known], Known], a: object, b: object) -> Dim:
    if isinstance(a, int | Extent) and isinstance(b, int | Extent):
        return operation(a, b)
    return ANY_DIM if isinstance(a, int | AnyDim) and isinstance(b, int | AnyDim) else NotImplemented


def _parts(extent: Known) -> tuple[Mapping[Product, int], int]:
    return (dict(extent.terms), extent.constant) if isinstance(extent, Extent) else ({}, extent)


def _normal(terms: Mapping[Product, int], constant: int) -> Known:
    terms = {factors: count for factors, count in terms.items() if count}
    return Extent(terms, constant) if terms else constant


def _sum(a: Known, b: Known) -> Known:
    (left, one), (right, other) = _parts(a), _parts(b)
    terms = dict(left)
    for factors, count in right.items():
        terms[factors] = terms.get(factors, 0) + count
    return _normal(terms, one + other)


def _difference(a: Known, b: Known) -> Known:
    return _sum(a, _product(-1, b))


def _product(a: Known, b: Known) -> Known:
    (left, one), (right, other) = _parts(a), _parts(b)
    terms: dict[Product, int] = {}
    for factors, count in ((), one), *left.items():
        for more, times in ((), other), *right.items():
            product = tuple(sorted((*factors, *more), key=str))
            terms[product] = terms.get(product, 0) + count * times
    constant = terms.pop((), 0)
    return _normal(terms, constant)


def _quotient(a: Known, b: Known) -> Known:
    """a // b, rounded down: b divides what it can, and what is left over is dropped where its bounds allow that."""
    if b == 0:
        raise ZeroDivisionError(f"the extent {a} is divided by 0")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = _exact(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b > 0:
        terms, constant = _parts(a)
        whole = _normal({f: c // b for f, c in terms.items() if c % b == 0}, constant // b)
        rest = _normal({f: c for f, c in terms.items() if c % b}, constant % b)
        low, high = bounds(rest)
        if low >= 0 and high < b:
            return whole
        return _sum(whole, Extent({(Quotient(rest, b),): 1}))
    low, high = bounds(a)
    if low >= 0 and high < bounds(b)[0]:
        return 0
    return Extent({(Quotient(a, b),): 1})


def _remainder(a: Known, b: Known) -> Known:
    if isinstance(b, int) and b > 0 and divides(b, a):
        return 0
    return _difference(a, _product(b, _quotient(a, b)))


def _exact(a: Known, b: Known) -> Known | None:
    """a / b where b divides a as polynomials of the sizes: the leading terms are divided until nothing is left."""
    divisor, last = _parts(b)
    rows = [*Extent(divisor).terms] if divisor else []
    lead, lead_count = rows[0] if rows else ((), last)
    rest, result = a, 0  # type: Known, Known
    for _ in range(1 + 2 * len(_parts(a)[0])):
        if rest == 0:
            return result
        terms, constant = _parts(rest)
        factors, count = Extent(terms).terms[0] if terms else ((), constant)
        left = _without(factors, lead)
        if left is None or count % lead_count:
            return None
        step = _normal({left: count // lead_count}, 0) if left else count // lead_count
        result, rest = _sum(result, step), _difference(rest, _product(step, b))
    return result if rest == 0 else None


def _without(factors: Product, taken: Product) -> Product | None:
    left = list(factors)
    for factor in taken:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def divides(number: int, extent: Known) -> bool:
    """Whether every value of the extent is a multiple of a number, as its coefficients and the sizes' steps say."""
    terms, constant = _parts(extent)
    counts = [count * math.prod(f.step for f in factors if isinstance(f, Size)) for factors, count in terms.items()]
    return all(count % number == 0 for count in (*counts, constant))


def ceil_div(a: Known, b: int) -> Known:
    """a / b, rounded up."""
    return _quotient(_sum(a, b - 1), b)


def least(a: Known, b: Known) -> Known:
    """The smaller of two extents."""
    low, high = bounds(_difference(a, b))
    if high <= 0:
        return a
    return b if low >= 0 else Extent({(Least(*sorted((a, b), key=str)),): 1})


def most(a: Known, b: Known) -> Known:
    """The larger of two extents."""
    low, high = bounds(_difference(a, b))
    if high <= 0:
        return b
    return a if low >= 0 else Extent({(Most(*sorted((a, b), key=str)),): 1})


@record(frozen=False, slots=True)
class Meeting:
    """Two axes, different as expressions, that an operator takes to be equal; `where`: the call that was typed."""

    a: Known
    b: Known
    where: object = None


# Where `noted_meetings` looks: axes over named sizes that operators take to be equal.
_MEETINGS: ContextVar[list[Meeting] | None] = ContextVar("_MEETINGS", default=None)


@contextmanager
def noted_meetings() -> Iterator[list[Meeting]]:
    """A list of the axes, different as expressions, that operators typed in this context take to be equal."""
    result: list[Meeting] = []
    token = _MEETINGS.set(result)
    try:
        yield result
    finally:
        _MEETINGS.reset(token)


def meetings_so_far() -> list[Meeting] | None:
    """What is noted in this context; None where nobody asks."""
    return _MEETINGS.get()


def note_meeting(a: Dim, b: Dim) -> None:
    """Say that an operator takes two axes to be equal."""
    meetings = _MEETINGS.get()
    if meetings is not None and a != b and isinstance(a, int | Extent) and isinstance(b, int | Extent):
        meetings.append(Meeting(a, b))


def note_at_most(a: Dim, b: Dim) -> None:
    """Say that an operator takes an axis to be no longer than another."""
    if isinstance(a, int | Extent) and isinstance(b, int | Extent):
        note_meeting(least(a, b), a)
