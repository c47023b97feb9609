"""Targets of which the code runs on this machine.

In: targets. Out: parameters of a test, those that this processor lacks features for marked as skipped.
"""

from __future__ import annotations

from typing import Any

import pytest

from armillary.target.cpu import cpu_model


def targets(*names: str) -> list[Any]:  # Any: pytest's parameters
    """Those whose code runs here; the others are skipped by name."""
    here, made = cpu_model("llvm").features, []
    for name in names:
        cannot = not cpu_model(name).features <= here
        made.append(pytest.param(name, marks=pytest.mark.skipif(cannot, reason="not the processor for it")))
    return made
