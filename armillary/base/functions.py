"""Python functions by name, for scripts and for compiled code that calls them.

In: functions under names. Out: the functions. Invariant: nothing is found that was not registered in this process. The
public face: `armillary/registry.py`; calls from kernels: `runtime/packed.py`, the interpreter of loop programs.
"""

from __future__ import annotations

from armillary.base.aliases import AnyFunction
from armillary.errors import ExecutionError

FUNCTIONS: dict[str, AnyFunction] = {}
TRACE_ACTION = "tvm.default_trace_action"  # what `tir.trace` calls when it names no function


def show_values(*values: object) -> None:
    """Print what an expression came to, as `tir.trace` does without a function of its own."""
    print(list(values))


FUNCTIONS[TRACE_ACTION] = show_values


def is_registered(name: str) -> bool:
    """Whether there is a function of that name."""
    return name in FUNCTIONS


def called(name: str) -> AnyFunction:
    """The function that compiled code calls by name; ExecutionError where none is registered."""
    result = FUNCTIONS.get(name)
    if result is None:
        raise ExecutionError(
            f"compiled code calls the function {name!r}, which is not registered",
            hint="armillary.register_func(name, function) before the call",
        )
    return result
