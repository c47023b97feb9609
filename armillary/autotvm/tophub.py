"""Records that come along: `with autotvm.tophub.context(target, extra_files=[...])`, a name of Relay-era scripts.

In: targets and log files. Out: a dispatch context with the records of the files, and of the log beside this file for
each key of a target (arm_cpu.log). Invariant: nothing is downloaded. Records of arm_cpu.log were counted, not timed:
their costs are instructions under an emulator, of a Cortex-A72 for boards of 64 bits, of a Cortex-A15 for those of 32
(benchmarks/arm_records.py), so that a record in seconds precedes one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from armillary.autotvm.task.dispatcher import ApplyHistoryBest
from armillary.base.boundary import boundary
from armillary.target import as_target


@boundary("tophub.context", arguments=True)
def context(target: object, extra_files: Iterable[str | Path] | None = None) -> ApplyHistoryBest:
    """The records for a target, or for each of a list or dictionary of targets, and those of the files.

    Which target a file's records are for stands in each of them.
    """
    targets = list(target.values()) if isinstance(target, Mapping) else target
    each = targets if isinstance(targets, list | tuple) else [targets]
    keys = dict.fromkeys(key for one in each for key in as_target(one).keys)
    result = ApplyHistoryBest(warns=False)
    for path in (*(Path(__file__).with_name(f"{key}.log") for key in keys), *map(Path, extra_files or ())):
        if path.parent != Path(__file__).parent or path.exists():
            result.load(path)
    return result
