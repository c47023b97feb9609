"""Parameters as bytes, under the module name of Relay-era scripts.

In: a name. Out: what `runtime/container.py` has under it. Invariant: no logic here; the runtime is imported when asked.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

_NAMES = ("load_param_dict", "save_param_dict")
__getattr__, __dir__ = lazy_names(__name__, {name: f"armillary.runtime.container:{name}" for name in _NAMES})
