"""`from armillary.relay.frontend.common import infer_type`: see armillary/frontend/common.py, which this gives.

In: a name. Out: what `armillary.frontend.common` has under it. Invariant: no logic here.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

_NAMES = ("infer_shape", "infer_type", "infer_value")
__getattr__, __dir__ = lazy_names(__name__, {name: f"armillary.frontend.common:{name}" for name in _NAMES})
