"""measure_option: who builds trials and who runs them.

In: a builder and a runner, each an object or "local". Out: the option that tuners take. Invariant: what has not the
methods of its role is refused when the option is made, not when the first trial comes.
"""

from __future__ import annotations

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.local_builder import LocalBuilder
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureOption
from armillary.base.arguments import Arguments


def measure_option(builder: object = "local", runner: object = "local") -> MeasureOption:  # a Builder, Runner, "local"
    """Who builds and who runs; "local" stands for LocalBuilder() and LocalRunner()."""
    result = {"builder": builder, "runner": runner}
    for role, kind in (("builder", LocalBuilder), ("runner", LocalRunner)):
        if isinstance(result[role], str):
            if result[role] == "local":
                result[role] = kind()
                continue
            raise TuningError(f"measure_option: unknown {role} {result[role]!r}", hint='"local", or an object')
        methods = ("set_task", "build" if role == "builder" else "run", "close")
        Arguments("measure_option", TuningError).provides(role, result[role], methods, f'"local", or a {role}')
    return result
