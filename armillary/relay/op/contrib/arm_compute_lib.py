"""Arm Compute Library, as Relay-era scripts call it.

In: a module, perhaps parameters. Out: the module with what the library computes in functions of their own. Invariant:
concatenate is left alone unless `disabled_ops` says otherwise. What is offloaded, and why not: offload/acl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.offload.acl import NAME, OFFLOAD
from armillary.offload.acl.find_library import is_switched_off
from armillary.offload.contract import partition
from armillary.relay.offload_tables import Row, get_pattern_table

with deferred():
    from armillary.runtime.external import has_external as _has_external


@boundary("partition_for_arm_compute_lib", arguments=True)
def partition_for_arm_compute_lib(
    mod: IRModule,
    params: Mapping[str, object] | None = None,  # numpy arrays or NDArrays
    disabled_ops: Sequence[str] = ("concatenate",),
    mod_name: str = "default",
    merge_regions: bool = False,
    **opts: object,
) -> IRModule:
    """Move what Arm Compute Library computes into functions `tvmgen_default_arm_compute_lib_main_<n>`.

    Each call becomes one; with `merge_regions` neighbours share one, and values between them stay in the library.
    """
    del opts  # of other libraries: ignored, as ever
    return partition(mod, OFFLOAD, params, disabled_ops, mod_name, merge_regions)


@boundary("preprocess_module", arguments=True)
def preprocess_module(mod: IRModule) -> IRModule:
    """The module with channels last, as `partition_for_arm_compute_lib` makes it first."""
    for step in OFFLOAD.prepare:
        mod = step(mod)
    return mod


def is_arm_compute_runtime_enabled() -> bool:
    """Whether this machine has the runtime, so that offloaded functions can run here; ARMILLARY_ACL=OFF says no."""
    return not is_switched_off() and bool(_has_external(NAME))


def arm_compute_lib_pattern_table() -> Sequence[Row]:
    """Rows of (name, pattern, predicate)."""
    return get_pattern_table(NAME)
