"""Extents that operators take to be equal, compared before anything reads what has them.

In: a module with named sizes. Out: the module with a call of `equal_sizes` for every two extents that meet and are not
one by their form (relay/analysis/meeting_sizes.py has united what it can). Those that inputs decide run first, those
that the data says right behind their `bind_size`; what meets in a branch, the body of a loop or a function alone is
compared there. Invariant: what is computed for inputs that fit is unchanged; a module of fixed shapes stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from armillary.base.extent import Known, Meeting, as_size, sizes_of
from armillary.base.node import replace
from armillary.errors import Span
from armillary.ir import IRModule
from armillary.ops.shape.bind_size import EqualSizesAttrs, equal_sizes, run_after
from armillary.relay.analysis.bind_sizes import sizes_in
from armillary.relay.analysis.meeting_sizes import always_computed, meetings_of, parameter_sizes
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.types import tensor_fields
from armillary.relay.walk import children, map_children, post_order

Comparisons: TypeAlias = "dict[object, tuple[Expr, list[str]]]"  # by the pair of extents, with what binds their sizes


def with_compared_sizes(module: IRModule) -> IRModule:
    """The module in which extents that meet are compared."""
    result = module
    for name, function in module.items():
        if not isinstance(function, Function) or not sizes_in(function):
            continue
        anew, meetings = meetings_of(function, module)
        if meetings:
            result = module.copy() if result is module else result
            result[name] = _Comparisons(anew, is_main=name == "main").inserted(meetings)
    return result


class _Comparisons:
    """Where the comparisons of a function stand, and the function that has them."""

    def __init__(self, function: Function, is_main: bool) -> None:
        self.function = function
        self.order = post_order(function.body)
        self.binds = {_bound_name(e): e for e in self.order if isinstance(e, Call) and has(e, Fact.BINDS)}
        self.places = {id(e): k for k, e in enumerate(self.order)}
        self.always = {id(e) for e in always_computed(function.body)} if is_main else set()
        self.given = parameter_sizes(function)
        self.axes: dict[str, str] = {}  # of sizes, the first input and axis that give each
        for param in function.params:
            for field in tensor_fields(param.checked_type):
                for axis, dim in enumerate(field.shape):
                    named = as_size(dim)
                    if named is not None:
                        self.axes.setdefault(named.name, f"{named.name}: axis {axis} of {param.name_hint}")

    def inserted(self, meetings: Sequence[Meeting]) -> Function:
        """The function with a comparison of each two extents that meet."""
        first: dict[object, Expr] = {}
        behind: dict[int, Comparisons] = {}  # by the id of what they stand before or behind
        for meeting in meetings:
            names = sizes_of([meeting.a, meeting.b])
            where = meeting.where
            if not isinstance(where, Expr) or not names.keys() <= self.given.keys() | self.binds.keys():
                continue
            call, key = self._comparison(meeting, where), frozenset((str(meeting.a), str(meeting.b)))
            binds = sorted((n for n in names if n in self.binds), key=lambda n: self.places[id(self.binds[n])])
            is_early = id(where) in self.always and all(id(self.binds[n]) in self.always for n in binds)
            if is_early and not binds:
                first.setdefault(key, call)
            else:
                place = self.binds[binds[-1]] if is_early else where
                behind.setdefault(id(place), {}).setdefault(key, (call, binds))
        return self._rebuilt(list(first.values()), behind)

    def _rebuilt(
        self, first: Sequence[Expr], behind: Mapping[int, Mapping[object, tuple[Expr, list[str]]]]
    ) -> Function:
        memo: dict[int, Expr] = {}

        def get(expr: Expr) -> Expr:
            return memo.get(id(expr), expr)

        for expr in self.order if behind else ():
            new = own = map_children(expr, get)
            for call, binds in behind.get(id(expr), {}).values():
                for name in binds:
                    bind = self.binds[name]
                    call = run_after(own if bind is expr else get(bind), call)
                new = run_after(call, new)
            memo[id(expr)] = new
        body = get(self.function.body)
        for call in first:
            if isinstance(body, Tuple) and body.fields:
                body = Tuple((run_after(call, body.fields[0]), *body.fields[1:]))
            else:
                body = run_after(call, body)
        return self.function if body is self.function.body else replace(self.function, body=body)

    def _comparison(self, meeting: Meeting, where: Expr) -> Expr:
        owners = [self._owner(side, where, k) for k, side in enumerate((meeting.a, meeting.b))]
        return Call(equal_sizes, (), EqualSizesAttrs(meeting.a, meeting.b, *owners), Span(name=_name(where)))

    def _owner(self, side: Known, where: Expr, which: int) -> str:
        """Whose axis an extent is, and which inputs give the sizes in it."""
        places = [
            f"axis {field.shape.index(side)} of {_name(arg)}"
            for arg in _arguments(where)
            for field in tensor_fields(arg.checked_type)
            if side in field.shape
        ]
        text = places[min(which, len(places) - 1)] if places else f"what {_name(where)} {('reads', 'wants')[which]}"
        origins = [self.axes[name] for name in sizes_of([side]) if name in self.axes and as_size(side) is None]
        return f"{text} ({', '.join(origins)})" if origins else text


def _bound_name(call: Call) -> str:
    named = as_size(call.attrs.size)
    return named.name if named is not None else ""


def _arguments(where: Expr) -> list[Expr]:
    """What a call reads, the parts of tuples one by one."""
    return [part for arg in children(where) for part in (arg.fields if isinstance(arg, Tuple) else (arg,))]


def _name(expr: Expr) -> str:
    if isinstance(expr, Var):
        return expr.name_hint
    if isinstance(expr, Constant):
        return "a constant"
    span = getattr(expr, "span", None)
    own = getattr(getattr(expr, "op", None), "name", type(expr).__name__.lower())
    return span.name if span is not None and span.name else own
