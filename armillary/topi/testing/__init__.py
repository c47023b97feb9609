"""References on arrays under the names of old scripts: `topi.testing.conv2d_nchw_python(a, w, stride, padding)`.

In: numpy arrays and attributes in each function's own order. Out: numpy arrays. Invariant: nothing is computed here: a
function arranges its arguments and asks the operators' numpy references (`relay/evaluate.py`), by which kernels are
judged as well, so a script compares a kernel with what the operator means. Windows: `windows.py`; other operators:
`arrays.py`; schedules by target: `machines.py`.
"""

from __future__ import annotations

from armillary.topi.testing.arrays import FUNCTIONS as ARRAYS
from armillary.topi.testing.machines import FUNCTIONS as MACHINES
from armillary.topi.testing.windows import FUNCTIONS as WINDOWS

globals().update({**ARRAYS, **MACHINES, **WINDOWS})
__all__ = sorted([*ARRAYS, *MACHINES, *WINDOWS])
