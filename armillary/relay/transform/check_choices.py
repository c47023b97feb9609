"""check-choices: refuse choices that a script states for calls which the module does not have.

In: a module before its layouts change, and the option `schedule.choice`. Out: the same module, or a ConfigError that
lists the calls there are. Invariant: nothing changes. How calls are named: backends/overrides.py.

    def @main(%x: Tensor[(2, 3), float32]) { exp(%x) }
    ->
    def @main(%x: Tensor[(2, 3), float32]) { exp(%x) }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.backends.overrides import SCHEDULE_CHOICE, asked_choices, keys_of
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, post_order
from armillary.transform import define_pass

SHOWN = 24  # calls that an error lists


@define_pass("check-choices", opt_level=0)
def check_choices(module: IRModule, *, operators: Callable[[], Sequence[str]] = tuple) -> IRModule:
    """Hold the keys of `schedule.choice` against the module's calls of `operators`, for which there is a choice."""
    asked = asked_choices()
    if not asked:
        return module
    calls, chosen_for = list[Call](), operators()

    def visit(function: Function) -> None:
        calls.extend(e for e in post_order(function, not_primitive) if isinstance(e, Call) and isinstance(e.op, Op))

    on_functions(module, visit)
    chosen = [keys_of(call) for call in calls if isinstance(call.op, Op) and call.op.name in chosen_for]
    known = {key for keys in chosen for key in keys}
    for key in asked:
        if key not in known:
            _refuse(key, calls, chosen, chosen_for)
    return module


def _refuse(key: str, calls: Sequence[Call], chosen: Sequence[Sequence[str]], operators: Sequence[str]) -> None:
    name = SCHEDULE_CHOICE.name
    if not operators:
        raise ConfigError(f"{name}[{key!r}]: kernels of this target have no choice to overrule", hint="leave it out")
    if any(key in keys_of(call) for call in calls):
        message = f"{name}[{key!r}]: there is nothing to choose for this call"
        raise ConfigError(message, hint=f"choices are made for {', '.join(operators)}")
    there = list(dict.fromkeys(" or ".join(keys[:-1]) for keys in chosen))
    shown = "; ".join(there[:SHOWN]) or "none"
    raise ConfigError(f"{name}[{key!r}]: the module has no such call", hint=f"calls that are chosen for: {shown}")
