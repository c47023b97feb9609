"""The OpenCL device that tests run on: a mark that skips where there is none, except in CI, which installs one."""

import os

import pytest

from armillary import runtime

_OBJECTION = runtime.cl(0).objection()
_IS_CI = os.environ.get("CI") == "true"
needs_opencl = pytest.mark.skipif(bool(_OBJECTION) and not _IS_CI, reason=_OBJECTION or "there is one")
