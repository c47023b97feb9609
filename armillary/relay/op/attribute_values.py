"""Values of attributes as operators hold them: tuples, numbers of Python, one number for each axis.

In: the fields of an operator's attributes, what a call gave for some of them. Out: the values. Invariant: an `int` is a
whole number of 64 bits, a `float` one that float64 holds, and so are those in tuples; what is none is a
TypeMismatch that names the attribute. Texts, flags and None are left as they are, and so are values of other types:
the operator's rule looks at them. Who asks: Op.make_attrs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from armillary.errors import TypeMismatch

_OF_EACH_AXIS = frozenset({"strides", "dilation", "padding", "output_padding", "kernel_size", "pool_size"})
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
Fields = Mapping[str, dataclasses.Field[object]]


def attribute_values(op: str, fields: Fields, named: Mapping[str, object]) -> dict[str, object]:
    """The values by name; names are known."""
    return {name: _fitting(op, fields, name, spread(fields, name, freeze(v))) for name, v in named.items()}


def freeze(value: object) -> Any:  # Any: an attribute's value
    """Lists as tuples, numbers of numpy as those of Python."""
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def spread(fields: Fields, name: str, value: object) -> object:
    """One number for an attribute that is a tuple: of windows it holds for each axis."""
    kind = fields[name].type
    is_tuple = kind is tuple or kind in ("tuple[int, ...]", "tuple[int, ...] | None", "tuple[Known, ...]", "Limits")
    count = 1
    if "strides" in fields and name in _OF_EACH_AXIS and isinstance(fields["strides"].default, tuple):
        count = len(fields["strides"].default)
    if kind in ("int", "float", int, float) and isinstance(value, tuple) and len(value) == 1:
        return value[0]  # of an array that holds one number
    if is_tuple and isinstance(value, int) and not isinstance(value, bool):
        return (value,) * count
    return value * count if is_tuple and isinstance(value, tuple) and len(value) == 1 else value


def _fitting(op: str, fields: Fields, name: str, value: object) -> object:
    """The value, if it is of the field's kind."""
    kind = fields[name].type
    message = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    return _number(
        op, name, value, ("int" in message or "Known" in message or message == "Limits") and "float" not in message
    )


def _number(op: str, name: str, value: object, is_whole: bool) -> object:
    if isinstance(value, tuple):
        return tuple(_number(op, name, v, is_whole) for v in value)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise TypeMismatch(f"{op}: {name} holds {_short(value)}", hint="numbers of 64 bits")
    if is_whole and isinstance(value, float):
        if not value.is_integer():
            raise TypeMismatch(f"{op}: {name} holds {value}, wanted whole numbers")
        return _number(op, name, int(value), is_whole)
    return value


def _short(value: int) -> str:
    """An integer of any length, in few characters."""
    return f"{'-' if value < 0 else ''}2^{abs(value).bit_length() - 1} and more"
