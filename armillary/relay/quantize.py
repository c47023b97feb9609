"""`relay.quantize`: making a float network one of 8-bit integers.

A façade: a table. See driver/quantization.
"""

from __future__ import annotations

import sys
import types

from armillary.base.lazy import lazy_names

__path__: list[str] = []  # modules of old scripts lie below: base/old_modules/table.txt

_PLACES = {
    "config": ("QConfig", "qconfig", "current_qconfig"),
    "annotate": ("annotate", "attach_simulated_quantize", "QAnnotateKind"),
    "calibrate": ("calibrate", "collect_stats"),
    "realize": ("realize",),
    "partition": ("partition_conversions",),
    "quantize": ("quantize", "prerequisite_optimize"),
}
_TABLE = {name: f"armillary.driver.quantization.{file}:{name}" for file, names in _PLACES.items() for name in names}
__getattr__, __dir__ = lazy_names(__name__, _TABLE)


class _Facade(types.ModuleType):
    """Keeps its functions where `import armillary.relay.quantize.quantize` would put a module in the place of one."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _TABLE or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Facade
