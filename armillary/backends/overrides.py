"""Choices that a script states for calls: the option `schedule.choice`, which overrules the model of costs.

In: a call, the current pass context. Out: the choice that the option names for the call, by override; an empty one
where it names none. A key is the name of a node of the model, an operator with the shapes of its operands, as in
"nn.conv2d(1x64x56x56, 64x64x3x3)", or an operator alone, asked in this order; a value is a choice or its text
(target/choice.py). Invariant: calls are named as they are before layouts change. Pass that refuses keys which no call
has: relay/transform/check_choices.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from armillary.errors import ConfigError
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.target.choice import Choice, Source
from armillary.transform import PassContext, register_config_option

SCHEDULE_CHOICE = register_config_option(
    "schedule.choice", (dict,), {}, "by call: the algorithm, configuration and layouts to take instead of the model's"
)


def asked_choices() -> Mapping[str, object]:
    """The option's keys and values."""
    result: Mapping[str, object] = PassContext.current().config.get(SCHEDULE_CHOICE.name, {})
    return result


def keys_of(expr: Expr) -> tuple[str, ...]:
    """What a call may be named by, the most exact first."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return ()
    types = [getattr(argument, "checked_type", None) for argument in expr.args]
    shapes = ["x".join(map(str, t.shape)) if isinstance(t, TensorType) else "?" for t in types]
    named = (expr.span.name,) if expr.span is not None and expr.span.name else ()
    return (*named, f"{expr.op.name}({', '.join(shapes)})", expr.op.name)


def asked_choice(expr: Expr) -> Choice:
    """What is asked for a call; empty where nothing is."""
    asked = asked_choices()
    key = next((key for key in keys_of(expr) if key in asked), None) if asked else None
    return Choice() if key is None else replace(_choice(key, asked[key]), source=Source.OVERRIDE)


def _choice(key: str, value: object) -> Choice:
    if not isinstance(value, str | Choice):
        message = f"{SCHEDULE_CHOICE.name}[{key!r}] is {type(value).__name__}, wanted a choice or its text"
        raise ConfigError(message, hint="for example 'conv2d.direct rows=7 vectors=4'")
    result = Choice.parse(value) if isinstance(value, str) else value
    if not result:
        raise ConfigError(f"{SCHEDULE_CHOICE.name}[{key!r}] names no algorithm", hint="leave the key out")
    return result
