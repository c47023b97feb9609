"""What sizes that nobody states most often are: by their names, or by their places in the inputs.

In: a module with open sizes. Out: the module with hints for those of main that have neither a hint nor bounds.
Invariant: only what cost models and layouts are chosen for changes; every size still runs.
"""

from __future__ import annotations

import re

from armillary.base.extent import LARGEST, Extent, Known, size, sizes_of
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import with_sizes
from armillary.relay.expr import Function
from armillary.relay.types import tensor_fields

_BATCH = re.compile(r"batch|^(n|b|bs|unk__\d+|none)$", re.IGNORECASE)
_LENGTH = re.compile(r"seq|len|token|time|frames|words|past|cache|total|memory", re.IGNORECASE)
_SIDE = re.compile(r"height|width|^(h|w)$|side|size|rows|cols", re.IGNORECASE)
USUAL_SIDE = 224
_TYPICAL = ((_BATCH, 1), (_LENGTH, 128), (_SIDE, USUAL_SIDE))  # what most people mean by such names


def usual_size(name: str, axis: int, rank: int) -> int:
    """A typical value by the name of a dimension, or by its place: batches, images, sequences."""
    named = next((value for pattern, value in _TYPICAL if name and pattern.search(name)), None)
    return named if named is not None else 1 if axis == 0 and rank > 1 else USUAL_SIDE if rank == 4 else 128


def with_usual_sizes(module: IRModule) -> IRModule:
    """The module with a hint for each size of main's inputs that has neither a hint nor bounds."""
    main = module["main"]
    values = _hints(main) if isinstance(main, Function) else {}
    if not values or not isinstance(main, Function):
        return module
    result = module.copy()
    result["main"] = with_sizes(main, values)
    return result


def _hints(function: Function) -> dict[str, Known]:
    """The sizes of a function's inputs that nothing is stated of, with hints, by name."""
    places = [
        (item, usual_size(item.name, axis, ty.ndim))
        for param in function.params
        for ty in tensor_fields(param.checked_type)
        for axis, dim in enumerate(ty.shape)
        if isinstance(dim, Extent)
        for item in sizes_of([dim]).values()
    ]
    values: dict[str, Known] = {}
    for item, usual in reversed(places):  # the first place counts
        is_one = all(other == item for other, _ in places if other.name == item.name)
        if is_one and not item.hint and item.high == LARGEST:  # two variables of a script may have one name
            steps = -(-max(item.low, usual) // item.step)
            values[item.name] = size(item.name, item.low, item.high, item.step, steps * item.step, item.origin)
    return values
