"""Numbers for dimensions that a model leaves open, where nobody has given any: what most people mean by their names.

In: the inputs of a model and the shapes that were given. Out: shapes for one or more variants, and for each assumption
a sentence. Invariant: a dimension called alike has one number in the whole model; a dimension whose meaning is not
plain from its name or place keeps none, and the import refuses it by name. Who gives numbers: `shape=`, `variants=`
(`variants.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ValueInfoProto

Shape = tuple[int, ...]
Notice = Callable[[str], None]
_BATCH = re.compile(r"batch|^(n|b|bs|unk__\d+|none)$", re.IGNORECASE)
_LENGTH = re.compile(r"seq|len|token|time|frames|words", re.IGNORECASE)
_SIDE = re.compile(r"height|width|^(h|w)$|side|size|rows|cols", re.IGNORECASE)
_CACHE = re.compile(r"past|cache|total|memory", re.IGNORECASE)  # no number is right for these but the caller's
LENGTHS, SIDES = (128, 32), (224, 224)  # of the first variant and of the second


def assumed_shapes(
    inputs: Sequence[ValueInfoProto], stated: Mapping[str, object], notice: Notice
) -> list[dict[str, object]]:
    """`shape=` for each variant: `stated`, and shapes of the inputs that it leaves open."""
    numbers: dict[str, tuple[int, int]] = {}
    shapes: dict[str, list[tuple[int, int]]] = {}
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        if value.name in stated or not value.type.tensor_type.HasField("shape") or all(d.dim_value for d in dims):
            continue
        bounds_known: list[tuple[int, int] | None] = []
        for axis, dim in enumerate(dims):
            number = (dim.dim_value,) * 2 if dim.HasField("dim_value") else _assumed(dim.dim_param, axis, len(dims))
            bounds_known.append(number)
            if number is not None and not dim.HasField("dim_value"):
                numbers.setdefault(dim.dim_param or f"dimension {axis} of {value.name}", number)
        known = [number for number in bounds_known if number is not None]
        if len(known) == len(bounds_known):
            shapes[value.name] = known
    if not shapes:
        return [dict(stated)]
    many = any(first != second for first, second in numbers.values())
    for name, pair in numbers.items():
        message = f"{pair[0]} or {pair[1]}" if pair[0] != pair[1] else f"{pair[0]}"
        notice(f"{name} is taken to be {message}: --input-shapes or --variants choose other numbers")
    return [
        {**stated, **{name: tuple(pair[at] for pair in pairs) for name, pairs in shapes.items()}}
        for at in range(2 if many else 1)
    ]


def _assumed(name: str, axis: int, rank: int) -> tuple[int, int] | None:
    """The numbers of one open dimension in two variants; None where they cannot be told."""
    if _CACHE.search(name):
        return None
    if _BATCH.search(name) or (axis == 0 and rank > 1 and not _LENGTH.search(name)):
        return 1, 1
    if _SIDE.search(name) or (not name and rank == 4 and axis > 1):
        return SIDES
    return LENGTHS if _LENGTH.search(name) or (rank == 2 and axis == 1) else None
