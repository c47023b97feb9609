"""Sizes of different names that operators take to be equal: one size, so that a run compares what inputs give for it.

In: a module whose parameters have named sizes. Out: the module with one name for sizes of main's parameters that meet
in an operator; a size that meets a number is that number. Invariant: what is computed for inputs that fit is unchanged.
What is left (expressions, sizes that the data says, what meets in a branch or loop alone) is compared in a run:
ops/shape/compared_sizes.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from armillary.base.extent import Extent, Known, Meeting, Size, as_size, noted_meetings, size, sizes_of
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import sizes_in, with_sizes
from armillary.relay.expr import Expr, Function, If, Loop
from armillary.relay.infer import infer_type
from armillary.relay.types import tensor_fields
from armillary.relay.walk import children


def with_meeting_sizes(module: IRModule) -> IRModule:
    """The module with one name for all sizes of main's parameters that must be equal.

    Raises TypeMismatch where the bounds of sizes that meet have no number in common.
    """
    main = module["main"]
    sizes = parameter_sizes(main) if isinstance(main, Function) else {}
    if not sizes:
        return module
    anew, meetings = meetings_of(main, module)
    always = {id(e) for e in always_computed(anew.body)}
    equal = _united([m for m in meetings if id(m.where) in always], sizes)
    if all(known == size(name) for name, known in equal.items()):
        return module
    result = module.copy()
    result["main"] = with_sizes(anew, {name: _narrowed(known, equal, sizes) for name, known in equal.items()})
    return result


def meetings_of(function: Function, module: IRModule) -> tuple[Function, list[Meeting]]:
    """The function, typed anew, and the extents that its operators take to be equal, with the calls that do."""
    anew = with_sizes(function, {name: Extent({(s,): 1}) for name, s in sizes_in(function).items()})
    with noted_meetings() as noted:
        infer_type(anew, module)
    return anew, noted


def parameter_sizes(function: Function) -> dict[str, Size]:
    """The sizes in the types of a function's parameters, by name."""
    declared = (p.type_annotation for p in function.params if p.type_annotation is not None)
    return sizes_of(d for ty in declared for field in tensor_fields(ty) for d in field.shape)


def always_computed(body: Expr) -> list[Expr]:
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


# --- one size for two ---------------------------------------------------------------------------------------------


def _united(meetings: Iterable[Meeting], sizes: Mapping[str, Size]) -> dict[str, Known]:
    """What stands for each size of a parameter, before bounds are narrowed: itself, another one, or a number."""
    equal: dict[str, Known] = {name: size(name) for name in sizes}
    for meeting in meetings:
        a, b = _alone(meeting.a, meeting.b)
        _unite(equal, a, b)
    return equal


def _alone(a: Known, b: Known) -> tuple[Known, Known]:
    """The same equation with what both sides share left out: of 4*a = 4*b, a = b; of 2*a + 1 = 9, a = 4."""
    rest = a - b
    terms, constant = (rest.terms, rest.constant) if isinstance(rest, Extent) else ((), rest)
    counts = [count for _, count in terms]
    if len(terms) == 2 and not constant and counts[0] == -counts[1]:
        left, right = terms if counts[0] > 0 else terms[::-1]
        return Extent({left[0]: 1}), Extent({right[0]: 1})
    if len(terms) == 1 and constant % counts[0] == 0:
        return Extent({terms[0][0]: 1}), -constant // counts[0]
    return a, b


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


def _narrowed(known: Known, equal: dict[str, Known], sizes: Mapping[str, Size]) -> Known:
    """What stands for sizes that are equal: a number, or the first of them within the bounds of all."""
    retained = as_size(known)
    if retained is None:
        return known
    same = [sizes[name] for name, other in equal.items() if other == known]
    low, high = max(s.low for s in same), min(s.high for s in same)
    first = sizes[retained.name]
    return size(first.name, low, high, math.lcm(*(s.step for s in same)), first.hint, first.origin)
