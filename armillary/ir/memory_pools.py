"""Memories that a C package may use, by name: `WorkspaceMemoryPools([WorkspacePoolInfo("sram", [target], …)])`.

In: names, targets that can read a pool, how large and fast it is. Out: values for `relay.build`'s
`workspace_memory_pools` and `constant_memory_pools`. Invariant: a size of -1 is no limit. Who chooses: driver/aot,
the first pool that all of it fits in; speeds and bursts are of the machine and choose nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.errors import BudgetError, ConfigError

UNLIMITED = -1


@record(eq=False)
class PoolInfoProperties:
    """How large a pool is in bytes, its clock in Hz, and its bandwidth, latency and bursts; -1: not known."""

    size_hint_bytes: int = UNLIMITED
    clock_frequency_hz: int = -1
    read_bandwidth_bytes_per_cycle: int = -1
    write_bandwidth_bytes_per_cycle: int = -1
    read_latency_cycles: int = 0
    write_latency_cycles: int = 0
    target_burst_bytes: Mapping[object, int] = dataclasses.field(default_factory=dict)


class PoolInfo:
    """A pool: its name, the targets that reach it, and its properties as attributes of its own."""

    def __init__(
        self, pool_name: str, targets: Sequence[object], pool_info_properties: PoolInfoProperties | None = None
    ) -> None:
        if not isinstance(pool_name, str) or not pool_name.isidentifier():
            raise ConfigError(f"pool_name {pool_name!r} is no name of C", hint='WorkspacePoolInfo("sram", [target])')
        self.pool_name, self.targets = pool_name, list(targets)
        self._properties = pool_info_properties or PoolInfoProperties()

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._properties, name)

    @property
    def size_hint_bytes(self) -> int:
        """Bytes that it has; -1 is no limit."""
        return self._properties.size_hint_bytes


class WorkspacePoolInfo(PoolInfo):
    """A pool that is written: values between kernels and what kernels need while they run."""


class ConstantPoolInfo(PoolInfo):
    """A pool that is read: weights. The array of constants is accepted as the old class has it, and is not read."""

    def __init__(
        self,
        pool_name: str,
        targets: Sequence[object],
        constant_info_arr: Sequence[object] | None = None,
        pool_info_properties: PoolInfoProperties | None = None,
    ) -> None:
        del constant_info_arr
        super().__init__(pool_name, targets, pool_info_properties)


@record
class WorkspaceMemoryPools:
    """Pools to write to, the one to be used first at the front."""

    pools: Sequence[WorkspacePoolInfo]


@record
class ConstantMemoryPools:
    """Pools of weights, the one to be used first at the front."""

    pools: Sequence[ConstantPoolInfo]


_Pool = TypeVar("_Pool", WorkspacePoolInfo, ConstantPoolInfo)


@boundary("memory pools")
def pool_for(size: int, pools: Sequence[_Pool], what: str) -> _Pool:
    """The first pool that `size` bytes fit in; BudgetError where there is none."""
    for pool in pools:
        if pool.size_hint_bytes < 0 or pool.size_hint_bytes >= size:
            return pool
    sizes = ", ".join(f"{pool.pool_name} {pool.size_hint_bytes}" for pool in pools) or "there is none"
    raise BudgetError(f"{what}: {size} bytes, which no pool holds: {sizes}", hint="raise size_hint_bytes")
