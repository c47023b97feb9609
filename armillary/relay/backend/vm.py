"""`relay.vm`, the Relay-era home of executables that are called by name.

A façade: a table, no logic. See driver/executor.py, and runtime/vm.py for what calls them.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Executable": "armillary.driver.executor:Executable",
        "VMCompiler": "armillary.driver.build_module.steps:VMCompiler",
        "VMExecutor": "armillary.driver.executor:Executor",
        "compile": "armillary.driver.executor:compile_executable",
    },
)
