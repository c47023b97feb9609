"""Matrix products under the names of MKL: those of `contrib.cblas`, computed by the kernel itself.

In: tensors of a loop program, or arrays that compiled code passes. Out: their product. Invariant: no library is called:
what is exported runs where none is.
"""

from __future__ import annotations

from armillary.base.functions import FUNCTIONS
from armillary.contrib.cblas import _run, batch_matmul, matmul, matmul_u8s8s32

__all__ = ["batch_matmul", "matmul", "matmul_u8s8s32"]
for _prefix in ("armillary", "tvm"):
    for _name in __all__:
        FUNCTIONS.setdefault(f"{_prefix}.contrib.mkl.{_name}", _run)
