"""Libraries that may stand before a target in a list: "compute-library, llvm".

In: a name. Out: the function that moves into functions of their own what the library computes. Invariant: the names
are those that `offload/` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.offload.contract import find_offload, is_offload, offload_names, partition


class Codegen(TypedDict):
    """How a library is used: no option of a PassContext is its own; a function that partitions a module."""

    config_key: str | None
    pass_pipeline: Callable[..., IRModule]


def get_codegen_names() -> list[str]:
    """Names of libraries, as a list of targets may have them."""
    return offload_names()


def get_codegen_by_target(name: str) -> Codegen:
    """How a library is used. Raises ConfigError for a name that is none."""
    if not is_offload(name):
        raise ConfigError(f"there is no library {name!r}", hint=f"known: {', '.join(get_codegen_names())}")
    return Codegen(config_key=None, pass_pipeline=_pipeline(name))


def _pipeline(name: str) -> Callable[..., IRModule]:
    def partition_for(mod: IRModule, params: dict[str, object] | None = None, mod_name: str = "default") -> IRModule:
        return partition(mod, find_offload(name), params, mod_name=mod_name)

    return partition_for
