"""Sizes that a program of PyTorch leaves open, as extents over named sizes.

In: the symbols in shapes of fake tensors (sympy's expressions, read without importing sympy) and their ranges. Out: an
extent for each. Invariant: a symbol is one size, named by the user's `shape=`, by its Dim, or by the first input and
axis that has it; its typical value is that of the example. A program assumes that open sizes are not 1, which no
kernel here needs: a range from 2 on is one from 1 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from armillary.base.extent import LARGEST, Dim, Extent, Known, least, most, size
from armillary.base.names import identifier
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.values import Value

_FUNCTIONS: Mapping[str, Callable[[Known, Known], Known]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "IntTrueDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": most,
    "Min": least,
}


class OpenSizes:
    """The open sizes of one program, by symbol. `ranges` and `examples` are by symbol, too."""

    def __init__(self, ranges: Mapping[str, tuple[int, int]], examples: Mapping[str, int]) -> None:
        self._ranges, self._examples = ranges, examples
        self.values: dict[str, Known] = {}
        self._multiples: dict[str, tuple[int, Extent]] = {}  # by symbol: a number, and the size that is so many of it
        self._names: set[str] = set()

    def described(self) -> Mapping[str, object]:
        """Ranges and values by symbol: what a program that is compiled over these sizes depends on."""
        values = {symbol: str(value) for symbol, value in self.values.items()}
        return {"ranges": dict(self._ranges), "values": values}

    def shape(
        self, name: str, shape: Sequence[Value], wanted: Sequence[object], dims: Mapping[int, str]
    ) -> tuple[Known, ...]:
        """The shape of an input, whose symbols get their values: `wanted` has numbers, names, or what `shape` has."""
        pairs = [*enumerate(zip(shape, wanted, strict=True))]
        for axis, (dim, choice) in pairs:
            if isinstance(dim, int) and isinstance(choice, str):
                raise ModelError(
                    f"shape= calls axis {axis} of {name!r} {choice!r}, but the program fixes it to {dim}",
                    hint="export it with dynamic_shapes=, or write the number",
                )
            expr = None if isinstance(dim, int) else dim.node.expr
            label = choice if isinstance(choice, str) else dims.get(axis, f"{name}_{axis}")
            if expr is not None and expr.is_Symbol:
                number = choice if type(choice) is int else None
                self.values.setdefault(str(expr), self._size(str(expr), label, 1) if number is None else number)
        return tuple(
            choice if type(choice) is int else self._derived(dim, f"{name}_{axis}") for axis, (dim, choice) in pairs
        )

    def name_by(self, shape: Sequence[Dim], symbols: Sequence[Value]) -> None:
        """Give symbols that no input has, as the data say them, the sizes that a result has where they stand."""
        for dim, symbol in zip(shape, symbols, strict=True):
            expr = None if isinstance(symbol, int) else symbol.node.expr
            if expr is not None and expr.is_Symbol and isinstance(dim, int | Extent):
                self.values.setdefault(str(expr), dim)

    def _size(self, symbol: str, label: str, step: int) -> Extent:
        """A size for a symbol; of a multiple of it, where no input has the symbol itself."""
        name = identifier(label)
        while name in self._names:
            name += "_"
        self._names.add(name)
        low, high = self._ranges.get(symbol, (0, LARGEST))
        low = 1 if low == 2 else low
        typical = min(max(self._examples.get(symbol, 1), low), high)
        return size(name, low * step, min(high * step, LARGEST), step, typical * step)

    def _derived(self, dim: Value, label: str) -> Known:
        """The extent of a size of an input, which may be a multiple of a symbol that no input has itself."""
        if isinstance(dim, int):
            return dim
        expr = dim.node.expr
        symbols = [s for s in map(str, expr.free_symbols) if s not in self.values]
        if len(symbols) == 1 and type(expr).__name__ == "Mul" and len(expr.args) == 2 and expr.args[0].is_Integer:
            step = int(expr.args[0])
            self._multiples[symbols[0]] = step, self._size(symbols[0], label, step)
            self.values[symbols[0]] = self._multiples[symbols[0]][1] // step
        return self.extent(dim)

    def extent(self, dim: Value) -> Known:
        """A number, or a symbolic one as an extent."""
        return dim if isinstance(dim, int) else self._read(dim.node.expr)

    def _read(self, expr: Value) -> Known:
        kind = type(expr).__name__
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            if str(expr) not in self.values:
                raise UnsupportedError(
                    f"the size {expr} is that of no input of the program",
                    hint="it depends on values, or on a number that is passed in: export with that number fixed",
                )
            return self.values[str(expr)]
        if kind == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            base = self._read(expr.args[0])
            return math.prod([base] * int(expr.args[1]))
        function = _FUNCTIONS.get(kind)
        if function is None:
            raise UnsupportedError(f"the size {expr}: {kind} has no form over open sizes", hint="fix it by shape=")
        parts = self._factors(expr) if kind == "Mul" else [self._read(part) for part in expr.args]
        result = parts[0]
        for part in parts[1:]:
            result = function(result, part)
        return result

    def _factors(self, expr: Value) -> list[Known]:
        """The factors of a product; so many of a symbol are the size that is so many of it."""
        count, rest = (int(expr.args[0]), expr.args[1:]) if expr.args[0].is_Integer else (1, expr.args)
        parts: list[Known] = []
        for part in rest:
            step, whole = self._multiples.get(str(part), (0, None))
            fits = whole is not None and count % step == 0
            count = count // step if fits else count
            parts.append(whole if fits and whole is not None else self._read(part))
        return [count, *parts]


def numeric_ranges(ranges: Mapping[object, Value]) -> dict[str, tuple[int, int]]:
    """PyTorch's ranges of values by the symbol's name, within what sizes can be."""

    def bound(value: Value, without: int) -> int:
        return min(max(int(value), 0), LARGEST) if getattr(value, "is_Integer", False) else without

    return {str(s): (bound(r.lower, 0), bound(r.upper, LARGEST)) for s, r in ranges.items()}


def has_open(value: object) -> bool:
    """Whether a value, or a list of them, is an extent over open sizes."""
    return any(map(has_open, value)) if isinstance(value, list | tuple) else isinstance(value, Extent)
