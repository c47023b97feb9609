"""The debug executor under its module's old name: `from armillary.contrib.debugger import debug_executor`.

In: a name. Out: the module. Invariant: no logic here.
"""

from armillary.base.lazy import lazy_names

_NAMES = {"debug_executor": "armillary.contrib.debugger.debug_executor"}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
