"""Operators and patterns for external libraries: a module for each library, named as in Relay-era scripts."""

from __future__ import annotations

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__, {name: f"armillary.relay.op.contrib.{name}" for name in ("arm_compute_lib", "clml", "cutlass")}
)
