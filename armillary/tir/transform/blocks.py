"""`lower-init-block`, `convert-blocks-to-opaque`, `lower-match-buffer`: passes over the blocks of TensorIR.

In: a function. Out: the same function. Invariant: the loop language has no blocks: a reduction's start is a statement
and a buffer is read where it lies as soon as a schedule is lowered, so these passes of Relay-era phase lists have
nothing left to do. They exist so that lists which name them run.
"""

from __future__ import annotations

from armillary.tir import stmt as S
from armillary.tir.transform.common import prim_pass


def unchanged(func: S.PrimFunc) -> S.PrimFunc:
    """The function as it is: it has no block."""
    return func


LowerInitBlock = prim_pass("lower-init-block", "tir.LowerInitBlock")(unchanged)
ConvertBlocksToOpaque = prim_pass("convert-blocks-to-opaque", "tir.ConvertBlocksToOpaque")(unchanged)
LowerMatchBuffer = prim_pass("lower-match-buffer", "tir.LowerMatchBuffer")(unchanged)
