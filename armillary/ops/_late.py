"""The tensor and the loop language for operators' rules, imported when a rule first uses them.

In: nothing. Out: `te`, and of the loop language `T` (constructors), `E` (expressions), `S` (statements), which look
like those modules; for tables `scalar`, `reduction` and `erf`: functions of theirs by name. Invariant: importing an
operator imports neither language: a build whose kernels are all in the cache needs none, and they are a tenth of its
start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.lazy import LateModule, late

if TYPE_CHECKING:
    from armillary import te as te
    from armillary.tir import build as T
    from armillary.tir import expr as E
    from armillary.tir import stmt as S
    from armillary.tir.intrinsics import erf as erf

    __all__ = ["E", "S", "T", "erf", "reduction", "scalar", "te"]
else:
    te = LateModule("armillary.te")
    T, E, S = (LateModule(f"armillary.tir.{name}") for name in ("build", "expr", "stmt"))
    erf = late("armillary.tir.intrinsics:erf")


def scalar(name: str) -> Callable[..., Any]:  # Any: expressions
    """`T.<name>`, for a table that is made when an operator is imported."""
    return late(f"armillary.tir.build:{name}")


def reduction(name: str) -> Callable[..., Any]:  # Any: expressions
    """`te.<name>`, likewise."""
    return late(f"armillary.te:{name}")
