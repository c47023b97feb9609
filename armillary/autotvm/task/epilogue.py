"""Epilogues: the elementwise calls that a network fuses to a contraction, so that a trial runs them too.

In: a typed function after layouts are chosen, a call of it. Out: a function of the call and of the chain of calls
behind it, whose other operands are constants, or parameters named around0, around1, …, over the sizes of the call's
own operands. Invariant: each link is the only
reader of the one before and keeps its shape, which is what fusion wants of a kernel's epilogue; the workload by which
records are found stays the call's own. Who runs it: `network.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from armillary.relay.analysis.bind_sizes import attr_sizes
from armillary.relay.expr import Call, Constant, Expr, Function, Var, known_of, var
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import names_places
from armillary.relay.types import TensorType
from armillary.relay.walk import children, not_primitive, post_order, rewrite, substitute

LONGEST = 8  # calls behind one contraction
Readers = Mapping[int, Sequence[Expr]]


def readers_of(function: Function) -> Readers:
    """By the id of each expression of a function, what reads it, each reader once."""
    readers: dict[int, dict[int, Expr]] = {}
    for expr in post_order(function, not_primitive):
        for child in children(expr):
            readers.setdefault(id(child), {})[id(expr)] = expr
    return {key: list(rows.values()) for key, rows in readers.items()}


def epilogue_of(call: Call, readers: Readers) -> list[Call]:
    """The elementwise calls behind a call, the nearest first."""
    chain: list[Call] = []
    last, wanted = call, known_of(call)
    while len(chain) < LONGEST:
        after = readers.get(id(last), ())
        link = after[0] if len(after) == 1 else None
        if not isinstance(link, Call) or not isinstance(link.op, Op) or link.op.kind > Kind.BROADCAST:
            break
        link_type = known_of(link)
        if names_places(link) or link_type is None or wanted is None or link_type.shape != wanted.shape:
            break
        if any(known_of(argument) is None for argument in link.args) or any(attr_sizes(link.attrs)):
            break
        chain.append(link)
        last = link
    return chain


def name_of(chain: Sequence[Call]) -> str:
    """Equal for chains of the same operators on operands of the same types."""
    return " ".join(f"{call.op}({', '.join(str(known_of(a)) for a in call.args)})" for call in chain)


def with_epilogue(call: Call, chain: Sequence[Call], operands: Sequence[Expr]) -> Function:
    """A function of a call on `operands` (variables, or constants) and of the chain behind it."""
    values = {id(old): new for old, new in zip(call.args, operands, strict=True)}
    start = Call(call.op, tuple(operands), call.attrs)
    infer_type(start)
    inside = {id(call), *map(id, chain)}
    params: list[Var] = [operand for operand in operands if isinstance(operand, Var)]
    for link in chain:
        for argument in link.args:
            if id(argument) in inside or id(argument) in values or isinstance(argument, Constant):
                continue
            other = var(f"around{len(params)}", _beside(start, known_of(argument)))
            values[id(argument)] = other
            params.append(other)
    function = Function(tuple(params), substitute(chain[-1] if chain else call, values))
    infer_type(function)
    return function


def _beside(call: Call, operand: TensorType | None) -> TensorType:
    """The type of what meets a call's result, with the result's own extents where it has open axes."""
    result = known_of(call)
    assert operand is not None and result is not None, "links of a chain are of tensors"
    rank = len(operand.shape)
    shape = [
        d if isinstance(d, int) else result.shape[len(result.shape) - rank + n] for n, d in enumerate(operand.shape)
    ]
    return TensorType(tuple(shape), operand.dtype)


def with_choice(function: Function, op: Op, choice: str) -> Function:
    """The function with a choice on its call of `op`."""

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or expr.op is not op or expr.attrs.choice == choice:
            return None
        return Call(expr.op, expr.args, replace(expr.attrs, choice=choice), expr.span)

    changed = rewrite(function, rule)
    assert isinstance(changed, Function), "a call stays a call"
    infer_type(changed)
    return changed
