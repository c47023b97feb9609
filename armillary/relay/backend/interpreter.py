"""`relay.backend.interpreter`: the values of data types and cells, under their Relay-era name.

A façade: a table, no logic. See relay/adt/evaluate.py and, for the interpreter, relay/evaluate.py.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ConstructorValue": "armillary.relay.adt.evaluate:ConstructorValue",
        "Executor": "armillary.driver.executor:Executor",
        "RefValue": "armillary.relay.adt.evaluate:RefValue",
    },
)
