"""`relay.build_module`, the Relay-era home of names that now live elsewhere.

A façade: a table, no logic. See driver/build.py (build, optimize), driver/executor.py and relay/binding.py.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BuildModule": "armillary.driver.build_module.steps:BuildModule",
        "GraphExecutor": "armillary.driver.executor:Executor",
        "bind_params_by_name": "armillary.relay.binding:bind_params_by_name",
        "build": "armillary.driver.build:build",
        "create_executor": "armillary.driver.executor:create_executor",
        "optimize": "armillary.driver.build:optimize",
    },
)
