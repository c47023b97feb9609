"""Names for the dimensions that a model leaves open, with the bounds and hints that a user states.

In: the model's inputs, `bounds=` and `hint=`. Out: an extent for each open dimension. Invariant: dimensions called
alike are one size; an expression over names that are dimensions of their own (`past + 1`, as exporters write) is an
expression over these sizes; a dimension without a name gets one of its input and axis.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.base.extent import LARGEST, Known, size
from armillary.base.names import identifier
from armillary.errors import Span, TypeMismatch
from armillary.relay.analysis.usual_sizes import USUAL_SIDE, usual_size

if TYPE_CHECKING:
    from onnx import ValueInfoProto

_MOST = 200  # characters of an expression


class OpenSizes:
    """The sizes of one model, by name."""

    def __init__(
        self,
        source: str,
        inputs: Sequence[ValueInfoProto],
        bounds: Mapping[str, object],
        hint: Mapping[str, object],
    ) -> None:
        self._source, self._bounds, self._hint = source, bounds, hint
        dims = [(v.name, n, d) for v in inputs for n, d in enumerate(v.type.tensor_type.shape.dim)]
        ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in inputs}
        is_open = [(name, n, d.dim_param) for name, n, d in dims if not d.HasField("dim_value")]
        self._usual = {
            self._name(name, n, d.dim_param): usual_size(d.dim_param, n, ranks[name]) for name, n, d in reversed(dims)
        }
        self._own = {p for _, _, p in is_open if p and p == identifier(p)}
        known = {self._name(*row) for row in is_open}
        for what, values in (("bounds", bounds), ("hint", hint)):
            unknown = sorted(set(map(str, values)) - known - self._own)
            if unknown:
                raise TypeMismatch(
                    f"{what}= names {unknown[0]!r}, which is no open dimension of the model",
                    span=Span(source),
                    hint=f"open are: {', '.join(sorted(known)) or 'none'}",
                )

    def extent(self, name: str, axis: int, param: str, values: Mapping[str, int]) -> Known:
        """The extent of an open dimension of an input; `values`: numbers for names, which shapes have given."""
        if param and param not in self._own:
            derived = self._derived(param, values)
            if derived is not None:
                return derived
        return self._size(self._name(name, axis, param))

    def _name(self, name: str, axis: int, param: str) -> str:
        return identifier(param) if param else identifier(f"{name}_{axis}")

    def _size(self, name: str) -> Known:
        usual = self._usual.get(name, 0)
        low, high = int(usual == USUAL_SIDE), LARGEST  # a picture has rows: exporters' (h - 1) / 2 is a floor
        if name in self._bounds:
            pair = self._bounds[name]
            if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(type(n) is int for n in pair):
                raise TypeMismatch(f"bounds={{{name!r}: {pair!r}}}: wanted the least and the largest, (1, 64)")
            low, high = pair
            if low == high:
                return int(low)
        typical = self._hint.get(name, min(max(usual, low), high))
        if not isinstance(typical, int) or typical < 0:
            raise TypeMismatch(f"hint={{{name!r}: {typical!r}}}: wanted a whole number")
        return size(name, low, high, 1, typical)

    def _derived(self, param: str, values: Mapping[str, int]) -> Known | None:
        """`past + 1` over sizes that are dimensions of their own; None for a name that only looks like it."""
        try:
            tree = ast.parse(param, mode="eval").body if len(param) <= _MOST else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return None if tree is None else self._read(tree, values)

    def _read(self, tree: ast.expr, values: Mapping[str, int]) -> Known | None:
        match tree:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name) if name in values:
                return values[name]
            case ast.Name(id=name) if name in self._own:
                return self._size(name)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._read(left, values), self._read(right, values)
                if a is None or b is None:
                    return None
                match op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.FloorDiv() if b != 0:
                        return a // b
        return None
