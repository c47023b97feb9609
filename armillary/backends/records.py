"""Tuning records as choices of calls: what every family of targets does alike.

In: a module, the dispatch contexts in force (base/dispatch.py), the option `schedule.choice` (backends/overrides.py),
which comes first, and what a family says of its calls: workload, and the choice that a configuration states. Out: the
calls for which there is one carry it as their attribute `choice`. Open axes are numbered in a workload, each with its
typical value ("n0=128"), so that records of one network serve another with other names. Invariant: nothing changes
outside of a dispatch context and without the option; a choice is printed with the call, so caches tell kernels apart by
it. The passes: backends/cpu/graph/apply_records.py, backends/opencl/graph/apply_records.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from armillary.backends.overrides import asked_choice, asked_choices
from armillary.base.dispatch import DispatchContext, Workload
from armillary.base.extent import Extent, Known, size, typical
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, known_of
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, rewrite
from armillary.target import Target
from armillary.target.choice import Choice

logger = logging.getLogger("autotvm")
WorkloadRule = Callable[[Expr], Workload | None]
FunctionRule = Callable[[Function], WorkloadRule]  # what records of a function's calls are found by
ChoiceRule = Callable[[Any, Workload], Choice]  # Any: a ConfigEntity; its package lies above
RefuseRule = Callable[[Expr, Choice], None]
FitsRule = Callable[[Call, Choice], bool]
_WHERE_SET = ("is_symmetric",)  # came after logs were kept: at the end, and only where it is true
_NO_KEY = ("choice", "kernel_size", "channels", "units")  # what the types tell


def with_records(
    module: IRModule,
    where: Target,
    rule_of: FunctionRule,
    choice_of: ChoiceRule,
    fits: FitsRule,
    refuse: RefuseRule | None = None,
) -> IRModule:
    """Attach what a script asks for, else the stored choices of the current dispatch context. `refuse` raises where a
    call cannot have what is asked; `fits`: whether a call can have what a record of its workload says, which knows
    types and no values (weights that are whole numbers are not transformed)."""
    if not DispatchContext.current.has_records() and not asked_choices():
        return module

    def rule(workload_of: WorkloadRule, expr: Expr) -> Expr | None:
        asked, workload = asked_choice(expr), workload_of(expr)
        if asked and refuse is not None:
            refuse(expr, asked)
        if asked and isinstance(expr, Call) and getattr(expr.attrs, "choice", None) == "":
            return Call(expr.op, expr.args, replace(expr.attrs, choice=str(asked)), expr.span)
        config = None if workload is None else DispatchContext.current.query(where, workload)
        if workload is None or config is None or not isinstance(expr, Call):
            return None
        choice = choice_of(config, workload)
        if not fits(expr, choice):
            logger.warning("the record of %s does not fit a call of it: %s", workload[0], choice.algorithm)
            return None
        return Call(expr.op, expr.args, replace(expr.attrs, choice=str(choice)), expr.span)

    def change(function: Function) -> Expr:
        return rewrite(function, partial(rule, rule_of(function)), enter=not_primitive)

    return on_functions(module, change)


def keyed_attributes(op: Op) -> list[str]:
    """The attributes that are part of every workload, in order."""
    return [f.name for f in fields(op.attrs_class) if f.name not in (*_NO_KEY, *_WHERE_SET)]  # type: ignore[arg-type]


def keyed_values(op: Op, values: Sequence[object]) -> dict[str, object]:
    """Attributes by name from what stands behind the operands in a workload."""
    names = keyed_attributes(op)
    more = [f.name for f in fields(op.attrs_class) if f.name in _WHERE_SET]  # type: ignore[arg-type]
    known = dict(zip(names, values[: len(names)], strict=True))
    return known | {name: True for name, value in zip(more, values[len(names) :], strict=False) if value is True}


def call_key(call: Call, op: Op) -> Workload | None:
    """The types of a call's operands, and its attributes; None where an extent is not known, or it has a choice."""
    types, attrs = list(map(known_of, call.args)), call.attrs
    if getattr(attrs, "choice", "") or None in types:
        return None
    names = {extent: f"n{n}={typical(extent)}" for n, extent in enumerate(open_extents(call))}
    operands = tuple(
        ("TENSOR", tuple(names[n] if isinstance(n, Extent) else n for n in t.shape), str(t.dtype))
        for t in types
        if t is not None
    )
    more = [True for name in _WHERE_SET if getattr(attrs, name, False)]
    return (*operands, *(getattr(attrs, name) for name in keyed_attributes(op)), *more)


def open_extents(call: Call) -> list[Extent]:
    """The different extents of a call's operands that are no numbers, in the order in which a workload numbers them."""
    types = map(known_of, call.args)
    return list(dict.fromkeys(n for t in types if t is not None for n in t.shape if isinstance(n, Extent)))


def keyed_extent(dim: int | str) -> Known:
    """The extent that stands in a workload as a number, or as the name of a size and its typical value."""
    if isinstance(dim, int):
        return dim
    name, _, value = dim.partition("=")
    return size(name, hint=int(value))
