"""`remove-assert`: drop every assertion.

In: AssertStmt. Out: its body. Invariant: programs whose assertions hold mean the same. Configuration:
`tir.disable_assert`.
"""

from __future__ import annotations

from armillary.tir import stmt as S
from armillary.tir.transform.common import map_bottom_up, prim_pass, with_body
from armillary.transform import register_config_option

DISABLE_ASSERT = register_config_option("tir.disable_assert", bool, False, "compile without assertions")


def remove_assert(func: S.PrimFunc) -> S.PrimFunc:
    """Drop assertions.

    assert n < 3, "n is small"  A[0] = 0.0  ->  A[0] = 0.0
    """
    return with_body(func, map_bottom_up(func.body, lambda s: s.body if isinstance(s, S.AssertStmt) else s))


RemoveAssert = prim_pass("remove-assert", "tir.RemoveAssert")(remove_assert)
