"""The OpenCL device that tests run on: marks that skip where there is none (but not in CI), or where it lacks halves.

Debian's PoCL has no cl_khr_fp16: float16 is computed in float there, in half by `.ci/rusticl`'s Python.
"""

import os

import pytest

from armillary import runtime

_OBJECTION = runtime.cl(0).objection()
_IS_CI = os.environ.get("CI") == "true"
_FACTS = {} if _OBJECTION else runtime.cl(0).facts()
_HAS_HALF, HAS_DOUBLE = (_FACTS.get(name) == "1" for name in ("half", "double"))
needs_opencl = pytest.mark.skipif(bool(_OBJECTION) and not _IS_CI, reason=_OBJECTION or "there is one")
needs_half = pytest.mark.skipif(not _HAS_HALF, reason=_OBJECTION or f"{_FACTS.get('name')} has no cl_khr_fp16")
