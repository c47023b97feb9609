"""Pools of memory from options of a command line: `--workspace-pools=sram --workspace-pools-size-hint-bytes=sram:4096`.

In: a parser; what it read, and the targets of the build. Out: `WorkspaceMemoryPools` for `tvmc.compile`. Invariant: of
an option that is given twice for a pool the last counts; a pool without a target of the build is refused. What a build
does with them: ir/memory_pools.py.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence

from armillary.base.boundary import boundary
from armillary.driver.tvmc.target import TargetEntry
from armillary.errors import ConfigError
from armillary.ir.memory_pools import PoolInfoProperties, WorkspaceMemoryPools, WorkspacePoolInfo
from armillary.target import Target

_BURST = "target_burst_bytes"
_NUMBERS = [f.name for f in dataclasses.fields(PoolInfoProperties) if f.name != _BURST]


def generate_workspace_pools_args(parser: argparse.ArgumentParser) -> None:
    """Declare `--workspace-pools` and an option for each property of a pool."""
    parser.add_argument("--workspace-pools", help="names of pools of memory, with commas: sram,flash")
    texts = {"targets": "POOL:KIND,KIND", **dict.fromkeys(_NUMBERS, "POOL:NUMBER"), _BURST: "POOL:KIND:BYTES"}
    for name, text in texts.items():
        option = f"--workspace-pools-{name.replace('_', '-')}"
        parser.add_argument(option, action="append", metavar=text, help=f"{name.replace('_', ' ')} of a pool")


@boundary("workspace_pools_recombobulate")
def workspace_pools_recombobulate(
    parsed: argparse.Namespace, targets: Sequence[Target], extra_target: Sequence[TargetEntry] = ()
) -> WorkspaceMemoryPools | None:
    """The pools that the options name, None for none. Raises ConfigError for one without a target of the build.

    `extra_target` are libraries before the target; they use its memory.
    """
    del extra_target
    names = [name for name in (parsed.workspace_pools or "").split(",") if name]
    reached = {target.kind.name: target for each in targets for target in (each, each.host) if target is not None}
    values = {name: _by_pool(parsed, name) for name in ("targets", *_NUMBERS)}
    bursts = _bursts(parsed, reached)
    pools = []
    for pool in names:
        kinds = [kind for kind in values["targets"].get(pool, "").split(",") if kind]
        if not kinds:
            raise ConfigError(f'No target specified for Workspace Pool "{pool}"')
        if not set(kinds) & set(reached):
            raise ConfigError(f'Workspace Pool "{pool}" using undefined Target "{",".join(kinds)}"')
        numbers = {name: _number(name, values[name][pool]) for name in _NUMBERS if pool in values[name]}
        properties = PoolInfoProperties(**numbers, target_burst_bytes=bursts.get(pool, {}))
        pools.append(WorkspacePoolInfo(pool, [t for kind, t in reached.items() if kind in kinds], properties))
    return WorkspaceMemoryPools(pools) if pools else None


def _given(parsed: argparse.Namespace, name: str) -> list[str]:
    return list(getattr(parsed, f"workspace_pools_{name}") or ())


def _by_pool(parsed: argparse.Namespace, name: str) -> dict[str, str]:
    rows = [text.partition(":") for text in _given(parsed, name)]
    return {pool: value for pool, _, value in rows}


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        option = f"--workspace-pools-{name.replace('_', '-')}"
        raise ConfigError(f"{option}: got {text!r}, wanted POOL:NUMBER", hint=f"{option}=sram:4096") from None


def _bursts(parsed: argparse.Namespace, reached: Mapping[str, Target]) -> dict[str, dict[object, int]]:
    result: dict[str, dict[object, int]] = {}
    for text in _given(parsed, _BURST):
        pool, kind, size = [*text.split(":", 2), "", ""][:3]
        if kind not in reached:
            raise ConfigError(
                f"The workspace pool target specification {text!r} needs to contain a subset of the same TVM targets "
                f"as when specifying targets to use.",
                hint=f"targets: {', '.join(reached)}",
            )
        result.setdefault(pool, {})[reached[kind]] = _number(_BURST, size)
    return result
