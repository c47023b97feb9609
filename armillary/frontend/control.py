"""Branches and loops that stay in the program, as frontends with sub-graphs write them.

In: expressions of a condition and of what the branches give; first states and a function that imports a body once, with
variables in their place. Out: the values of Relay's If and Loop. Invariant: branches give the same types, and states
retain theirs; anything else is refused, naming both. ONNX's, which also collect rows: frontend/onnx/loops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from armillary.errors import Span, UnsupportedError
from armillary.frontend.values import reshape_to, shape_of, type_of
from armillary.relay.expr import Constant, Expr, Function, If, Loop, Tuple, TupleGetItem, Var
from armillary.relay.types import scalar_type

Step = Callable[[Var, list[Var]], tuple[Expr, Sequence[Expr]]]  # number, states -> whether to go on, next states


def without_axes(condition: Expr) -> Expr:
    """A condition of one element, without dimensions."""
    return reshape_to(condition, ()) if shape_of(condition) else condition


def branch(condition: Expr, yes: Sequence[Expr], no: Sequence[Expr], span: Span, name: str) -> list[Expr]:
    """The values of the branch that runs; `name` is what errors call the operator."""
    types = [[type_of(value) for value in row] for row in (yes, no)]
    if types[0] != types[1]:
        raise UnsupportedError(f"{name}: the branches give {types[0]} and {types[1]}", span=span)
    choice = If(without_axes(condition), Tuple(tuple(yes)), Tuple(tuple(no)), span)
    return [TupleGetItem(choice, k) for k in range(len(yes))]


def repeat(
    first: Sequence[Expr],
    step: Step,
    going: Expr,
    span: Span,
    name: str,
    limit: Expr | None = None,
    fixed: Sequence[tuple[Var, Expr]] = (),
) -> list[Expr]:
    """The last states of a loop that runs while `going`, at most `limit` times (int64; None: for ever).

    `fixed` pairs variables of the body with values from outside. Raises UnsupportedError where a state changes its
    type.
    """
    number, flag = Var("number", scalar_type("int64")), Var("going", scalar_type("bool"))
    states = [Var(f"state{k}", type_of(value)) for k, value in enumerate(first)]
    again, results = step(number, states)
    for before, after in zip(states, results, strict=True):
        if type_of(before) != type_of(after):
            message = f"{name}: a carried value changes from {type_of(before)} to {type_of(after)}"
            raise UnsupportedError(message, span=span)
    loop = Loop(
        Function((number, flag, *states, *(v for v, _ in fixed)), Tuple((without_axes(again), *results))),
        Constant(np.array(np.iinfo(np.int64).max)) if limit is None else limit,
        without_axes(going),
        (*first, *(value for _, value in fixed)),
        len(states),
        -1,
        span,
    )
    return [TupleGetItem(loop, k) for k in range(len(states))]
