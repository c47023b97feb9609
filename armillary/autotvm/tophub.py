"""Records under the name of Relay-era scripts: `with autotvm.tophub.context(target, extra_files=[...])`.

In: targets and log files. Out: a dispatch context. Invariant: nothing is downloaded: the records are those of the files
that are given, and without any a build chooses as it does by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from armillary.autotvm.task.dispatcher import ApplyHistoryBest
from armillary.base.boundary import boundary


@boundary("tophub.context", arguments=True)
def context(target: object, extra_files: Iterable[str | Path] | None = None) -> ApplyHistoryBest:
    """The records of the files; which target they are for stands in each record."""
    del target
    result = ApplyHistoryBest(warns=False)
    for path in extra_files or ():
        result.load(path)
    return result
