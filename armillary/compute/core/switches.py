"""Debugging of the compute library: what the text's build options `debug`, `asserts` and `logging` switch.

In: ARMILLARY_COMPUTE_DEBUG, _ASSERTS and _LOGGING. Out: options of the passes that make kernels, and lines of a log.
Invariant: debugging forces the other two, as in the text; without them kernels are what they are anyway.
"""

from __future__ import annotations

import logging

from armillary.base.config import setting
from armillary.base.once import once


def _is_on(name: str) -> bool:
    return bool(setting("ARMILLARY_COMPUTE_DEBUG") or setting(f"ARMILLARY_COMPUTE_{name}"))


def kernel_config() -> dict[str, object]:
    """Options of the passes that make kernels."""
    config: dict[str, object] = {"tir.LoopPartition": {"partition_const_loop": True}}
    if _is_on("ASSERTS"):
        config["tir.instrument_bound_checkers"] = True
    if setting("ARMILLARY_COMPUTE_DEBUG"):
        config["tir.debug_verify"] = True
    return config


@once
def _logger() -> logging.Logger:
    logger = logging.getLogger("armillary.compute")
    if _is_on("LOGGING"):
        logger.setLevel(logging.INFO)
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    return logger


def log(message: str, *values: object) -> None:
    """Write a line, where lines are asked for."""
    logger = _logger()
    if logger.isEnabledFor(logging.INFO):
        logger.info(message, *values)
