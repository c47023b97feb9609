"""Strategies: how a script computes an operator and schedules what was computed, for the target that is compiled for.

In: `register_strategy("my.op", rule)`, where `rule(attrs, inputs, out_type, target)` gives an `OpStrategy`: computes
`(attrs, tensors, out_type) -> [tensors]` and schedules `(attrs, outs, target) -> te.Schedule`, each with a priority.
Out: `best()`, the implementation of the highest priority, which backends/registry.py takes instead of its own.
Invariant: an operator with a strategy keeps its layout, and its kernels are made in this process and never read from a
cache: a script's code is no part of a cache's key.

    >>> strategy = OpStrategy()
    >>> strategy.add_implementation(wrap_topi_compute(lambda x: x), naive_schedule, name="mine", plevel=15)
    >>> strategy.best().name
    'mine'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from armillary import te
from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.relay.op import COMPUTE, OPS, STRATEGY, get_op, register_op_attr
from armillary.relay.types import Type
from armillary.target import Target
from armillary.target.generic_func import GenericFunc

__path__: list[str] = []  # modules of old scripts lie below: base/old_modules/table.txt

Attrs = object  # each operator has a class of its own
Compute = Callable[[Attrs, Sequence[te.Tensor], Type], te.Tensor | Sequence[te.Tensor]]
Schedule = Callable[[Attrs, Sequence[te.Tensor], Target], te.Schedule]


@record
class OpImplementation:
    """One way to compute and schedule an operator; without a schedule it gets the target's default."""

    name: str
    compute: Compute
    schedule: Schedule | None
    plevel: int


class OpStrategy:
    """The ways that a script offers; of equal priorities the first one holds."""

    def __init__(self) -> None:
        self.implementations: list[OpImplementation] = []

    @boundary("relay.op.OpStrategy.add_implementation", arguments=True)
    def add_implementation(
        self, compute: Compute, schedule: Schedule | None = None, name: str = "default", plevel: int = 10
    ) -> None:
        """Offer one. Raises ConfigError for what cannot be called."""
        for what, rule in (("compute", compute), ("schedule", schedule)):
            if rule is not None and not callable(rule):
                raise ConfigError(f"OpStrategy {name!r}: its {what} is {type(rule).__name__}, wanted a function")
        self.implementations.append(OpImplementation(name, compute, schedule, plevel))

    def best(self) -> OpImplementation:
        """The one of the highest priority. Raises ConfigError where there is none."""
        if not self.implementations:
            raise ConfigError("a strategy offers no implementation", hint="call its add_implementation")
        return max(self.implementations, key=lambda row: row.plevel)


_FAMILIES = ("generic", "x86", "arm_cpu", "cuda", "mali", "adreno", "bifrost", "intel_graphics", "hls", "rocm")
_PLACES = ("nn.", "", "image.", "vision.")


class OperatorStrategy(GenericFunc):
    """`conv2d_strategy` and its kin: the target's keys choose among what scripts register; else it is the build's own.

    @relay.op.strategy.conv2d_strategy.register("arm_cpu")
    def mine(attrs, inputs, out_type, target): ...      # holds where a target has that key
    """

    def __init__(self, name: str, op_name: str) -> None:
        super().__init__(name)
        self.op_name = op_name

    def get_packed_func(self) -> Callable[..., object]:
        """What holds for the current target."""
        is_registered = self.covers(Target.current())
        return super().get_packed_func() if is_registered else get_op(self.op_name).own_strategy

    def register(
        self,
        func: Callable[..., object] | str | Sequence[str],
        key_list: str | Sequence[str] = (),
        allow_override: bool = False,
    ) -> Callable[..., object]:
        """As of any generic function; builds for targets with one of these keys take it from now on."""
        held = super().register(func, key_list, allow_override)
        if callable(func) and get_op(self.op_name).registered(STRATEGY) is not self:
            register_strategy(self.op_name, self)  # type: ignore[arg-type]
        return held


_STRATEGIES: dict[str, OperatorStrategy] = {}


def __getattr__(name: str) -> object:
    """Strategies by the names of scripts: `conv2d_strategy`, `conv2d_strategy_cpu`; `x86` and the like are this."""
    if name in _FAMILIES:
        return sys.modules[__name__]
    operator, suffix, family = name.partition("_strategy")
    op_name = next((place + operator for place in _PLACES if suffix and place + operator in OPS), None)
    if op_name is None or (family and family[0] != "_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if family:
        return get_op(op_name).own_strategy
    return _STRATEGIES.setdefault(name, OperatorStrategy(name, op_name))


Strategy = Callable[[Attrs, Sequence[te.Tensor], Type, Target], OpStrategy]


@boundary("relay.op.register_strategy", arguments=True)
def register_strategy(op_name: str, fstrategy: Strategy | None = None, level: int = 10) -> Callable[..., object]:
    """Say how an operator is computed; also a decorator. Of two rules for it the one of the higher level holds.

    The rule may be a `target.generic_func`: then the keys of the target choose between its forms.
    """
    get_op(op_name)
    held: Callable[..., object] = register_op_attr(op_name, STRATEGY, fstrategy, level)
    return held


@boundary("relay.op.register_compute", arguments=True)
def register_compute(op_name: str, compute: Compute | None = None, level: int = 10) -> Callable[..., object]:
    """Say what an operator computes; schedules are the target's own. Also a decorator."""
    get_op(op_name)
    held: Callable[..., object] = register_op_attr(op_name, COMPUTE, compute, level)
    return held


@boundary("relay.op.register_schedule", arguments=True)
def register_schedule(op_name: str, schedule: Callable[..., te.Schedule], level: int = 10) -> Callable[..., object]:
    """Schedule an operator by `schedule(outs)`; what it computes was said by `register_compute`."""
    compute = get_op(op_name).get_attr(COMPUTE)
    if compute is None:
        raise ConfigError(f"operator {op_name!r} has no compute", hint="call register_compute before")

    def rule(attrs: Attrs, inputs: Sequence[te.Tensor], out_type: Type, target: Target) -> OpStrategy:
        del attrs, inputs, out_type, target
        strategy = OpStrategy()
        strategy.add_implementation(compute, wrap_topi_schedule(schedule), name=op_name)
        return strategy

    return register_strategy(op_name, rule, level)


def _of_kind(op_name: str, level: int = 10, *, kind: str) -> None:
    """An operator with a compute alone gets the default schedule of its kind."""
    del level
    if get_op(op_name).get_attr(COMPUTE) is None and get_op(op_name).compute_rule is None:
        raise ConfigError(
            f"register_{kind}_schedule: operator {op_name!r} has no compute", hint="call register_compute"
        )


register_injective_schedule = partial(_of_kind, kind="injective")
register_broadcast_schedule = partial(_of_kind, kind="broadcast")
register_reduce_schedule = partial(_of_kind, kind="reduce")


def wrap_topi_compute(topi_compute: Callable[..., te.Tensor | Sequence[te.Tensor]]) -> Compute:
    """A compute of a function of tensors alone, such as `topi.add`."""

    def compute(attrs: Attrs, inputs: Sequence[te.Tensor], out_type: Type) -> te.Tensor | Sequence[te.Tensor]:
        del attrs, out_type
        return topi_compute(*inputs)

    return compute


def wrap_topi_schedule(topi_schedule: Callable[..., te.Schedule]) -> Schedule:
    """A schedule of a function of outputs alone, such as `topi.generic.schedule_injective`."""

    def schedule(attrs: Attrs, outs: Sequence[te.Tensor], target: Target) -> te.Schedule:
        del attrs
        with target:
            return topi_schedule(outs)

    return schedule


def naive_schedule(attrs: Attrs, outs: Sequence[te.Tensor], target: Target) -> te.Schedule:
    """Loops as the computes are written."""
    del attrs, target
    return te.create_schedule([t.op for t in outs])
