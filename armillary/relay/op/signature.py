"""An operator as the function that users call: `relay.nn.conv2d` has a name, a signature and a text for `help`.

In: an operator's record. Out: a function that makes calls of it, whose `op` is the record; and its signature: inputs,
then attributes in the order of their class, which tools/stubs.py writes down for type checkers. Invariant: the function
only calls the record.
"""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache
from typing import Protocol

from armillary.relay.expr import Call
from armillary.relay.op import Op


class OperatorFunction(Protocol):
    """Makes calls of one operator."""

    op: Op

    def __call__(self, *args: object, **attrs: object) -> Call: ...


def signature(op: Op) -> inspect.Signature:
    """Inputs, then attributes with their defaults."""
    parameters = [_parameter(name.lstrip("*")) for name in op.inputs]
    for field in dataclasses.fields(op.attrs_class) if op.attrs_class is not None else ():
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        parameters.append(_parameter(field.name, default, field.type))
    parameters.sort(key=lambda p: p.kind)
    return inspect.Signature(parameters, return_annotation="Call")


def _parameter(
    name: str, default: object = inspect.Parameter.empty, annotation: object = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


@cache
def function_of(op: Op) -> OperatorFunction:
    """The operator as a function."""

    def make(*args: object, **attrs: object) -> Call:
        return op(*args, **attrs)

    make.__name__ = make.__qualname__ = op.name.rsplit(".", 1)[-1]
    make.__module__ = f"armillary.relay.{op.name}".rpartition(".")[0]
    make.__doc__ = f"{op.doc}\n\nThe operator `{op.name}`; docs/operators.md has its inputs and attributes.".strip()
    make.__dict__ |= {"op": op, "__signature__": signature(op)}
    return make  # type: ignore[return-value]  # mypy does not see `op`
