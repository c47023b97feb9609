"""`topi.nn.qnn`: the numbers that scripts write for a quantised type that is an input of their program.

In: nothing. Out: `SQNN_DTYPE_TO_CODE`, `SQNN_CODE_TO_DTYPE`. Invariant: the table is that of
`relay.qnn.simulated_quantize` (ops/misc/compositions.py).
"""

from armillary.ops.misc.compositions import SQNN_DTYPE_TO_CODE

SQNN_CODE_TO_DTYPE = {code: name for name, code in SQNN_DTYPE_TO_CODE.items()}
__all__ = ["SQNN_CODE_TO_DTYPE", "SQNN_DTYPE_TO_CODE"]
