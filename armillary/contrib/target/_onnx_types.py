"""What the rules of the ONNX exporter ask of an expression: shape, dtype, the order of a layout.

In: typed expressions. Out: numbers and names. Invariant: an open dimension where ONNX wants a number is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.extent import Extent
from armillary.contrib.target._onnx_graph import Graph
from armillary.errors import UnsupportedError
from armillary.relay.expr import Call, Expr
from armillary.relay.types import TensorType

Inputs = list[list[str]]  # names of the values of each argument
Rule = Callable[[Graph, Call, Inputs], str | list[str]]


def _tensor(expr: Expr) -> TensorType:
    ty = expr.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"to_onnx: wanted a tensor, got {ty}")
    return ty


def dtype_of(expr: Expr) -> str:
    """The dtype of a tensor."""
    return str(_tensor(expr).dtype)


def ndim_of(expr: Expr) -> int:
    """The rank of a tensor."""
    return len(_tensor(expr).shape)


def is_static(expr: Expr) -> bool:
    """Whether all dimensions of a tensor are numbers."""
    return all(isinstance(size, int) for size in _tensor(expr).shape)


def shape_of(expr: Expr) -> tuple[int, ...]:
    """The shape of a tensor. Raises UnsupportedError for an open dimension."""
    sizes = []
    for size in _tensor(expr).shape:
        if not isinstance(size, int):
            raise UnsupportedError(f"to_onnx: the shape {_tensor(expr).shape} is open here", hint="give it a number")
        sizes.append(size)
    return tuple(sizes)


def fixed(number: object, what: str) -> int:
    """A number in an attribute of an operator. Raises UnsupportedError for an expression over named sizes."""
    if isinstance(number, Extent):
        raise UnsupportedError(f"to_onnx: {what} {number}, which is open here", hint="give its sizes numbers")
    return int(number)  # type: ignore[call-overload, no-any-return]  # whatever counts


def permutation(source: str, goal: str) -> list[int]:
    """The axes of one layout in the order of another. Raises UnsupportedError for blocks of channels."""
    if sorted(source) != sorted(goal) or not source.isupper():
        raise UnsupportedError(f"to_onnx: the layout {source} as {goal}", hint="ONNX has layouts without blocks")
    return [source.index(letter) for letter in goal]
