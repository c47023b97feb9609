"""The debug executor, under its module's old name.

In: a name. Out: what `contrib/debug_executor.py` has. Invariant: no logic here.
"""

from armillary.contrib.debug_executor import GraphModuleDebug, create

__all__ = ["GraphModuleDebug", "create"]
