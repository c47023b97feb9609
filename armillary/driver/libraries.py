"""Libraries in a list of targets: "arm_compute_lib, llvm -mtriple=aarch64-linux-gnu", "opencl, clml, llvm".

In: what a user gives as the target; a module. Out: names of libraries and the target that the rest is compiled for; the
module partitioned for them, in their order; the report. Invariant: without libraries in the list a module stays as it
is. The libraries: offload/contract.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.backends.placement import DeviceTargets
from armillary.base.lazy import deferred
from armillary.codegen.toolchain import is_cross
from armillary.driver.variants import entries
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload import BUILT_IN
from armillary.target import Target
from armillary.target.target import host_target

with deferred():  # most builds name no library
    from armillary.offload import contract, report


def split_libraries(target: object) -> tuple[tuple[str, ...], object]:  # whatever Target accepts
    """Names of the libraries in a list of targets, in its order, and the rest of it."""
    if not isinstance(target, str) or ("," not in target and target.strip() not in BUILT_IN):
        return (), target
    parts = target.split(",")
    names = [part.strip() for part in parts if _is_library(part)]
    rest = ",".join(part for part in parts if not _is_library(part)).strip()
    if not rest:
        hint = f'what it leaves is compiled for a target: "{target.strip()}, llvm -mcpu=native"'
        raise ConfigError(f"the target is only a library: {target.strip()}", hint=hint)
    return tuple(dict.fromkeys(contract.find_offload(name).name for name in names)), rest


def stated_libraries(target: Target | DeviceTargets) -> tuple[str, ...]:
    """The libraries that `-libs=` of a target names. ConfigError for one that is not known, or not on this machine."""
    targets = target.all if isinstance(target, DeviceTargets) else (target,)
    names = tuple(dict.fromkeys(name for each in targets for name in each.libs))
    for name in names:
        reason = contract.find_offload(name).absence()
        if reason is not None and not any(is_cross(host_target(each)) for each in targets):
            raise ConfigError(f"target attribute libs: {name}: {reason}")
    return names


def _is_library(part: str) -> bool:
    return " " not in part.strip() and contract.is_offload(part.strip())


def with_libraries(
    module: IRModule,
    libraries: Sequence[str],
    params: Mapping[str, object] | None,  # numpy arrays or NDArrays
    mod_name: str = "default",
) -> IRModule:
    """Partition for each library in turn: the first takes what it can."""
    if libraries and len(entries(module)) > 1:
        message = f"a module of {len(entries(module))} variants cannot be offloaded to {libraries[0]}"
        raise UnsupportedError(message, hint="compile one set of shapes, or leave the library out of the target")
    for name in libraries:
        module = contract.partition(module, contract.find_offload(name), params, mod_name=mod_name)
    return module


def report_of(module: IRModule, libraries: Sequence[str]) -> report.OffloadReport:
    """What runs where, and why; where no library was asked, that."""
    return report.offload_report(module, tuple(dict.fromkeys((*libraries, *module.asked))))
