"""Sizes of different names that operators take to be equal: one size, so that a run compares what inputs give for it.

In: a module whose parameters have named sizes. Out: the module with one name for sizes of parameters that meet in an
operator that broadcasts; a size that meets a number is that number. Invariant: what it computes for inputs that fit is
unchanged. Sizes that the data says, and expressions that meet, stay as they are.
"""

from __future__ import annotations

import math

from armillary.base.extent import Extent, Known, Size, as_size, noted_meetings, size, sizes_of
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import bind_sizes
from armillary.relay.expr import Function
from armillary.relay.infer import infer_type
from armillary.relay.types import tensor_fields


def with_meeting_sizes(module: IRModule) -> IRModule:
    """The module with one name for all sizes of main's parameters that must be equal.

    Raises TypeMismatch where the bounds of sizes that meet have no number in common.
    """
    main = module["main"]
    united = _united(main, module) if isinstance(main, Function) else main
    if united is main:
        return module
    result = module.copy()
    result["main"] = united
    return result


def _united(main: Function, module: IRModule) -> Function:
    declared = (p.type_annotation for p in main.params if p.type_annotation is not None)
    given = sizes_of(d for ty in declared for field in tensor_fields(ty) for d in field.shape)
    if not given:
        return main
    anew = bind_sizes(main, {name: Extent({(s,): 1}) for name, s in given.items()})  # to be typed once more
    with noted_meetings() as meetings:
        infer_type(anew, module)
    equal: dict[str, Known] = {name: Extent({(s,): 1}) for name, s in given.items()}
    for a, b in meetings:
        _unite(equal, a, b)
    if all(as_size(known) == given[name] for name, known in equal.items()):
        return main
    kept = {s.name: _narrowed(s, equal, given) for s in map(as_size, equal.values()) if s is not None}
    between = {name: size(f"{name}~") for name in kept}  # types of one size are equal whatever its bounds are
    named = {name: between[s.name] if (s := as_size(known)) is not None else known for name, known in equal.items()}
    return bind_sizes(bind_sizes(main, named), {f"{name}~": extent for name, extent in kept.items()})


def _unite(equal: dict[str, Known], a: Known, b: Known) -> None:
    """Note that two axes are equal, where each is a size of a parameter or a number."""
    sides = [_root(equal, side) for side in (a, b)]
    if any(side is None for side in sides) or sides[0] == sides[1]:
        return
    into, away = sides if isinstance(sides[0], int) or not isinstance(sides[1], int) else sides[::-1]
    gone = as_size(away) if isinstance(away, Extent) else None
    if gone is None or into is None:
        return  # two numbers: operators refuse them
    for name, known in equal.items():
        if as_size(known) == gone:
            equal[name] = into


def _root(equal: dict[str, Known], side: Known) -> Known | None:
    if isinstance(side, int):
        return side
    named = as_size(side)
    return equal.get(named.name) if named is not None else None


def _narrowed(kept: Size, equal: dict[str, Known], given: dict[str, Size]) -> Extent:
    """The size that stands for those that are equal to it, within the bounds of all."""
    same = [given[name] for name, other in equal.items() if as_size(other) == kept]
    low, high = max(s.low for s in same), min(s.high for s in same)
    return size(kept.name, low, high, math.lcm(*(s.step for s in same)), kept.hint, kept.origin)
