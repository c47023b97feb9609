"""Steps of compiling loop programs under the names of Relay-era scripts: `schedule_to_module`, `lower`, `build`.

In: schedules, functions, modules. Out: modules and libraries. Invariant: no logic here but the choice of the step;
`schedule_to_module` gives the loops as the schedule says them, before any pass. Where to look next:
`driver/te_build.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.base.boundary import boundary
from armillary.driver.te_build import build, lower
from armillary.errors import UnsupportedError
from armillary.ir import IRModule
from armillary.relay.binding import bind_params_by_name
from armillary.target import Target

__all__ = ["Target", "bind_params_by_name", "build", "form_irmodule", "lower", "schedule_to_module"]


@boundary("schedule_to_module", arguments=True)
def schedule_to_module(
    sch: te.Schedule, args: Sequence[object] | None = None, name: str = "main", binds: object = None
) -> IRModule:
    """The loops of a schedule as a module of one function, before the passes over loops."""
    if binds:
        raise UnsupportedError("binds= is not supported", hint="declare buffers in te.extern")
    return IRModule({name: te.lower_schedule(sch, list(args or ()), name).with_attr("global_symbol", name)})


def form_irmodule(
    sch: te.Schedule, args: Sequence[object] | None = None, name: str = "main", binds: object = None
) -> IRModule:
    """`schedule_to_module`, under its name of 0.7."""
    return schedule_to_module(sch, args, name, binds)
