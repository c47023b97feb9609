"""Sizes of different names that operators take to be equal: one size, so that a run compares what inputs give for it.

In: a module whose parameters have named sizes. Out: the module with one name for sizes of parameters that meet in an
operator that broadcasts; a size that meets a number is that number. Invariant: what it computes for inputs that fit is
unchanged. Sizes that the data says, expressions that meet, and what meets in a branch or loop alone stay as they are.
"""

from __future__ import annotations

import math

from armillary.base.extent import Extent, Known, Size, as_size, noted_meetings, size, sizes_of
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import bind_sizes
from armillary.relay.expr import Expr, Function, If, Loop
from armillary.relay.infer import infer_type
from armillary.relay.types import tensor_fields
from armillary.relay.walk import children


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
    given = {f"{name}~": s for name, s in given.items()}  # other names: a type that equals the old one would stay
    anew = bind_sizes(main, {s.name: size(name, s.low, s.high, s.step, s.hint) for name, s in given.items()})
    meetings: list[tuple[Known, Known]] = []
    for expr in _always_computed(anew.body):
        with noted_meetings() as noted:
            infer_type(expr, module)  # what it reads has its types
        meetings += noted if not isinstance(expr, If | Loop) else []
    equal: dict[str, Known] = {name: size(name) for name in given}
    for a, b in meetings:
        _unite(equal, a, b)
    if all(known == size(name) for name, known in equal.items()):
        return main
    return bind_sizes(anew, {name: _narrowed(known, equal, given) for name, known in equal.items()})


def _always_computed(body: Expr) -> list[Expr]:
    """What every run computes, producers first: neither of the branches of an If, nor the bodies of loops."""
    order: list[Expr] = []
    done: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(body, False)]
    while stack:
        expr, is_ready = stack.pop()
        if is_ready:
            order.append(expr)
        elif id(expr) not in done:
            done.add(id(expr))
            inside = children(expr)
            if isinstance(expr, If):
                inside = (expr.cond,)
            elif isinstance(expr, Loop):
                inside = (expr.limit, expr.going, *expr.args)
            elif isinstance(expr, Function):
                inside = ()
            stack.append((expr, True))
            stack += [(child, False) for child in reversed(inside)]
    return order


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


def _narrowed(known: Known, equal: dict[str, Known], given: dict[str, Size]) -> Known:
    """What stands for sizes that are equal: a number, or the first of them within the bounds of all."""
    kept = as_size(known)
    if kept is None:
        return known
    same = [given[name] for name, other in equal.items() if other == known]
    low, high = max(s.low for s in same), min(s.high for s in same)
    first = given[kept.name]
    return size(first.name, low, high, math.lcm(*(s.step for s in same)), first.hint, first.origin)
