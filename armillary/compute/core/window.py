"""Windows: the work of a kernel, as up to six dimensions of start, end and step.

In: dimensions. Out: sub-windows, iteration counts, slices. Invariant: a sub-window keeps the five rules that
`Window.validate` checks: it starts inside, ends inside, has equal steps, starts at a multiple of the step from the
start, and is a multiple of the step long. Source: the architecture text of the library, "Windows".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.boundary import bounded
from armillary.base.record import record
from armillary.errors import TypeMismatch

NUM_MAX_DIMENSIONS = 6


@bounded
class Coordinates(tuple[int, ...]):
    """A place in up to six dimensions; those not given are 0."""

    num_max_dimensions = NUM_MAX_DIMENSIONS

    def __new__(cls, *values: int) -> Coordinates:
        if len(values) > NUM_MAX_DIMENSIONS:
            raise TypeMismatch(f"coordinates have at most {NUM_MAX_DIMENSIONS} dimensions, got {len(values)}")
        return super().__new__(cls, (*map(int, values), *(0 for _ in range(NUM_MAX_DIMENSIONS - len(values)))))

    def x(self) -> int:
        """Along a row."""
        return self[0]

    def y(self) -> int:
        """The row that an iterator stands at."""
        return self[1]

    def z(self) -> int:
        """The plane that an iterator stands at."""
        return self[2]


class Steps(tuple[int, ...]):
    """Elements processed together, by dimension; those not given are 1."""

    def __new__(cls, *values: int) -> Steps:
        return super().__new__(cls, (*values, *(1 for _ in range(NUM_MAX_DIMENSIONS - len(values)))))


@record(slots=True)
class Dimension:
    """Start, end and step of one dimension."""

    begin: int = 0
    stop: int = 1
    stride: int = 1

    def start(self) -> int:
        """Where it starts."""
        return self.begin

    def end(self) -> int:
        """One past where it ends."""
        return self.stop

    def step(self) -> int:
        """How far one iteration goes."""
        return self.stride


_Dimension = Dimension  # the nested name hides it


class _Nested:
    """What the text nests in `Window`; a base, so that `Dimension` is the class's name in methods, too."""

    DimX, DimY, DimZ = 0, 1, 2
    Dimension = _Dimension


class Window(_Nested):
    """Six dimensions, each a `Window.Dimension`; `DimX`, `DimY` and `DimZ` number the first three."""

    def __init__(self, *dimensions: Dimension) -> None:
        if len(dimensions) > NUM_MAX_DIMENSIONS or not all(isinstance(each, Dimension) for each in dimensions):
            raise TypeMismatch(f"a window is made of at most {NUM_MAX_DIMENSIONS} Dimensions, got {dimensions!r}")
        self._dims = [*dimensions, *(Dimension() for _ in range(NUM_MAX_DIMENSIONS - len(dimensions)))]

    def __getitem__(self, dimension: int) -> Dimension:
        return self._dims[self._checked(dimension)]

    def _checked(self, dimension: int) -> int:
        """The number of a dimension; TypeMismatch where a window has none of that number."""
        if not isinstance(dimension, int | np.integer) or not 0 <= dimension < NUM_MAX_DIMENSIONS:
            message = f"dimension {dimension!r:.40} of a window, which has the dimensions 0 to {NUM_MAX_DIMENSIONS - 1}"
            raise TypeMismatch(message, hint="Window.DimX, Window.DimY and Window.DimZ are the first three")
        return int(dimension)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and self._dims == other._dims

    def __hash__(self) -> int:
        return hash(tuple(self._dims))

    def __repr__(self) -> str:
        return f"Window({', '.join(f'{d.begin}:{d.stop}:{d.stride}' for d in self._dims if d != Dimension()) or '-'})"

    def x(self) -> Dimension:
        """Along a row."""
        return self._dims[0]

    def y(self) -> Dimension:
        """The rows."""
        return self._dims[1]

    def z(self) -> Dimension:
        """The planes."""
        return self._dims[2]

    def set(self, dimension: int, value: Dimension) -> None:
        """Set one dimension."""
        if not isinstance(value, Dimension):
            raise TypeMismatch(f"dimension {dimension!r:.40} of a window is set to {value!r:.60}, wanted a Dimension")
        if value.stride <= 0 and value.begin != value.stop:
            raise TypeMismatch(f"dimension {dimension} of a window has the step {value.stride}, wanted at least 1")
        self._dims[self._checked(dimension)] = value

    def use_tensor_dimensions(self, shape: tuple[int, ...], first_dimension: int = 0) -> None:
        """Cover a shape, element by element, from a dimension on."""
        for n in range(first_dimension, min(len(shape), NUM_MAX_DIMENSIONS)):
            self.set(n, Dimension(0, max(1, shape[n])))

    def num_iterations(self, dimension: int) -> int:
        """How often a dimension steps."""
        dim = self[dimension]
        return -(-(dim.stop - dim.begin) // dim.stride)

    def num_iterations_total(self) -> int:
        """How often all dimensions step together."""
        total = 1
        for n in range(NUM_MAX_DIMENSIONS):
            total *= self.num_iterations(n)
        return total

    def split_window(self, dimension: int, part: int, parts: int) -> Window:
        """One of `parts` sub-windows along a dimension; the first ones take one iteration more where it is uneven."""
        dim, count = self[dimension], self.num_iterations(dimension)
        if not 0 <= part < parts:
            raise TypeMismatch(f"part {part} of {parts}: parts are numbered from 0")
        share, rest = divmod(count, parts)
        first = part * share + min(part, rest)
        last = first + share + (part < rest)
        result = Window(*self._dims)
        stop = min(dim.begin + last * dim.stride, dim.stop) if last == count else dim.begin + last * dim.stride
        result._dims[dimension] = Dimension(dim.begin + first * dim.stride, stop, dim.stride)
        return result

    def objection_to(self, sub: Window) -> str:
        """Which of the five rules a sub-window breaks, "" if none."""
        for n, (most, part) in enumerate(zip(self._dims, sub._dims, strict=True)):
            rules = (
                (most.begin <= part.begin < most.stop, f"starts at {part.begin}, outside {most.begin}:{most.stop}"),
                (part.begin < part.stop <= most.stop, f"ends at {part.stop}, outside {part.begin}:{most.stop}"),
                (most.stride == part.stride, f"steps by {part.stride}, not {most.stride}"),
                ((part.begin - most.begin) % most.stride == 0, f"starts between steps of {most.stride}"),
                ((part.stop - part.begin) % most.stride == 0, f"is no multiple of {most.stride} long"),
            )
            broken = next((text for holds, text in rules if not holds), None)
            if broken:
                return f"dimension {n} {broken}"
        return ""

    def validate(self, sub: Window) -> None:
        """Raise TypeMismatch unless `sub` is a sub-window of this one."""
        objection = self.objection_to(sub)
        if objection:
            raise TypeMismatch(f"{sub} is no sub-window of {self}: {objection}")

    def places(self) -> Iterator[Coordinates]:
        """Every place, the first dimension fastest."""
        index = [d.begin for d in self._dims]
        if self.num_iterations_total() <= 0:
            return
        while True:
            yield Coordinates(*index)
            for n, dim in enumerate(self._dims):
                index[n] += dim.stride
                if index[n] < dim.stop:
                    break
                index[n] = dim.begin
            else:
                return
